#pragma once

#include <functional>
#include <string>
#include <vector>

#include "penstock/initial_weights.h"
#include "penstock/train/train.h"

/// A whole run as `penstock train` makes it: train the layers, fit the other parts, score the model, refit them.
namespace penstock {

/// Options of fit() beside those of the training.
struct FitOptions {
  Index seeds = 1;      ///< Models to train, each with the next seed. The result is their mean.
  bool resume = false;  ///< Continues from the checkpoint. Later models continue from theirs if they have one.
  bool layers = true;   ///< False: trains no layers. The linear forecast or the filters answer alone.
  const Model* origin = nullptr;  ///< Model from which all others continue (fine_tune.h); null: new weights.
  Initialisation initial = {};    ///< Initial weights of all models but the first, which the caller makes.
  FinishOptions finish = {};
};

/// Result of fit(). Steps, seconds and epochs are sums over the models.
struct FitResult : TrainResult {
  /// One of the trained models.
  struct Member {
    std::uint64_t seed;
    TrainResult result;
  };
  std::vector<Member> members;  ///< Empty without training of layers.
  Finished finished;

  /// Returns whether the run has ended and the model was scored.
  bool scored() const { return !interrupted && validation && validation->scored > 0; }
  /// Returns describe_weight() of this run.
  std::string weight() const { return describe_weight(finished, !members.empty()); }
};

/// Functions that fit() calls from its own thread. Each may be empty.
struct FitCallbacks {
  /// Called before model `number` is trained with `options`, whose paths and seed are its own. Returns the callbacks
  /// of this training; TrainCallbacks::stop is replaced by `stop`.
  std::function<TrainCallbacks(const Model& model, Index number, TrainOptions& options)> begin;
  /// Called with the scored model before the fitted parts take in the hold-out set.
  std::function<void(const Model& model, const FitResult& result)> scored;
  /// Returns true to interrupt the run. The result is then marked as interrupted, and the model is as the completed
  /// steps left it.
  std::function<bool()> stop;
};

/// Returns the file of one of several models: PATH, PATH.2, PATH.3, ...; empty for an empty path.
std::string member_path(const std::string& path, Index number);

/// Trains `model` and the models with the next seeds, combines them and calls finish_training(). Then scores the model
/// on the hold-out set and calls refit(). Throws what these functions throw.
FitResult fit(Model& model, Dataset& data, const TrainOptions& options, const FitOptions& fit_options,
              const FitCallbacks& callbacks = {});

}  // namespace penstock
