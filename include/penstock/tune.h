#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "penstock/plan.h"

/// Tuning: chooses plans by measurement instead of by estimate, and fits the planner's costs to the measurements.
///
/// A file keeps the results: PENSTOCK_PLANS, or else plans.json in the folder of compiled kernels. Every later process
/// reads it. Results are valid for one chip, its driver, and one version of Penstock.
namespace penstock {

/// Options of tune().
struct TuneOptions {
  double seconds = 0.05;  ///< Measuring time of each plan: above 0, at most 3600.
  int candidates = 4;     ///< Plans that are measured of each algorithm, best estimates first: 1 to 1000.
  double margin = 0.02;   ///< A plan replaces the planner's only if it is faster by more than this share: [0, 1).
  /// Called before each measurement, with the name of the problem and the number of measurements done and planned. If
  /// it returns false, tune() throws Error(interrupted).
  std::function<bool(const std::string& work, Index done, Index total)> at = {};
};

/// A plan with its measured time: the time of the op that the plan is a part of.
struct MeasuredPlan {
  std::string rule = {};                                             ///< Name of the algorithm: "cluster".
  std::vector<std::pair<std::string, std::int64_t>> variables = {};  ///< Names and values of the plan's variables.
  std::string text = {};                                             ///< How it runs, one line.
  double microseconds = 0, low = 0, high = 0;                        ///< Median and quartiles of the measured time.
  double estimated = 0;                                              ///< Estimated microseconds; 0: not estimated.
};

/// Tuning result of one problem. A problem holds exactly what a plan depends on.
struct TunedWork {
  std::string work;      ///< Name of the problem in the file of plans.
  std::string machine;   ///< Name of the machine in the file of plans.
  std::string node;      ///< The op that was timed, "lstm" or "lstm.backward"; several ops were timed in sequence.
  MeasuredPlan planned;  ///< The planner's choice without measurements; `rule` is empty.
  MeasuredPlan best;     ///< The fastest plan, timed in turns with `planned`; empty `rule`: the planner's own.
  Index tried = 0;       ///< Number of other plans that were measured.
  /// The measured plans, including the planner's own if its algorithm has it among the candidates.
  std::vector<MeasuredPlan> measured = {};
  /// Returns the estimated microseconds of a plan for other costs of the machine, in the order of its list of costs; 0:
  /// not estimated. No function: nothing is estimated, as for bf16 products on a CPU.
  std::function<double(const MeasuredPlan& plan, const std::vector<double>& costs)> estimate = {};

  /// Returns the speed-up of `best` over `planned`.
  double gain() const { return best.microseconds > 0 ? planned.microseconds / best.microseconds : 1; }
};

/// Measures plans for all problems of a layer on its device. Throws Error as explain() and the passes would;
/// invalid_argument for impossible options or a LayerQuestion::chip; interrupted by TuneOptions::at.
std::vector<TunedWork> tune(const LayerQuestion& question, const TuneOptions& options = {});
/// Measures plans for all problems of a model's forward pass with B = `rows` and T = `steps`, or of its training step.
std::vector<TunedWork> tune(const Model& model, Index rows, Index steps, bool training = false,
                            const Execution& execution = {}, const TuneOptions& options = {});

/// A cost of a machine (docs/planning.md) before and after tuning.
struct TunedCost {
  std::string machine, name;
  double before = 0, after = 0;
};

/// Result of tune_costs().
struct TunedCosts {
  std::vector<TunedCost> changed;  ///< Costs that changed; all others stay.
  /// Root-mean-square factor between estimated and measured times of the plans, with the old and with the new costs; 1:
  /// exact.
  double off_before = 1, off_after = 1;
};

/// Fits the costs of a device to the measurements of tune().
///
/// Copies are measured here, for `seconds`. All other costs are fitted to the times of all measured plans by least
/// squares of logarithms. A cost changes only as far as the measurements demand, by a factor of four at most. Throws
/// Error(invalid_argument) unless `seconds` is positive.
TunedCosts tune_costs(const std::vector<TunedWork>& works, Device device = {}, double seconds = 0.05);

/// Returns the path of the file that plans are read from; empty if there is no folder for it.
std::string plans_path();
/// Adds tuning results to the file at `path`, which keeps its results of other problems and machines. Empty `path`:
/// plans_path(). Returns the path. Throws Error: io_failure if the file cannot be written or others may write to it;
/// bad_input for a file with other contents; invalid_argument without any path.
std::string save_plans(const std::vector<TunedWork>& works, const std::string& path = "",
                       const std::vector<TunedCost>& costs = {});
/// Throws what save_plans() would throw. Call it before tune() to find a bad path before anything is measured.
void check_plans(const std::string& path = "");

}  // namespace penstock
