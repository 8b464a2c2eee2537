#include "train/trainer.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

#include "base/check.h"
#include "base/counter_random.h"
#include "ops/elementwise.h"
#include "train/batch.h"
#include "train/evaluate.h"
#include "train/schedule.h"
#include "train/train_options.h"

namespace penstock {

namespace training {

namespace {

constexpr double default_epochs = 10.0;
// Below this share of the last block's gradient, the first block learns nothing in any reasonable time.
constexpr double vanishing_ratio = 1e-4;
// Batches have one shape, or two where the last of a pass is shorter.
constexpr std::size_t kept_workspaces = 2;

TrainOptions with_default_limit(TrainOptions options) {
  if (options.max_steps == 0 && options.max_seconds == 0.0 && options.max_epochs == 0.0) {
    options.max_epochs = default_epochs;
  }
  return options;
}

/// Steps of the batch that exist.
Index places(const Example& example) {
  if (example.lengths.empty()) return example.rows * example.steps;
  return std::accumulate(example.lengths.begin(), example.lengths.end(), Index{0});
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
      optimizer_(make_optimizer(options, model.parameters->layout())),
      metrics_("", false) {
  if (resume) {
    state_ = load_checkpoint(options.checkpoint_path, model, *optimizer_, data, identity_);
    seconds_before_ = state_.seconds;
  }
  metrics_ = MetricsLog(options.metrics_path, resume);
  if (resume) metrics_.resume(state_.step);
  gradients_.assign(static_cast<std::size_t>(model_.parameters->layout().size()), 0.0f);
  watched_.assign(static_cast<std::size_t>(2 * model_.spec.blocks), 0.0);
}

double Trainer::seconds() const {
  return seconds_before_ + std::chrono::duration<double>(std::chrono::steady_clock::now() - started_).count();
}

double Trainer::epoch() const {
  const Index steps = data_.training_steps();
  return steps > 0 ? static_cast<double>(state_.scored) / static_cast<double>(steps) : 0.0;
}

double Trainer::fraction(Index steps, double seconds) const {
  double result = 0.0;
  if (options_.max_steps > 0) {
    result = std::max(result, static_cast<double>(steps) / static_cast<double>(options_.max_steps));
  }
  if (options_.max_seconds > 0.0) result = std::max(result, seconds / options_.max_seconds);
  if (options_.max_epochs > 0.0) result = std::max(result, epoch() / options_.max_epochs);
  return std::min(result, 1.0);
}

graph::Workspace& Trainer::workspace() {
  ops::Target target = target_of(example_, options_.execution);
  target.training = true;
  const auto fits = [&](const std::unique_ptr<graph::Workspace>& held) {
    const ops::Target& of = held->program().target();
    return of.rows == target.rows && of.steps == target.steps && of.lengths == target.lengths &&
           of.reset == target.reset;
  };
  const auto found = std::ranges::find_if(workspaces_, fits);
  if (found != workspaces_.end()) {
    std::rotate(workspaces_.begin(), found, found + 1);
  } else {
    const std::shared_ptr<graph::Weights>& weights = model_.parameters->weights();
    if (workspaces_.size() == kept_workspaces) workspaces_.pop_back();
    workspaces_.insert(workspaces_.begin(),
                       std::make_unique<graph::Workspace>(nn::training_program(model_.spec, model_.data, target),
                                                          weights->shared_queue()));
    workspaces_.front()->bind(weights);
  }
  graph::Workspace& workspace = *workspaces_.front();
  const Index positions = target.positions();
  outputs_.resize(static_cast<std::size_t>(positions * model_.outputs()));
  doutputs_.resize(outputs_.size());
  const auto parts = static_cast<std::size_t>(ops::square_parts(static_cast<Index>(gradients_.size())));
  scratch_.resize(std::max(ops::LossScratch::bytes(positions) / sizeof(double) + 1, parts));
  bind_input(example_, workspace);
  workspace.bind(graph::Home::outputs, outputs_.data());
  workspace.bind(graph::Home::doutputs, doutputs_.data());
  workspace.bind(graph::Home::gradients, gradients_.data());
  workspace.bind(graph::Home::state_in, start_state_.data());
  workspace.bind(graph::Home::state_out, next_state_.data());
  workspace.bind(graph::Home::status, watched_.data());
  return workspace;
}

bool Trainer::forward(graph::Workspace& workspace, const ops::Call& call, Outcome& outcome) {
  workspace.refresh(call);
  workspace.run(graph::Phase::forward, call);
  const auto finite = [&](const std::vector<float>& values) {
    return ops::all_finite(call.threads, static_cast<Index>(values.size()), values.data());
  };
  outcome.loss = compute_loss(loss_, example_, options_.execution, model_.outputs(), outputs_.data(), doutputs_.data(),
                              scratch_.data());
  outcome.scored = outcome.loss.scored;
  if (!finite(outputs_) || !finite(next_state_)) {
    outcome.broken = "forward output";
  } else if (!std::isfinite(outcome.loss.mean())) {
    outcome.broken = "loss";
  }
  return outcome.broken == nullptr;
}

bool Trainer::backward(graph::Workspace& workspace, const ops::Call& call, Outcome& outcome) {
  workspace.run(graph::Phase::backward, call);
  const double squares =
      ops::sum_of_squares(call.threads, static_cast<Index>(gradients_.size()), gradients_.data(), scratch_.data());
  // Squares beyond float would make the second moment infinite, and with it the weight immovable for good.
  if (!(squares <= static_cast<double>(std::numeric_limits<float>::max()))) {
    outcome.broken = "gradient";
    return false;
  }
  outcome.gradient_norm = std::sqrt(squares);
  outcome.clipped_norm = options_.clip > 0.0 ? std::min(outcome.gradient_norm, options_.clip) : outcome.gradient_norm;
  return true;
}

Trainer::Outcome Trainer::train_batch() {
  data_.next(options_.batch, options_.length, example_);
  check_example(example_, model_.data);
  start_state(example_, options_.carry_state, state_.carried_rows, state_.carried, model_.state_size, start_state_);
  next_state_.resize(start_state_.size());
  const ops::Call call{.batch = batch_of(example_),
                       .threads = options_.execution.threads,
                       .seed = counter_random::seed_of_step(options_.seed, static_cast<counter_random::Word>(state_.step))};
  graph::Workspace& place = workspace();
  Outcome outcome;
  outcome.learning_rate = scheduled_rate(options_, fraction(state_.step + 1, seconds()));
  if (!forward(place, call, outcome)) return outcome;
  if (outcome.scored > 0) {
    if (!backward(place, call, outcome)) return outcome;
    const double scale = outcome.gradient_norm > 0.0 ? outcome.clipped_norm / outcome.gradient_norm : 1.0;
    optimizer_->update(*model_.parameters, gradients_, outcome.learning_rate, scale, options_.execution);
  }
  std::swap(state_.carried, next_state_);
  state_.carried_rows = example_.rows;
  return outcome;
}

void Trainer::count(const Outcome& outcome) {
  ++state_.step;
  state_.scored += outcome.scored;
  reported_places_ += places(example_);
  if (outcome.broken) {
    ++state_.skipped;
    ++state_.skipped_in_a_row;
  } else {
    state_.skipped_in_a_row = 0;
    reported_loss_ += outcome.loss;
  }
}

double Trainer::gradient_norm_of_block(Index block) {
  double squares = 0.0;
  for (const nn::ParameterEntry& entry : model_.parameters->layout().entries()) {
    if (entry.block != block) continue;
    squares +=
        ops::sum_of_squares(options_.execution.threads, entry.size, gradients_.data() + entry.offset, scratch_.data());
  }
  return std::sqrt(squares);
}

double Trainer::first_gradient_ratio() {
  const double last = gradient_norm_of_block(model_.spec.blocks - 1);
  return last > 0.0 ? gradient_norm_of_block(0) / last : 1.0;
}

double Trainer::saturated() const {
  double found = 0.0, total = 0.0;
  for (std::size_t i = 0; i < watched_.size(); i += 2) found += watched_[i], total += watched_[i + 1];
  return total > 0.0 ? found / total : 0.0;
}

std::string Trainer::describe_skip(const Outcome& outcome) const {
  return fmt::format("step {} skipped: the {} was not finite ({} in a row, giving up after {})", state_.step,
                     outcome.broken, state_.skipped_in_a_row, options_.give_up_after);
}

void Trainer::report(const Outcome& outcome, double seconds) {
  Progress& progress = result_.last;
  progress.step = state_.step;
  progress.seconds = seconds;
  progress.fraction = fraction(state_.step, seconds);
  progress.seconds_left = progress.fraction > 0.0 ? seconds * (1.0 - progress.fraction) / progress.fraction : 0.0;
  progress.epoch = epoch();
  if (reported_loss_.weight > 0.0) {
    progress.loss = reported_loss_.mean();
    progress.accuracy = static_cast<double>(reported_loss_.correct) / static_cast<double>(reported_loss_.scored);
  }
  progress.learning_rate = outcome.learning_rate;
  const double interval = seconds - last_report_;
  if (interval > 0.0) progress.steps_per_second = static_cast<double>(reported_places_) / interval;
  progress.skipped = state_.skipped;
  progress.warning.clear();
  if (outcome.broken) {
    progress.warning = describe_skip(outcome);
  } else if (outcome.scored > 0) {
    progress.gradient_norm = outcome.gradient_norm;
    progress.clipped_norm = outcome.clipped_norm;
    progress.saturated = saturated();
    progress.first_gradient_ratio = first_gradient_ratio();
    if (progress.first_gradient_ratio < vanishing_ratio) {
      progress.warning =
          fmt::format("step {}: the gradient vanishes: in the first block its norm is {:.1e} of the last", state_.step,
                      progress.first_gradient_ratio);
    }
  }
  metrics_.train(progress, loss_);
  if (callbacks_.progress) callbacks_.progress(progress);
  reported_loss_ = {};
  reported_places_ = 0;
  last_report_ = seconds;
}

void Trainer::give_up_if_hopeless(const Outcome& outcome) const {
  if (!outcome.broken || state_.skipped_in_a_row < options_.give_up_after) return;
  fail(ErrorCode::numerical,
       "gave up at step {}: the {} was not finite in {} steps in a row; lower learning_rate or check the data",
       state_.step, outcome.broken, state_.skipped_in_a_row);
}

void Trainer::validate(double seconds, Index most_batches) {
  TrainOptions options = options_;
  options.validation_batches = most_batches;
  result_.validation = evaluate_model(model_, data_, options, loss_);
  metrics_.validation(result_.last, loss_, *result_.validation);
  if (callbacks_.validation) callbacks_.validation(result_.last, *result_.validation);
  last_validation_ = seconds;
}

void Trainer::save() {
  if (options_.checkpoint_path.empty()) return;
  state_.seconds = seconds();
  save_checkpoint(options_.checkpoint_path, model_, *optimizer_, state_, data_, identity_);
  last_checkpoint_ = state_.seconds;
}

TrainResult Trainer::run() {
  started_ = std::chrono::steady_clock::now();
  last_report_ = last_validation_ = last_checkpoint_ = seconds_before_;
  result_.last.step = state_.step;
  result_.last.seconds = seconds_before_;
  result_.last.skipped = state_.skipped;
  bool first = true;
  while (!result_.interrupted && fraction(state_.step, seconds()) < 1.0) {
    const Outcome outcome = train_batch();
    count(outcome);
    const double now = seconds();
    result_.interrupted = callbacks_.stop && callbacks_.stop();
    const bool last = result_.interrupted || fraction(state_.step, now) >= 1.0;
    if (first || last || outcome.broken || now - last_report_ >= options_.log_every) report(outcome, now);
    first = false;
    give_up_if_hopeless(outcome);
    if (!last && options_.validate_every > 0.0 && now - last_validation_ >= options_.validate_every) {
      validate(now, options_.validation_batches);
    }
    if (!last && now - last_checkpoint_ >= options_.checkpoint_every) save();
  }
  save();
  if (!result_.interrupted) validate(seconds(), 0);  // the figure that is quoted is of all that was held out
  metrics_.final(result_, loss_);
  return result_;
}

}  // namespace training

TrainResult train(Model& model, Dataset& data, const TrainOptions& options, const TrainCallbacks& callbacks,
                  bool resume) {
  training::check_options(options, data);
  training::check_same_data(model.impl().data, data.description());
  require(!resume || !options.checkpoint_path.empty(), "checkpoint_path must be given to resume");
  return training::Trainer(model.impl(), data, options, callbacks, resume).run();
}

}  // namespace penstock
