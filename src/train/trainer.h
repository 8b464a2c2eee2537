#pragma once

#include <chrono>
#include <memory>
#include <string>
#include <vector>

#include "base/aligned.h"
#include "nn/model_impl.h"
#include "ops/loss.h"
#include "penstock/train.h"
#include "train/checkpoint.h"
#include "train/metrics.h"
#include "train/optimizer.h"

namespace penstock::training {

/// One run of penstock::train(). The arguments must have been checked.
class Trainer {
 public:
  Trainer(Model::Impl& model, Dataset& data, const TrainOptions& options, const TrainCallbacks& callbacks, bool resume);

  TrainResult run();

 private:
  /// What one batch came to. `broken` names what was not finite, if anything; then nothing has changed.
  struct Outcome {
    ops::LossSum loss;
    double learning_rate = 0.0;
    double gradient_norm = 0.0, clipped_norm = 0.0;
    const char* broken = nullptr;
    Index scored = 0;  // also of a broken batch, whose loss is not known
  };

  /// One batch: forward, loss, backward, clip, update. Weights, optimiser and carried state change only if everything
  /// on the way was finite.
  Outcome train_batch();
  /// A workspace for batches of the example's shape, with everything bound.
  graph::Workspace& workspace();
  /// Fills in what the forward pass and the loss give. False if something was not finite.
  bool forward(graph::Workspace& workspace, const ops::Call& call, Outcome& outcome);
  /// The same for gradients and norms.
  bool backward(graph::Workspace& workspace, const ops::Call& call, Outcome& outcome);

  void count(const Outcome& outcome);
  void report(const Outcome& outcome, double seconds);
  /// Scores at most `most_batches` of the held-out batches; 0: all.
  void validate(double seconds, Index most_batches);
  void give_up_if_hopeless(const Outcome& outcome) const;
  void save();

  double seconds() const;
  double epoch() const;
  /// How much of the run is behind us (0..1) when `steps` batches have been counted: the limit that is nearest decides.
  double fraction(Index steps, double seconds) const;
  double gradient_norm_of_block(Index block);
  double first_gradient_ratio();
  double saturated() const;
  std::string describe_skip(const Outcome& outcome) const;

  Model::Impl& model_;
  Dataset& data_;
  TrainOptions options_;
  const TrainCallbacks& callbacks_;
  Loss loss_;
  nlohmann::json identity_;
  std::unique_ptr<OptimizerRule> optimizer_;
  MetricsLog metrics_;

  RunState state_;
  double seconds_before_ = 0.0;  // of earlier runs that this one resumes
  std::chrono::steady_clock::time_point started_;

  // Reused from batch to batch.
  Example example_;
  std::vector<float> next_state_, start_state_, outputs_, doutputs_;
  AlignedVector<float> gradients_;                             // in the layout of the parameters
  std::vector<double> scratch_;                                // of losses and norms
  std::vector<double> watched_;                                // two numbers of each recurrent layer (ops/saturation.h)
  std::vector<std::unique_ptr<graph::Workspace>> workspaces_;  // for the shapes used last, latest first

  // Since the last report.
  ops::LossSum reported_loss_;
  Index reported_places_ = 0;
  double last_report_ = 0.0, last_validation_ = 0.0, last_checkpoint_ = 0.0;
  TrainResult result_;
};

}  // namespace penstock::training
