#pragma once

#include <functional>
#include <optional>
#include <string>

#include "penstock/data.h"
#include "penstock/model.h"

namespace penstock {

enum class Loss { automatic, cross_entropy, mse, mae };
enum class Optimizer { adamw, sgd };

struct TrainOptions {
  // How long: the first limit that is reached ends the run.
  Index max_steps = 0;       ///< Batches, skipped ones included; 0: no limit.
  double max_seconds = 0.0;  ///< Wall time of training, without final validation; 0: no limit.
  double max_epochs = 0.0;   ///< Passes over the data; 0: no limit (10 if no limit is given at all).

  Index batch = 32;         ///< Rows B.
  Index length = 256;       ///< Steps T of one truncated back-propagation window.
  bool carry_state = true;  ///< Windows that continue each other pass their state on (no gradient flows back).

  Loss loss = Loss::automatic;  ///< cross_entropy for language and classify, mse for forecast.
  Optimizer optimizer = Optimizer::adamw;
  double learning_rate = 3e-3;
  double weight_decay = 0.01;  ///< On matrices only.
  double beta1 = 0.9, beta2 = 0.99, epsilon = 1e-8;
  double momentum = 0.9;     ///< sgd
  double warmup = 0.05;      ///< Fraction of the run with rising rate.
  double final_rate = 0.05;  ///< The cosine ends at this fraction of learning_rate.
  double clip = 1.0;         ///< Greatest global gradient norm; 0: never clip.
  Index give_up_after = 10;  ///< Skipped (non-finite) steps in a row before Error(numerical).

  double validate_every = 0.0;  ///< Seconds between validations; 0: at the end only.
  Index validate_steps = 0;     ///< Steps between validations, in addition to those; 0: none.
  Index patience = 0;      ///< Validations by steps without a lower loss, after which the run goes back to the best
                           ///< weights, brings the learning rate down in a few steps and ends; 0: never.
  bool keep_best = false;  ///< The model ends as the best validation found it; the checkpoint keeps the last one.
  Index validation_batches = 32;  ///< At most, during the run; 0: all. The last validation always scores all.
  /// Seconds between reports; 0: after every step. Skipped steps always report, and where metrics are written every
  /// hundredth of the run does.
  double log_every = 0.5;
  std::string metrics_path;        ///< JSON lines; empty: none.
  std::string metrics_note;        ///< JSON object: what their first record says besides what the run itself knows.
  std::string tensorboard_path;    ///< Folder for events that TensorBoard reads; empty: none.
  std::string checkpoint_path;     ///< Empty: none.
  double checkpoint_every = 30.0;  ///< Seconds; 0: after every step. Always at the end.
  std::uint64_t seed = 0;
  Execution execution;
};

/// What is known after an optimiser step (or a skipped one).
struct Progress {
  Index step = 0;
  double seconds = 0.0;
  double fraction = 0.0;  ///< Of the run, 0..1.
  double seconds_left = 0.0;
  double epoch = 0.0;
  double loss = 0.0;      ///< Mean over the steps scored since the last report, in nats or squared units.
  double accuracy = 0.0;  ///< Of the same steps, cross-entropy only.
  double learning_rate = 0.0;
  double gradient_norm = 0.0;         ///< Of the last step, before clipping.
  double clipped_norm = 0.0;          ///< After clipping.
  double steps_per_second = 0.0;      ///< Of the optimiser, since the last report.
  double positions_per_second = 0.0;  ///< Time steps x rows (bytes, CSV rows), since the last report.
  double saturated = 0.0;             ///< Fraction of recurrent outputs with |h| > 0.99.
  double first_gradient_ratio = 1.0;  ///< Gradient norm of the first block over that of the last: near 0 = vanishing.
  Index skipped = 0;                  ///< Non-finite steps so far.
  std::string warning;                ///< Non-empty when this step was skipped or gradients vanish; one line.
};

struct Evaluation {
  double loss = 0.0;
  double bits_per_step = 0.0;  ///< loss / ln 2, for cross-entropy: bits per byte of a text.
  double accuracy = 0.0;
  Index scored = 0;  ///< Number of scored steps.
};

struct TrainResult {
  Progress last;
  std::optional<Evaluation> validation;  ///< Of the weights that the model ends with.
  bool interrupted = false;
  bool stopped_early = false;  ///< By TrainOptions::patience.
  Index model_step = 0;        ///< The weights that the model ends with are those after this step.
  /// Why the last checkpoint could not be written; empty if it could. A failure during the run is a warning, and
  /// another attempt follows after ten seconds.
  std::string checkpoint_error;
  /// Why metrics or events were given up during the run, which is a warning; empty if they are complete.
  std::string metrics_error;
};

/// Called from the training thread.
struct TrainCallbacks {
  std::function<void(const Progress&)> progress;
  std::function<void(const Progress&, const Evaluation&)> validation;
  std::function<bool()> stop;  ///< True: save and return after the current step; ends the last validation at once.
};

/// Trains a model. If `resume` is true, checkpoint_path must exist and the run continues bit for bit: same weights as
/// if it had never stopped (with a limit in steps, on as many threads; wall-time limits are not reproducible). Limits,
/// paths, how often things are reported and the execution may differ from those of the run that is continued, nothing
/// else.
/// Throws Error(numerical) when it gives up, Error(incompatible) when the model was made for other data or the
/// checkpoint belongs to something else, Error(io_failure) when the files of metrics cannot be opened. Files that fail
/// during the run end nothing: TrainResult::checkpoint_error and metrics_error.
TrainResult train(Model& model, Dataset& data, const TrainOptions& options, const TrainCallbacks& callbacks = {},
                  bool resume = false);

/// Gives the spec of a model for a dataset the form of the linear forecast that this has fitted: ModelSpec::lags and
/// known_effects; 0 and false if there is none, or for a spec without from_last.
void take_autoregression(ModelSpec& spec, const Dataset& data);
/// Gives a model with ModelSpec::lags the linear forecast that the dataset has fitted. Throws Error(incompatible) if
/// the dataset has none of that form.
void fit_autoregression(Model& model, const Dataset& data);
/// The same with a linear forecast that is fitted to the held-out part, too: what a model gets once it has been scored,
/// because the latest rows say most about what follows. Does nothing to a model without lags.
void refit_autoregression(Model& model, const Dataset& data);

/// Reduces what the layers of a model with lags add to its linear forecast to the share of it, 0 to 1, that pays on the
/// held-out rows: what these cannot tell from chance becomes nothing. Returns the share; 1 for other models.
double shrink_correction(Model& model, const Dataset& data, const Execution& execution = {});

/// Whether the held-out rows of a series are too few to say what layers would add to its linear forecast, so that
/// shrink_correction() would leave none of what they have learnt: training them is of no use.
bool linear_stands_alone(const Dataset& data);

/// Gives a model of a series the spread of its forecasts (DataDescription::spread): how far they were off on the
/// held-out rows, and how far linear forecasts were in the training part. Does nothing for other data, or where nothing
/// is known.
void fit_spread(Model& model, const Dataset& data, const Execution& execution = {});

/// How much of what the layers of a model and its filters say counts, each 0 to 1.
struct FilterShares {
  double layers = 1.0;
  double filters = 0.0;
};

/// A trained model of labelled sequences with a bank of convolution filters beside its layers (ModelSpec::filters),
/// whose classifier is fitted in closed form to the training part. How much each counts is chosen by the held-out part;
/// where that is too small to say anything, the filters stand alone. Filters run where the model runs; they are fitted
/// on the CPU. Throws Error(invalid_argument) for other data, or for a model that has filters.
Model add_filters(const Model& model, const Dataset& data, FilterShares& shares, std::uint64_t seed = 0,
                  const Execution& execution = {});
/// Whether the held-out part of labelled sequences is too small to say what layers are worth, so that add_filters()
/// would leave none of what they have learnt: training them is of no use.
bool filters_stand_alone(const Dataset& data);
/// What is left then: a model of filters without layers (ModelSpec::blocks is 0), fitted to the training part. Throws
/// Error(invalid_argument) for other data than labelled sequences.
Model fit_filters(const Dataset& data, std::uint64_t seed = 0, const Execution& execution = {});
/// The classifier of the same filters, fitted to the held-out part, too: what a model gets once it has been scored.
/// Does nothing to a model without filters.
void refit_filters(Model& model, const Dataset& data, const FilterShares& shares, const Execution& execution = {});

/// What is done to a model once it is trained, and what came of it.
struct FinishOptions {
  bool shrink = true;      ///< Of a series: shrink_correction().
  bool filters = true;     ///< Of labelled sequences: add_filters().
  std::uint64_t seed = 0;  ///< Of the filters.
};
struct Finished {
  double share = 1.0;          ///< As shrink_correction() returns it.
  FilterShares filter_shares;  ///< As add_filters() chose them.
  bool filters = false;        ///< Whether there are any.
  bool changed = false;        ///< Whether the model says something else than before.

