#pragma once

#include <string>
#include <vector>

#include "penstock/types.h"

/// Explained plans: how a layer or a model will run on a machine, which need not be present, why, and what the
/// alternatives cost.
namespace penstock {

class Model;
struct DataDescription;
struct ModelSpec;

/// An algorithm that the planner did not choose for a problem.
struct PlanAlternative {
  std::string name = {};                   ///< Name of the algorithm: "cluster", "direct".
  bool possible = false;                   ///< True if a plan of this algorithm exists.
  double microseconds = 0;                 ///< If possible: estimated time; 0: not estimated.
  std::string text = {};                   ///< If possible: how it would run.
  std::string reason = {};                 ///< Why it was not chosen.
  std::vector<std::string> conflict = {};  ///< If not possible: constraints that cannot hold together.
};

/// The plan for one problem: a node of a model, or a part of a node.
struct PlanReport {
  std::string work;                           ///< The problem: "recurrence of lstm, forward: B = 16, T = 1024, ...".
  std::string machine;                        ///< "H100 (sm_90)", "2 threads, avx512".
  std::string algorithm;                      ///< Name of the chosen algorithm: "cluster"; empty: no plan.
  std::string plan;                           ///< How it runs, one line.
  std::string why;                            ///< Why this plan was chosen, or why there is none.
  double microseconds = 0;                    ///< Estimated time; 0: not estimated.
  std::vector<PlanAlternative> alternatives;  ///< The algorithms that were not chosen.
};

/// A recurrent layer and a machine to plan it for.
struct LayerQuestion {
  std::string cell = "lstm";
  Index rows = 1, steps = 1;            ///< B, T
  Index input = 1, hidden = 1;          ///< I, H
  Index heads = 1;                      ///< Divides H.
  bool training = false;                ///< Plans a forward pass with a tape and a backward pass; false: forward only.
  bool lengths = false, reset = false;  ///< True if calls have Batch::lengths and Batch::reset.
  Execution execution = {};             ///< Device, precision, threads, algorithm, exact mode.
  /// Name of a GPU from chips() that need not be present; empty: the device of `execution`.
  std::string chip = {};
};

/// Returns the names of the GPUs that can be planned for without being present.
std::vector<std::string> chips();

/// Plans all problems of the passes of a layer, in their order. Throws Error: invalid_argument that names the
/// impossible field; unsupported if no plan is possible, with what each algorithm would need.
std::vector<PlanReport> explain(const LayerQuestion& question);

/// Plans all nodes of a model in the order in which they run: of a forward pass with B = `rows` and T = `steps`, or of
/// a training step. `chip` is as in LayerQuestion. Nodes without a choice have reports without a plan.
std::vector<PlanReport> explain(const Model& model, Index rows, Index steps, bool training = false,
                                const Execution& execution = {}, const std::string& chip = {});

/// Calls of a model to choose a device for.
struct DeviceQuestion {
  Index rows = 1, steps = 1;  ///< B, T of each call.
  Index calls = 1;            ///< Number of calls.
  Index copied_every = 1;     ///< Number of calls after which results are copied from the GPU to the host at once.
  bool training = false;      ///< True if the calls are training steps; false: forward passes.
  bool start = false;         ///< True to add the start time of a GPU, for a process that has not used it yet.
  Execution execution = {};   ///< Precision, threads, exact mode, and the index of the GPU.
  std::string chip = {};      ///< Name of a GPU from chips() that need not be present; empty: that of `execution`.
};

/// The chosen device and the estimates behind the choice.
struct DeviceChoice {
  Device device = {};
  double cpu_microseconds = 0, gpu_microseconds = 0;  ///< Estimated time of all calls; 0: not possible, or no GPU.
  double copy_microseconds = 0;                       ///< Part of the GPU's time: copies from and to the host.
  std::string why;                                    ///< Reason, one line.
};

/// Returns the device with the smaller estimated time, including copies between host and GPU; the CPU if there is no
/// GPU. Throws Error: invalid_argument for sizes below 1; unsupported if neither device can run the calls.
DeviceChoice choose_device(const Model& model, const DeviceQuestion& question);
/// Returns the device for a model that does not exist yet.
DeviceChoice choose_device(const ModelSpec& spec, const DataDescription& data, const DeviceQuestion& question);

/// Returns the reports as text for a person.
std::string to_text(const std::vector<PlanReport>& reports);

}  // namespace penstock
