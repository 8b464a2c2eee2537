#include "train/trainer.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <span>

#include "base/check.h"
#include "base/plural.h"
#include "data/batch.h"
#include "data/labelled/labelled_passes.h"
#include "nn/enough_memory.h"
#include "ops/pointwise/elementwise.h"
#include "penstock/stop.h"
#include "penstock/train/fit.h"
#include "train/check_options.h"

namespace penstock {

namespace training {

namespace {

constexpr double default_epochs = 10.0;
// Below this share of the last block's gradient, the first block learns nothing in any reasonable time.
constexpr double vanishing_ratio = 1e-4;

TrainOptions with_default_limit(TrainOptions options) {
  if (options.max_steps == 0 && options.max_seconds == 0.0 && options.max_epochs == 0.0) {
    options.max_epochs = default_epochs;
  }
  return options;
}

/// Steps of the batch that exist.
Index existing_positions(const Example& example) {
  if (example.lengths.empty()) return example.rows * example.steps;
  return std::accumulate(example.lengths.begin(), example.lengths.end(), Index{0});
}

double mean_of(const LossSums& loss) { return loss.weight > 0.0 ? loss.sum / loss.weight : 0.0; }

/// Returns the name of the first value that was not finite, or null.
const char* broken_by(const StepState& state) {
  if ((state.broken & kBrokenOutput) != 0) return "forward output";
  if ((state.broken & kBrokenLoss) != 0) return "loss";
  if ((state.broken & kBrokenGradient) != 0) return "gradient";
  return nullptr;
}

/// The norm of the first block's gradient over that of the last, or, of a single block, over that of the head. Beside a
/// linear forecast the head starts at zero and passes nothing on at first, so that a single block has no baseline: 1.
/// 0 if there is a loss, and no gradient at all or none in both places.
double first_gradient_ratio(const ModelSpec& spec, const StepState& state) {
  if (state.gradient_norm == 0.0) return state.loss.sum > 0.0 ? 0.0 : 1.0;
  if (spec.blocks == 1 && spec.corrects_branch()) return 1.0;
  if (state.last_squares > 0.0) return std::sqrt(state.first_squares / state.last_squares);
  return state.first_squares > 0.0 || spec.corrects_branch() ? 1.0 : 0.0;
}

/// Returns whether the step was skipped because of its numbers, and not because the loss scale was too large.
bool is_skipped(const StepState& state) { return state.broken != 0 && state.last_skipped == state.step; }

double saturated_share(const std::vector<std::int64_t>& counts) {
  double saturated = 0.0, watched = 0.0;
  for (std::size_t i = 0; i < counts.size(); i += 2) {
    saturated += static_cast<double>(counts[i]);
    watched += static_cast<double>(counts[i + 1]);
  }
  return watched > 0.0 ? saturated / watched : 0.0;
}

}  // namespace

Trainer::Trainer(Model::Impl& model, Dataset& data, const TrainOptions& options, const TrainCallbacks& callbacks,
                 bool resume)
    : model_(model),
      data_(data),
      options_(with_default_limit(options)),
      callbacks_(callbacks),
      loss_(resolve_loss(options.loss, data.description().task)),
      identity_(identity(options, data.description().task)),
      optimizer_(options, model.parameters->layout()),
      metrics_("", "", false),
      stopping_(options_, {}),
      guard_(guard_options(options_, loss_, model)) {
  if (!model.origin.empty()) identity_["origin"] = model.origin;
  if (options.average > 0.0) std::ranges::copy(model.parameters->values(), optimizer_.slots.back().values.begin());
  if (resume) {
    state_ = load_checkpoint(options.checkpoint_path, model, optimizer_, data, identity_);
    seconds_before_ = state_.seconds;
    stopping_ = Stopping(options_, state_.history);
    guard_ = Guard(guard_options(options_, loss_, model), std::move(state_.guard));
  }
  metrics_ = MetricsLog(options.metrics_path, options.tensorboard_path, resume);
  metrics_.run(model, identity_, options.metrics_note);
  if (resume) metrics_.resume(state_.step);
  submitted_ = state_.step;
  submitted_scored_ = state_.scored;
  make_runner();
}

double Trainer::seconds() const {
  return seconds_before_ + std::chrono::duration<double>(std::chrono::steady_clock::now() - started_).count();
}

double Trainer::epoch(Index scored) const {
  const Index steps = data_.training_steps();
  return steps > 0 ? static_cast<double>(scored) / static_cast<double>(steps) : 0.0;
}

double Trainer::time_fraction(double seconds) const {
  const double time = options_.max_seconds > 0.0 ? seconds / options_.max_seconds : 0.0;
  return std::max(time, stopping_.fraction(submitted_));
}

double Trainer::fraction(Index steps, Index scored, double seconds) const {
  double result = std::max(time_fraction(seconds), stopping_.fraction(steps));
  if (options_.max_steps > 0) {
    result = std::max(result, static_cast<double>(steps) / static_cast<double>(options_.max_steps));
  }
  if (options_.max_epochs > 0.0) result = std::max(result, epoch(scored) / options_.max_epochs);
  return std::min(result, 1.0);
}

void Trainer::submit() {
  data_.next(options_.batch, options_.length, example_);
  check_example(example_, model_.data);
  StepResult expected;
  expected.positions = existing_positions(example_);
  runner_->submit(example_, options_.carry_state, time_fraction(seconds()), std::move(expected));
  ++submitted_;
  submitted_scored_ += scored_positions(example_);
}

void Trainer::count(const StepResult& result) {
  const StepState& state = result.state;
  state_.step = state.step;
  state_.updates = state.updates;
  state_.scored = state.scored;
  state_.skipped = state.skipped;
  state_.skipped_in_a_row = state.skipped_in_a_row;
  if (options_.execution.precision == Precision::f16) state_.loss_scale = static_cast<double>(state.loss_scale);
  state_.good_steps = state.good_steps;
  reported_positions_ += result.positions;
  ++reported_steps_;
  if (state.broken == 0) ops::add_loss(reported_loss_, state.loss);
}

void Trainer::report(const StepResult& result, double seconds) {
  const StepState& state = result.state;
  Progress& progress = result_.last;
  progress.step = state.step;
  progress.seconds = seconds;
  progress.fraction = fraction(state.step, state.scored, seconds);
  progress.seconds_left = progress.fraction > 0.0 ? seconds * (1.0 - progress.fraction) / progress.fraction : 0.0;
  progress.epoch = epoch(state.scored);
  if (reported_loss_.weight > 0.0) {
    progress.loss = mean_of(reported_loss_);
    progress.accuracy = static_cast<double>(reported_loss_.correct) / static_cast<double>(reported_loss_.scored);
  }
  progress.learning_rate = state.learning_rate;
  const double interval = seconds - last_report_;
  if (interval > 0.0) {
    progress.steps_per_second = static_cast<double>(reported_steps_) / interval;
    progress.positions_per_second = static_cast<double>(reported_positions_) / interval;
  }
  progress.skipped = state.skipped;
  progress.warning = {};
  if (is_skipped(state)) {
    progress.warning = fmt::format("step {} skipped: the {} was not finite ({} in a row, giving up after {})",
                                   state.step, broken_by(state), state.skipped_in_a_row, options_.give_up_after);
  } else if (state.apply != 0) {
    progress.gradient_norm = state.gradient_norm;
    progress.clipped_norm = state.clipped_norm;
    progress.saturated = saturated_share(result.saturation);
    progress.first_gradient_ratio = first_gradient_ratio(model_.spec, state);
    if (progress.first_gradient_ratio < vanishing_ratio) {
      const double ratio = progress.first_gradient_ratio;
      const char* const baseline = model_.spec.blocks > 1 ? "the last" : "the head's";
      progress.warning =
          fmt::format("step {}: the gradient vanishes: in the first block its norm is {}; try ", state.step,
                      state.last_squares > 0.0 ? fmt::format("{:.1e} of {}", ratio, baseline) : "0");
      progress.warning += guard_.remedy(true);
    }
  }
  metrics_.train(progress, loss_);
  if (callbacks_.progress) callbacks_.progress(progress);
  reported_loss_ = {};
  reported_positions_ = reported_steps_ = 0;
  last_report_ = seconds;
  check_metrics();
}

void Trainer::watch(const StepResult& result) {
  const StepState& state = result.state;
  const bool judged = state.broken == 0 ? state.loss.weight > 0.0 : is_skipped(state);
  if (!judged) return;
  const StepSeen seen{.step = state.step,
                      .finite = state.broken == 0,
                      .skipped_in_a_row = state.skipped_in_a_row,
                      .loss = mean_of(state.loss),
                      .gradient_norm = state.gradient_norm};
  if (!trouble_) trouble_ = guard_.note(seen);
  const Message warning = guard_.warning(seen, saturated_share(result.saturation));
  if (!warning.empty()) remark(warning);
}

void Trainer::give_up_if_hopeless(const StepResult& result, bool last) const {
  const StepState& state = result.state;
  const bool none_was_finite = last && state.skipped_in_a_row >= state.step;
  if (!is_skipped(state) || (state.skipped_in_a_row < options_.give_up_after && !none_was_finite)) return;
  fail_with(ErrorCode::numerical, {"lower ", the_option("learning_rate"), " or check the data"},
            "gave up at step {}: the {} was not finite in {} in a row", state.step, broken_by(state),
            counted(state.skipped_in_a_row, "step"));
}

void Trainer::swap_average() {
  if (options_.average == 0.0) return;
  std::ranges::swap_ranges(optimizer_.slots.back().values, model_.parameters->values());
  model_.parameters->changed();
  model_.weights_on(options_.execution.device);
}

Evaluation Trainer::evaluation(Index most_batches) {
  TrainOptions options = options_;
  options.validation_batches = most_batches;
  if (options_.average > 0.0) runner_->synchronize();
  swap_average();
  try {
    const Evaluation result = evaluate_checked(model_, data_, options);
    swap_average();
    return result;
  } catch (...) {
    swap_average();
    throw;
  }
}

void Trainer::validate(double seconds, Index most_batches) {
  result_.validation = evaluation(most_batches);
  Progress now = result_.last;  // the last report may be some steps ago
  now.step = state_.step;
  now.seconds = seconds;
  now.fraction = fraction(state_.step, state_.scored, seconds);
  now.epoch = epoch(state_.scored);
  metrics_.validation(now, loss_, *result_.validation);
  if (callbacks_.validation) callbacks_.validation(now, *result_.validation);
  last_validation_ = seconds;
  check_metrics();
}

void Trainer::judge(const Evaluation& evaluation, bool by_steps) {
  if (evaluation.scored == 0) return;  // without a hold-out set there is no loss
  const bool may_lower = by_steps && options_.schedule == Schedule::plateau && !stopping_.cooling();
  if (may_lower && state_.plateau.note(evaluation.loss)) renew_runner();
  if (!options_.keep_best && options_.patience == 0) return;
  const bool better = stopping_.note(evaluation.loss, submitted_, by_steps);
  if (better) {
    runner_->synchronize();
    const std::span<const float> values = model_.parameters->values();
    const std::span answering =
        options_.average > 0.0 ? std::span<const float>(optimizer_.slots.back().values) : values;
    state_.best.assign(answering.begin(), answering.end());
  }
  if (by_steps && stopping_.exhausted()) begin_cooldown();
  state_.history = stopping_.history();
}

void Trainer::begin_cooldown() {
  const double begin = fraction(submitted_, submitted_scored_, seconds());
  pause_runner();
  restore_best();
  stopping_.begin_cooldown(submitted_, begin);
  make_runner();
  guard_.forget_states();
  if (guard_.active()) keep_state();
}

void Trainer::restore_best() {
  if (state_.best.empty()) return;
  std::ranges::copy(state_.best, model_.parameters->values().begin());
  if (options_.average > 0.0) optimizer_.slots.back().values = state_.best;
  model_.parameters->changed();
  model_.weights_on(options_.execution.device);
}

void Trainer::validate_if_due() {
  const bool by_steps = stopping_.due(submitted_);
  const bool by_time = options_.validate_every > 0.0 && seconds() - last_validation_ >= options_.validate_every;
  if (!by_steps && !by_time) return;
  handle_all();
  validate(seconds(), options_.validation_batches);
  judge(*result_.validation, by_steps);
}

void Trainer::handle_all() {
  while (const std::optional<StepResult> result = runner_->take(true)) handle(*result, false);
}

void Trainer::save() {
  if (options_.checkpoint_path.empty()) return;
  handle_all();
  if (trouble_) roll_back();
  pause_runner();
  state_.seconds = seconds();
  try {
    save_checkpoint(options_.checkpoint_path, model_, optimizer_, state_, guard_.state(), data_, identity_);
    last_checkpoint_ = state_.seconds;
    result_.checkpoint_error.clear();
  } catch (const Error& error) {
    if (error.code() != ErrorCode::io_failure) throw;
    // A disk that is full now may have room again; hours of training must not depend on it.
    constexpr double retry_after = 10.0;
    last_checkpoint_ = state_.seconds - std::max(0.0, options_.checkpoint_every - retry_after);
    result_.checkpoint_error = error.what();
    warn_of("no checkpoint: " + result_.checkpoint_error);
  }
}

void Trainer::warn_of(const Message& text) {
  result_.last.warning = text;
  if (callbacks_.progress) callbacks_.progress(result_.last);
  result_.last.warning = {};
}

void Trainer::check_metrics() {
  const std::string error = metrics_.take_error();
  if (error.empty()) return;
  result_.metrics_error = error;
  warn_of(error + "; training continues without them");
}

bool Trainer::report_is_due(const StepResult& result, double now) const {
  if (is_skipped(result.state) || now - last_report_ >= options_.log_every) return true;
  // For a run of a second, the kept curve would otherwise have two points.
  constexpr double share_of_run = 0.01;
  const bool kept = !options_.metrics_path.empty() || !options_.tensorboard_path.empty();
  return kept && fraction(result.state.step, result.state.scored, now) - result_.last.fraction >= share_of_run;
}

void Trainer::handle(const StepResult& result, bool last) {
  count(result);
  const double now = seconds();
  if (first_ || last || report_is_due(result, now)) report(result, now);
  first_ = false;
  give_up_if_hopeless(result, last);
  watch(result);
}

void Trainer::train() {
  if (guard_.state_due(submitted_) && !guard_.state().good) keep_state();
  while (!result_.interrupted && result_.gave_up.empty() && fraction(submitted_, submitted_scored_, seconds()) < 1.0) {
    submit();
    result_.interrupted = callbacks_.stop && callbacks_.stop();
    const double now = seconds();
    const bool last = result_.interrupted || fraction(submitted_, submitted_scored_, now) >= 1.0;
    while (!last) {
      const std::optional<StepResult> result = runner_->take(false);
      if (!result) break;
      handle(*result, false);
    }
    if (!last) act_on_trouble();
    if (!result_.gave_up.empty()) break;
    if (!last) validate_if_due();
    if (!last && now - last_checkpoint_ >= options_.checkpoint_every) save();
  }
  std::optional<StepResult> result = runner_->take(true);
  while (result) {
    std::optional<StepResult> next = runner_->take(true);
    handle(*result, !next);
    result = std::move(next);
  }
  if (trouble_) roll_back();
}

void Trainer::finish() {
  result_.model_step = state_.step;
  if (options_.keep_best && stopping_.history().known) {
    // The last weights are compared by the same held-out batches.
    unless_interrupted([&] { judge(evaluation(options_.validation_batches), false); });
    restore_best();
    result_.model_step = stopping_.history().best_step;
  } else {
    swap_average();
  }
  options_.average = 0.0;                               // the model answers by now
  unless_interrupted([&] { validate(seconds(), 0); });  // the figure that is quoted is of all that was held out
  result_.stopped_early = stopping_.cooling() && !result_.interrupted;
  if (result_.interrupted || !result_.gave_up.empty() || result_.validation->scored == 0) return;
  if (std::isfinite(result_.validation->loss)) return;
  result_.gave_up = Message("the loss of the trained model on held-out data is not finite; try ") + guard_.remedy();
}

void Trainer::unless_interrupted(const std::function<void()>& work) {
  if (result_.interrupted) return;
  const Stoppable on_demand(callbacks_.stop);
  result_.interrupted = !completes(work);
}

TrainResult Trainer::run() {
  started_ = std::chrono::steady_clock::now();
  last_report_ = last_validation_ = last_checkpoint_ = seconds_before_;
  result_.last.step = state_.step;
  result_.last.seconds = seconds_before_;
  result_.last.skipped = state_.skipped;
  result_.last.rollbacks = guard_.state().rollbacks;
  try {
    // A model that begins with a linear forecast, or with weights that were trained before, may be best as it is.
    const bool knows_something = model_.spec.corrects_branch() || !model_.origin.empty();
    if (state_.step == 0 && knows_something) judge(evaluation(options_.validation_batches), false);
    train();
    save();
  } catch (...) {
    runner_->synchronize();  // the model holds what was learnt
    throw;
  }
  runner_->synchronize();
  finish();
  metrics_.final(result_, loss_);
  check_metrics();
  return result_;
}

}  // namespace training

TrainResult train(Model& model, Dataset& data, const TrainOptions& options, const TrainCallbacks& callbacks,
                  bool resume) {
  training::check_options(options, data);
  check_outputs({}, training_outputs(options), "");
  require(model.spec().members == 1,
          "model must be a single one, not an ensemble of {}: its members are trained one by one",
          model.spec().members);
  require(model.spec().int8.empty(),
          "model must have no weights of int8, which cannot be trained: train the one that was quantised");
  require(!model.spec().branch || model.spec().corrects_branch(),
          "model must be one without filters, which are fitted once the layers are trained; "
          "continue_from() begins with its layers alone");
  training::check_same_data(model.impl().data, data.description());
  model.impl().data.series.forget_forecasts();  // of weights that are no more
  require_about(!resume || !options.checkpoint_path.empty(), "checkpoint_path", " must be given to resume");
  const auto* const whole = data.labelled_passes();
  const Index length = whole != nullptr ? whole->longest() : options.length;
  const auto bytes = [&] {
    const ModelMemory memory = model.memory(options.batch, length, options.execution);
    return memory.weights * static_cast<std::size_t>(1 + training::stores_of(options)) + memory.training;
  };
  const auto need = [&] {
    const bool halves = options.execution.device.is_cuda() && options.execution.precision == Precision::full;
    const Message shorter = whole != nullptr ? Message("do shorter sequences") : Message{"does ", the_option("length")};
    return nn::MemoryNeed{fmt::format("training with batches of {} x {}", options.batch, length), bytes,
                          Message{the_option("batch"), " lowers that, and so "} + shorter +
                              (halves ? ", and precision bf16 or f16 halves most of it" : "")};
  };
  // The longest sequence may come late in a run, and the system ends what takes too much without a word.
  const std::size_t left = whole != nullptr && !options.execution.device.is_cuda() ? free_memory() : 0;
  if (left > 0 && bytes() > left) {
    nn::fail_for_memory(options.execution.device, need(), fmt::format("{} MB of the host's are free", left >> 20));
  }
  return nn::with_enough_memory(options.execution.device, need, [&] {
    model.impl().detach_sessions();
    return training::Trainer(model.impl(), data, options, callbacks, resume).run();
  });
}

}  // namespace penstock
