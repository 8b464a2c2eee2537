#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "penstock/initial_weights.h"
#include "penstock/output_files.h"
#include "penstock/train/train.h"

/// A whole run as `penstock train` and Python's train() make it: complete its options, train the layers, fit the
/// other parts, score the model, refit them.
namespace penstock {

/// A run as its caller asks for it. complete() fills in what is left empty, by the data and the device.
struct FitRequest {
  TrainOptions train = {};  ///< What does not depend on the data. Its fields that stand below, too, are not read.
  /// Limits of the run. If one is given, those that are not given are off.
  std::optional<Index> max_steps = {};
  std::optional<double> max_seconds = {}, max_epochs = {};
  std::optional<Index> batch = {}, length = {}, validate_steps = {}, patience = {};
  std::optional<double> learning_rate = {}, validate_every = {};
  std::optional<bool> keep_best = {};  ///< False also sets FinishOptions::shrink to false.
  std::optional<Precision> precision = {};
  bool automatic = false;  ///< resolve_device() chooses the device.
  Index seeds = 1;         ///< Models to train, each with the next seed. The result is their mean.
  bool resume = false;     ///< Continues from the checkpoint. Later models continue from theirs if they have one.
  bool filters = true;     ///< FinishOptions::filters
  /// Trains layers even if linear_stands_alone(). Limits, batch sizes, a learning rate, seeds and the like do so, too.
  bool layers = false;
  bool continues = false;       ///< The model has the weights of another one (fine_tune.h).
  Initialisation initial = {};  ///< Initial weights of all models but the first, which the caller makes.
};

/// A run about which nothing is left to decide.
struct FitPlan {
  FitRequest request = {};
  TrainOptions options = {};   ///< Options of the training, complete.
  bool resume = false;         ///< There is a checkpoint, from which the training continues.
  bool sized = false;          ///< The size of the data decides the number of steps.
  bool filters_alone = false;  ///< Trains no layers: filters_stand_alone().
  bool linear_alone = false;   ///< Trains no layers: linear_stands_alone().

  bool trains_layers() const { return !filters_alone && !linear_alone; }
};

/// Returns whether a run continues from its checkpoint. Throws Error if FitRequest::resume is set in vain: io_failure
/// if there is no checkpoint; invalid_argument without its path.
bool resumes(const FitRequest& request);

/// Completes a request. The dataset is left unchanged. Throws Error(invalid_argument) for limits of 0 and for requests
/// that contradict each other.
FitPlan complete(Dataset& data, const FitRequest& request);

/// Chooses the device of a plan for models of `spec` if its request leaves that open and layers are trained, and
/// completes the plan again if the choice is a GPU. Returns the reason; empty if nothing was open.
std::string resolve_device(FitPlan& plan, const ModelSpec& spec, Dataset& data);

/// Returns what History::options notes of a plan for data of a task.
std::string describe_options(const FitPlan& plan, Task task);

/// Returns a model with new weights and, if `spec` has lags, the linear forecast of the dataset.
Model new_model(const ModelSpec& spec, const Dataset& data, std::uint64_t seed, const Initialisation& initial = {});

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

/// Returns the files that trainings of some models write, for check_outputs().
std::vector<OutputFile> training_outputs(const TrainOptions& options, Index models = 1);

/// Runs a plan. Trains `model` and the models with the next seeds, combines them and calls finish_training(). Then
/// scores the model on the hold-out set and calls refit(). Throws what these functions throw, and
/// Error(invalid_argument) for an impossible number of seeds.
FitResult fit(Model& model, Dataset& data, const FitPlan& plan, const FitCallbacks& callbacks = {});
/// Does what fit() does behind the training of one model, which something else has trained with this result.
FitResult finish_fit(Model& model, Dataset& data, const FitPlan& plan, const TrainResult& trained);

}  // namespace penstock