  /// Whether the layers have a part in what the model says.
  bool layers_count() const { return share > 0.0 && filter_shares.layers > 0.0; }
};
/// "the linear forecast alone: ...": what counts how much in a model, where that is not its layers in full; empty where
/// it is. `trained`: the layers are not as they were drawn.
std::string describe_weight(const Finished& finished, bool trained = true);
/// What follows training by the held-out part, before the model is scored: what the layers of a series model add is
/// reduced and the spread of its forecasts found; a model of labelled sequences gets filters. An error, such as
/// Error(interrupted) of a Stoppable (stop.h), leaves the model as it was.
Finished finish_training(Model& model, const Dataset& data, const FinishOptions& options = {},
                         const Execution& execution = {});
/// What follows the score: what was fitted in closed form is fitted again, to the held-out part, too.
void refit(Model& model, const Dataset& data, const Finished& finished, const Execution& execution = {});

/// The size and the kind of a model that suit a dataset when nothing else is said, or no more than its cell and where
/// it is trained: of a text, a GPU learns a larger one in the same time. `spec.from_last` is left to how the dataset
/// was opened.
ModelSpec suggest_spec(const Dataset& data, std::string_view cell = {}, Device device = {});
/// What suits a dataset when nothing else is said: batches, how many steps (enough for little data, too), how often to
/// validate, how patiently, which model to keep, and in which precision `device` multiplies (`execution`). Limits are
/// caps: a run ends before them where it stops to gain. The dataset is left as it was.
TrainOptions suggest_options(Dataset& data, Device device = {});
/// The same for a run that goes on from a checkpoint, maybe on another device: sizes of batches, and when it ends, are
/// those that it began with. Throws Error(incompatible) for a model, Error(bad_input) for a file that is damaged.
TrainOptions suggest_resumed(const std::string& checkpoint, Dataset& data, Device device = {});

/// Scores a model on the dataset's validation part.
Evaluation evaluate(const Model& model, const Dataset& data, const TrainOptions& options);

}  // namespace penstock
