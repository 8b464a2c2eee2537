#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "penstock/plan.h"

/// Plans by measurement instead of by estimate, and estimates by measured costs for what was not measured. What was the
/// quickest and what it cost are kept in a file (PENSTOCK_PLANS, else plans.json in the folder of compiled kernels),
/// which every later process reads: it holds for one chip, its driver, and one version of Penstock.
namespace penstock {

struct TuneOptions {
  double seconds = 0.05;  ///< That each plan is measured for
  int candidates = 4;     ///< Plans of each algorithm, those that are estimated best
  double margin = 0.02;   ///< A plan replaces the planner's where it takes less time by more than this share.
  /// Called before each measurement; false ends the tuning with Error(interrupted).
  std::function<bool(const std::string& work, Index done, Index total)> at = {};
};

/// A plan, measured: medians of the time of the op that it is a part of, with the middle half of the times.
struct MeasuredPlan {
  std::string rule = {};  ///< "cluster"
  std::vector<std::pair<std::string, std::int64_t>> variables = {};
  std::string text = {};  ///< How it runs, one line
  double microseconds = 0, low = 0, high = 0;
  double estimated = 0;  ///< Microseconds; 0: not estimated.
};

/// What came of one work: everything that is planned in one way.
struct TunedWork {
  std::string work;      ///< Names it in the file.
  std::string machine;   ///< The same for the machine.
  std::string node;      ///< "lstm", "lstm.backward": the op that was timed; of several, one after the other
  MeasuredPlan planned;  ///< What the planner chooses without measurements; its rule stays empty.
  MeasuredPlan best;     ///< The quickest, measured by turns with the planner's; without a rule: the planner's own.
  Index tried = 0;       ///< Other plans that were measured.
  /// Those plans; the planner's own is among them where its rule has it.
  std::vector<MeasuredPlan> measured = {};
  /// Microseconds that would be expected of such a plan by other costs of the machine, in the order of its list; 0, or
  /// no function: nothing is, as for products in bf16 on a CPU, whose costs are not those of floats.
  std::function<double(const MeasuredPlan& plan, const std::vector<double>& costs)> estimate = {};

  double gain() const { return best.microseconds > 0 ? planned.microseconds / best.microseconds : 1; }
};

/// Measures plans of everything that a layer is made of on its device; or of a model's forward pass of B rows and T
/// steps, or of its training step. Throws Error as explain() and the passes would; invalid_argument for a chip that is
/// not there.
std::vector<TunedWork> tune(const LayerQuestion& question, const TuneOptions& options = {});
std::vector<TunedWork> tune(const Model& model, Index rows, Index steps, bool training = false,
                            const Execution& execution = {}, const TuneOptions& options = {});

/// A cost of a machine (docs/planning.md), as it was and as measurements have it.
struct TunedCost {
  std::string machine, name;
  double before = 0, after = 0;
};

struct TunedCosts {
  std::vector<TunedCost> changed;  ///< Others stay as they are.
  /// A factor by which estimates of the measured plans are off, in the mean of squares: by the costs before, by these.
  double off_before = 1, off_after = 1;
};

/// The costs of a device with which the planner expects what was measured, as far as it tells: copies are measured
/// here, and the rest is a fit to the plans of all works, by least squares of logarithms, in which no cost moves
/// further than the measurements pull it.
TunedCosts tune_costs(const std::vector<TunedWork>& works, Device device = {}, double seconds = 0.05);

/// The file that plans are read from; empty where there is no such folder.
std::string plans_path();
/// Adds what was tuned to what the file holds of other works, costs and machines; empty: to plans_path(). Returns the
/// path. Throws Error: io_failure, bad_input for a file that holds something else, invalid_argument without a path.
std::string save_plans(const std::vector<TunedWork>& works, const std::string& path = "",
                       const std::vector<TunedCost>& costs = {});
/// Throws, before anything is measured, what save_plans() would throw.
void check_plans(const std::string& path = "");

}  // namespace penstock
