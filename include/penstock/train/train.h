#pragma once

#include <functional>
#include <optional>
#include <string>

#include "penstock/data/dataset.h"
#include "penstock/error.h"
#include "penstock/model.h"
#include "penstock/train/settings.h"

/// Training: the trainer, and the parts of a model that are fitted after training.
namespace penstock {

/// Progress of a run after an optimiser step, or a skipped one.
struct Progress {
  Index step = 0;             ///< Steps so far, including skipped ones.
  double seconds = 0.0;       ///< Wall time so far.
  double fraction = 0.0;      ///< Completed fraction of the run, 0 to 1.
  double seconds_left = 0.0;  ///< Estimated remaining time.
  double epoch = 0.0;         ///< Passes over the data so far.
  double loss = 0.0;          ///< Mean since the last report, over scored steps, in nats or squared normalised units.
  double accuracy = 0.0;      ///< Over the same steps, for cross-entropy.
  double learning_rate = 0.0;
  double gradient_norm = 0.0;         ///< Global norm in the last step, before clipping.
  double clipped_norm = 0.0;          ///< After clipping.
  double steps_per_second = 0.0;      ///< Optimiser steps since the last report.
  double positions_per_second = 0.0;  ///< Rows x time steps (bytes, CSV rows) since the last report.
  double saturated = 0.0;             ///< Fraction of recurrent outputs with |h| > 0.99.
  double first_gradient_ratio = 1.0;  ///< Gradient norm of the first block / of the last block; near 0: vanishing.
  Index skipped = 0;                  ///< Skipped (non-finite) steps so far.
  Index rollbacks = 0;                ///< Returns to an earlier state so far (TrainOptions::rollbacks).
  /// One line if this step was skipped, if the run has returned to an earlier state, or if gradients vanish or explode
  /// or outputs are saturated; otherwise empty.
  Message warning;
};

/// Scores of a model on validation data.
struct Evaluation {
  double loss = 0.0;           ///< Mean over scored steps, as Progress::loss.
  double bits_per_step = 0.0;  ///< For cross-entropy: loss / ln 2; for a text, bits per byte.
  double accuracy = 0.0;       ///< For cross-entropy.
  Index scored = 0;            ///< Number of scored steps.
};

/// Result of train().
struct TrainResult {
  Progress last;  ///< Progress at the end.
  /// Scores of the final weights on all validation data. After an interruption: those of the last validation, if any.
  std::optional<Evaluation> validation;
  bool interrupted = false;    ///< True if TrainCallbacks::stop ended the run.
  bool stopped_early = false;  ///< True if TrainOptions::patience ended the run.
  Index model_step = 0;        ///< Step after which the model had its final weights.
  /// Reason and likeliest remedy, if more rollbacks were needed than TrainOptions::rollbacks allows; otherwise empty.
  /// The model then has its last good weights, or the best ones with TrainOptions::keep_best.
  Message gave_up;
  /// Why the last checkpoint could not be written; empty if it could. A failure during the run is a warning, and
  /// another attempt follows after ten seconds.
  std::string checkpoint_error;
  /// Why writing metrics or events was given up during the run (a warning); empty if they are complete.
  std::string metrics_error;
};

/// Functions that train() calls, from the training thread. Each may be empty.
struct TrainCallbacks {
  std::function<void(const Progress&)> progress;
  std::function<void(const Progress&, const Evaluation&)> validation;
  std::function<bool()>
      stop;  ///< Returns true to save and return after the current step; ends the last validation at once.
};

/// Trains a model.
///
/// `resume`: continues the run of TrainOptions::checkpoint_path, which must exist. With a limit in steps and the same
/// number of threads, the weights are bit for bit those of an uninterrupted run; limits of wall time are not
/// reproducible. Limits, paths, intervals of reports and the execution may differ from those of the first run; other
/// options must not.
///
/// Throws Error: invalid_argument that names an impossible option; numerical when TrainOptions::give_up_after is
/// reached; incompatible if the model was made for other data or the checkpoint is of another run; io_failure if the
/// files of metrics cannot be opened. Later failures of files do not end the run: see TrainResult::checkpoint_error and
/// metrics_error.
TrainResult train(Model& model, Dataset& data, const TrainOptions& options, const TrainCallbacks& callbacks = {},
                  bool resume = false);

/// Returns the linear forecast of a series (SeriesOptions::autoregression), fitted to the training part; null for other
/// data. The first call fits it, which may take seconds. The result lives as long as the dataset.
const Autoregression* linear_forecast(const Dataset& data);
/// Sets ModelSpec::branch to a branch for the linear forecast of a dataset; to null if there is none or `spec` has no
/// from_last.
void use_linear_forecast(ModelSpec& spec, const Dataset& data);
/// Copies the linear forecast of a dataset into a model with a branch for it. Throws Error(incompatible) if the dataset
/// has none with the same lags.
void fit_autoregression(Model& model, const Dataset& data);
/// Replaces the linear forecast of a model by one that is fitted to the training and the hold-out rows. Call it after
/// the model was scored: the latest rows tell most about the future. Does nothing to a model without lags.
void refit_autoregression(Model& model, const Dataset& data);

/// Scales the network's correction of the linear forecast by a share of 0 to 1 that reduces the error on the hold-out
/// rows, and returns the share. The share is 0 if the gain may be chance. Does nothing and returns 1 for models without
/// lags.
double shrink_correction(Model& model, const Dataset& data, const Execution& execution = {});

/// Gives series of a group forecasts of their own (Group::own): a linear forecast that is chosen by the series alone
/// replaces the shared one where that is worse than a baseline on the hold-out rows, and the new one has an error at
/// least 10 % lower. Does nothing to models without lags, and to more than 32 series.
void choose_own_forecasts(Model& model, const Dataset& data, const Execution& execution = {});
/// Fits the forecasts of single series again, to the training and the hold-out rows.
void refit_own_forecasts(Model& model, const Dataset& data);

/// Returns whether training layers is useless for a series: there are too few hold-out rows to judge their correction
/// of the linear forecast, so shrink_correction() would set it to 0.
bool linear_stands_alone(const Dataset& data);

/// Estimates the distribution of the forecast errors of a series model, SeriesDescription::errors, from which
/// prediction intervals follow. Uses the errors on the hold-out rows and those of the linear forecast on the training
/// rows. Does nothing for other data or without such errors.
void fit_error_distribution(Model& model, const Dataset& data, const Execution& execution = {});

/// Weights of the outputs of the layers and of the filter bank in a model's answer, each 0 to 1.
struct FilterShares {
  double layers = 1.0;
  double filters = 0.0;
};

/// Returns a trained model of labelled sequences with an additional bank of convolution filters (ModelSpec::branch).
///
/// A classifier of the filters is fitted in closed form to the training part, on the CPU. `shares` receives the weights
/// of layers and filters, chosen on the hold-out set; if that is too small, the filters get all the weight. Filters run
/// on the device of the model. Throws Error(invalid_argument) for other data or a model that already has filters.
Model add_filters(const Model& model, const Dataset& data, FilterShares& shares, std::uint64_t seed = 0,
                  const Execution& execution = {});
/// Returns whether training layers is useless for these data: they are labelled sequences, and the hold-out set is too
/// small to judge layers, so add_filters() would give them no weight.
bool filters_stand_alone(const Dataset& data);
/// Makes a model of filters without layers (ModelSpec::blocks is 0), fitted to the training part. Throws
/// Error(invalid_argument) unless the data are labelled sequences.
Model fit_filters(const Dataset& data, std::uint64_t seed = 0, const Execution& execution = {});
/// Fits the classifier of a model's filters again, to the training and the hold-out part. Call it after the model was
/// scored. `shares` are those of add_filters(). Does nothing to a model without filters.
void refit_filters(Model& model, const Dataset& data, const FilterShares& shares, const Execution& execution = {});

/// Options of finish_training().
struct FinishOptions {
  bool shrink = true;      ///< For series: call shrink_correction().
  bool filters = true;     ///< For labelled sequences: call add_filters().
  std::uint64_t seed = 0;  ///< Seed of the filters.
};
/// Result of finish_training().
struct Finished {
  double share = 1.0;          ///< Result of shrink_correction().
  FilterShares filter_shares;  ///< Result of add_filters().
  bool filters = false;        ///< True if filters were added.
  bool changed = false;        ///< True if the outputs of the model have changed.

