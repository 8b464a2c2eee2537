#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <string>

#include "nn/model/model_impl.h"
#include "penstock/data/dataset.h"
#include "penstock/train/guard.h"
#include "penstock/train/stopping.h"
#include "penstock/train/train.h"
#include "train/checkpoint.h"
#include "train/metrics_log.h"
#include "train/optimizer_state.h"
#include "train/step_runner.h"

namespace penstock::training {

GuardOptions guard_options(const TrainOptions& options, Loss loss, const Model::Impl& model);

/// Does the work of penstock::evaluate() for a dataset that was checked.
Evaluation evaluate_checked(const Model::Impl& model, const Dataset& data, const TrainOptions& options);

/// One run of penstock::train(). The arguments must have been checked.
class Trainer {
 public:
  Trainer(Model::Impl& model, Dataset& data, const TrainOptions& options, const TrainCallbacks& callbacks, bool resume);

  TrainResult run();

 private:
  /// Batches until a limit is reached or somebody stops the run.
  void train();
  /// Puts the next batch on its way.
  void submit();
  /// Handles the result of a batch: counts, reports, gives up. `last`: no other follows.
  void handle(const StepResult& result, bool last);
  void count(const StepResult& result);
  bool report_is_due(const StepResult& result, double now) const;
  void report(const StepResult& result, double seconds);
  /// Validates if it is time to, and acts on what that says.
  void validate_if_due();
  /// Scores at most `most_batches` of the held-out batches; 0: all.
  void validate(double seconds, Index most_batches);
  Evaluation evaluation(Index most_batches);
  /// Exchanges the weights with their average, if there is one.
  void swap_average();
  /// Takes note of a validation of the weights as they are: keeps them if they are the best, or ends the run.
  void judge(const Evaluation& evaluation, bool by_steps);
  /// The model's weights and their average become the best ones, if there are any.
  void restore_best();
  /// Goes back to the best weights, from where the learning rate falls to its end.
  void begin_cooldown();
  void give_up_if_hopeless(const StepResult& result, bool last) const;
  void handle_all();

  /// Makes the object that runs steps, from the host's weights, optimiser and state, with the rate of the guard.
  void make_runner();
  /// Brings everything to the host that make_runner() and checkpoints read.
  void pause_runner();
  /// Makes it anew because the rate has changed.
  void renew_runner();
  /// Gives a step to the guard, and reports its warnings.
  void watch(const StepResult& result);
  /// Returns to a good state after trouble; otherwise takes a state or raises a lowered rate if it is time to.
  void act_on_trouble();
  void keep_state();
  void roll_back();
  /// Reports a warning that no step has caused.
  void warn_of(const Message& text);
  /// Warns, and writes the warning to the metrics.
  void remark(const Message& text);
  /// Reports once that metrics are no longer written.
  void check_metrics();
  /// All that is under way is waited for first.
  void save();

  /// Chooses the weights that the model ends with, and scores them.
  void finish();
  /// Does work that follows the last step, and ends it when somebody stops the run, which a checkpoint can finish.
  void unless_interrupted(const std::function<void()>& work);

  double seconds() const;
  double epoch(Index scored) const;
  /// How much of the run is behind us (0..1) when that many steps and scored positions have been counted: the limit
  /// that is nearest decides.
  double fraction(Index steps, Index scored, double seconds) const;
  /// Returns the part of the fraction that the steps themselves do not determine.
  double time_fraction(double seconds) const;

  Model::Impl& model_;
  Dataset& data_;
  TrainOptions options_;
  const TrainCallbacks& callbacks_;
  Loss loss_;
  nlohmann::json identity_;
  OptimizerState optimizer_;
  MetricsLog metrics_;

  RunState state_;  // of results that have come in
  Stopping stopping_;
  Guard guard_;
  std::optional<Trouble> trouble_;              // which has not been acted on
  Index submitted_ = 0, submitted_scored_ = 0;  // batches that have been put on their way, and their scored positions
  std::unique_ptr<StepRunner> runner_;
  double seconds_before_ = 0.0;  // of earlier runs that this one resumes
  std::chrono::steady_clock::time_point started_;
  Example example_;  // reused from batch to batch
  bool first_ = true;

  // Since the last report.
  LossSums reported_loss_ = {};
  Index reported_positions_ = 0, reported_steps_ = 0;
  double last_report_ = 0.0, last_validation_ = 0.0, last_checkpoint_ = 0.0;
  TrainResult result_;
};

}  // namespace penstock::training
