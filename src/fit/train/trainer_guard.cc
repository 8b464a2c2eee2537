// Actions of a run when its guard finds trouble.

#include <algorithm>
#include <cmath>
#include <utility>

#include "base/check.h"
#include "plan/cell_table.h"
#include "train/loss_scale.h"
#include "train/trainer.h"

namespace penstock::training {

namespace {

StepState step_state_of(const RunState& state, bool scaled) {
  StepState step =
      ops::first_step_state(scaled ? static_cast<float>(state.loss_scale.value_or(first_loss_scale)) : 1.0f);
  step.step = state.step;
  step.updates = state.updates;
  step.scored = state.scored;
  step.skipped = state.skipped;
  step.skipped_in_a_row = state.skipped_in_a_row;
  step.good_steps = state.good_steps;
  return step;
}

/// Returns what to try about the network of a model.
Message network_remedy(const ModelSpec& spec) {
  const plan::CellTraits& cell = plan::cell_traits(spec.cell);
  if (!spec.end_norms) return {"norms around all layers: ", the_option("norms", "all")};
  if (cell.info.gates == 1) return {"a cell with gates: ", the_option("cell", "gru")};
  if (cell.info.scan) return {};
  return {"other initial weights: ", the_option("initial_weights", "orthogonal")};
}

}  // namespace

GuardOptions guard_options(const TrainOptions& options, Loss loss, const Model::Impl& model) {
  const plan::CellTraits& cell = plan::cell_traits(model.spec.cell);
  GuardOptions result;
  result.rollbacks = options.rollbacks;
  result.learning_rate = options.learning_rate;
  result.clip = options.clip;
  // Values of a series are scaled to about 1.
  result.untrained_loss = loss == Loss::cross_entropy ? std::log(static_cast<double>(model.data.output_size())) : 1.0;
  result.bounded = !cell.info.scan && !cell.info.has_kink && cell.custom == nullptr;
  result.network_remedy = network_remedy(model.spec);
  return result;
}

void Trainer::make_runner() {
  runner_.reset();  // its memory first
  TrainOptions options = options_;
  options.learning_rate *= guard_.state().rate_factor * state_.plateau.factor;
  // A plateau's rate does not fall to an end by itself.
  if (options.schedule == Schedule::plateau && stopping_.cooling()) options.schedule = Schedule::cosine;
  const bool scaled = options_.execution.precision == Precision::f16;
  runner_ =
      std::make_unique<StepRunner>(model_, training_shape(options, loss_, data_.training_steps()), options_.execution,
                                   optimizer_, step_state_of(state_, scaled), state_.carried, state_.carried_rows);
}

void Trainer::pause_runner() {
  handle_all();
  runner_->synchronize();
  state_.carried = runner_->carried();
  state_.carried_rows = runner_->carried_rows();
}

void Trainer::renew_runner() {
  pause_runner();
  make_runner();
}

void Trainer::remark(const Message& text) {
  result_.last.warning = text;
  metrics_.train(result_.last, loss_);
  warn_of(text);
}

void Trainer::act_on_trouble() {
  if (trouble_) return roll_back();
  if (guard_.confirm(submitted_)) std::swap(state_.good, state_.pending);
  if (guard_.raise_rate(submitted_)) renew_runner();
  if (guard_.state_due(submitted_)) {
    handle_all();
    if (!trouble_) keep_state();
  }
  if (trouble_) roll_back();
}

void Trainer::keep_state() {
  runner_->synchronize();
  GoodState& state = guard_.keep(submitted_) ? state_.good : state_.pending;
  state.updates = state_.updates;
  state.good_steps = state_.good_steps;
  state.loss_scale = state_.loss_scale;
  const auto values = model_.parameters->values();
  state.slots.resize(optimizer_.slots.size() + 1);  // assigned to, since new memory costs more than the copy
  state.slots[0].name = weights_name;
  state.slots[0].values.assign(values.begin(), values.end());
  for (std::size_t i = 0; i < optimizer_.slots.size(); ++i) state.slots[i + 1] = optimizer_.slots[i];
}

void Trainer::roll_back() {
  // Steps on their way started from the same weights.
  while (const std::optional<StepResult> result = runner_->take(true)) count(*result);
  runner_->synchronize();
  const Trouble trouble = *trouble_;
  trouble_.reset();
  const GoodState& good = state_.good;
  std::ranges::copy(good.slots[0].values, model_.parameters->values().begin());
  model_.parameters->changed();
  for (std::size_t i = 0; i < optimizer_.slots.size(); ++i) optimizer_.slots[i].values = good.slots[i + 1].values;
  state_.updates = good.updates;
  state_.good_steps = good.good_steps;
  state_.loss_scale = good.loss_scale;
  state_.carried.clear();  // the state behind the passed batches belongs to other weights
  state_.carried_rows = 0;
  reported_loss_ = {};
  guard_.rolled_back(trouble, submitted_);
  make_runner();
  result_.last.step = state_.step;
  if (guard_.exhausted()) {
    result_.gave_up = guard_.describe_end(trouble);
    return;
  }
  result_.last.rollbacks = guard_.state().rollbacks;
  remark(guard_.describe(trouble));
}

}  // namespace penstock::training
