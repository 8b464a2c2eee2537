#pragma once

#include <string>
#include <vector>

#include "penstock/data_description.h"
#include "penstock/types.h"

/// How work is going to run, and why: what the planner chooses for a layer or a model on a machine, which need not be
/// there, and what became of everything else.
namespace penstock {

class Model;
struct DataDescription;
struct ModelSpec;

/// What became of another way to do the same work.
struct PlanAlternative {
  std::string name = {};  ///< "cluster", "direct"
  bool possible = false;
  double microseconds = 0;                 ///< As estimated, where it is possible; 0: not estimated.
  std::string text = {};                   ///< How it would run, where it is possible
  std::string reason = {};                 ///< Why it lost or cannot be
  std::vector<std::string> conflict = {};  ///< Constraints that cannot hold together, where it cannot be
};

/// One piece of work: a node of a model, or what a node is made of.
struct PlanReport {
  std::string work;         ///< "recurrence of lstm, forward: B = 16, T = 1024, ..."
  std::string machine;      ///< "H100 (sm_90)", "2 threads, avx512"
  std::string algorithm;    ///< "cluster"; empty where there is no plan
  std::string plan;         ///< How it runs, one line
  std::string why;          ///< What decided
  double microseconds = 0;  ///< As estimated; 0: not estimated.
  std::vector<PlanAlternative> alternatives;
};

/// A recurrent layer on some machine.
struct LayerQuestion {
  std::string cell = "lstm";
  Index rows = 1, steps = 1;    ///< B, T
  Index input = 1, hidden = 1;  ///< I, H
  Index heads = 1;
  bool training = false;  ///< Forward with a tape, then backward; otherwise forward alone
  bool lengths = false, reset = false;
  Execution execution = {};  ///< Device, precision, threads, algorithm, exact
  /// A GPU that need not be there, by a name of chips(), instead of the one of `execution.device`; empty: that one.
  std::string chip = {};
};

/// Names of the GPUs that can be planned for without being there.
std::vector<std::string> chips();

/// What the passes of a layer are made of, in their order. Throws Error: invalid_argument naming what is impossible,
/// unsupported where no plan is possible, saying what each would need.
std::vector<PlanReport> explain(const LayerQuestion& question);

/// What every node of a model is made of, in the order in which they run: of a forward pass of B rows and T steps, or
/// of a training step. Nodes that leave nothing to choose have reports without a plan.
std::vector<PlanReport> explain(const Model& model, Index rows, Index steps, bool training = false,
                                const Execution& execution = {}, const std::string& chip = {});

/// Calls of a model, for which a device is to be chosen.
struct DeviceQuestion {
  Index rows = 1, steps = 1;  ///< B, T of each
  Index calls = 1;
  Index copied_every = 1;    ///< So many calls leave their results on a GPU, to be fetched at once
  bool training = false;     ///< Steps of training; otherwise forward passes
  bool start = false;        ///< What a GPU takes once to start counts, too: a process that does nothing else before
  Execution execution = {};  ///< Precision, threads, exact; the number of a GPU
  std::string chip = {};     ///< A GPU that need not be there, by a name of chips()
};

struct DeviceChoice {
  Device device = {};
  double cpu_microseconds = 0, gpu_microseconds = 0;  ///< Of all calls, as estimated; 0: not possible there
  double copy_microseconds = 0;                       ///< Of these on the GPU, for copies from and to the host
  std::string why;                                    ///< One line
};

/// The device that needs less time by the planner's estimate, copies between the host and the GPU counted; the CPU
/// where there is no GPU. Throws Error(unsupported) where neither can.
DeviceChoice choose_device(const Model& model, const DeviceQuestion& question);
DeviceChoice choose_device(const ModelSpec& spec, const DataDescription& data, const DeviceQuestion& question);

/// The reports as text for a person.
std::string to_text(const std::vector<PlanReport>& reports);

}  // namespace penstock