  /// Returns whether the layers contribute to the outputs of the model.
  bool layers_count() const { return share > 0.0 && filter_shares.layers > 0.0; }
};
/// Returns text that says how much the parts of a model count: "the linear forecast alone: ..."; empty if the layers
/// count fully. `trained`: whether the layers were trained.
std::string describe_weight(const Finished& finished, bool trained = true);
/// Fits, after training and before the final score, the parts that need the hold-out set. For series:
/// shrink_correction(), choose_own_forecasts() and fit_error_distribution(). For labelled sequences: add_filters().
/// An error, such as Error(interrupted) of a Stoppable (stop.h), leaves the model as it was.
Finished finish_training(Model& model, const Dataset& data, const FinishOptions& options = {},
                         const Execution& execution = {});
/// Fits, after the final score, the closed-form parts of a model again to all rows: refit_autoregression(),
/// refit_own_forecasts() and refit_filters().
void refit(Model& model, const Dataset& data, const Finished& finished, const Execution& execution = {});

/// Returns the default architecture for a dataset. `cell`: name of the cell; empty: the default one. `device`: where
/// the model will be trained; for texts, a GPU gets a larger model. Does not set `from_last`, which depends on how the
/// dataset was opened.
ModelSpec suggest_spec(const Dataset& data, std::string_view cell = {}, Device device = {});
/// Returns the default training options for a dataset: batch size, limits, validation, early stopping, `keep_best`, and
/// the precision on `device` (`execution`). With early stopping a run may end before its limits. The dataset is left
/// unchanged.
TrainOptions suggest_options(Dataset& data, Device device = {});
/// Returns the options to resume the run of a checkpoint, possibly on another device: batch sizes and limits are those
/// of the first run. Throws Error: incompatible if the file is a model and not a checkpoint; bad_input if it is
/// damaged.
TrainOptions suggest_resumed(const std::string& checkpoint, Dataset& data, Device device = {});

/// Returns the learning rate of the step that completes `fraction` of a run, 0 to 1. The rates that a plateau or an
/// unstable run lower are not in it.
double learning_rate_at(const TrainOptions& options, double fraction);

/// Returns the scores of a model on the validation part of a dataset. Uses only `batch`, `length`, `loss`,
/// `validation_batches` and `execution` of the options.
Evaluation evaluate(const Model& model, const Dataset& data, const TrainOptions& options);
/// Fills `example` with the held-out batch `i` that evaluate() reads for this model. Returns false and leaves it
/// unchanged if there is no such batch.
bool held_out_batch(const Model& model, const Dataset& data, Index i, Index rows, Index steps, Example& example);

}  // namespace penstock
