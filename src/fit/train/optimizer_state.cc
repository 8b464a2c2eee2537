#include "train/optimizer_state.h"

#include "train/loss_scale.h"

namespace penstock {
namespace training {

namespace {

OptimizerKind kind_of(Optimizer optimizer) { return static_cast<OptimizerKind>(optimizer); }

}  // namespace

OptimizerState::OptimizerState(const TrainOptions& options, const nn::ParameterLayout& layout) {
  const std::vector<float> zeros(static_cast<std::size_t>(layout.size()), 0.0f);
  if (moments_of(kind_of(options.optimizer)) > 1) {
    slots = {{"first_moment", zeros}, {"second_moment", zeros}};
  } else {
    slots = {{"momentum", zeros}};
  }
  if (options.average > 0.0) slots.push_back({average_name, zeros});
}

Index stores_of(const TrainOptions& options) {
  return 1 + moments_of(kind_of(options.optimizer)) + (options.average > 0.0 ? 1 : 0);
}

LossKind kind_of(Loss resolved) { return static_cast<LossKind>(static_cast<int>(resolved) - 1); }

nn::TrainingShape training_shape(const TrainOptions& options, Loss loss, Index training_steps) {
  const OptimizerKind optimizer = kind_of(options.optimizer);
  const bool corrects = corrects_moments(optimizer);
  nn::TrainingShape shape;
  StepRules& rules = shape.rules;
  rules.learning_rate = options.learning_rate;
  rules.warmup = options.warmup;
  rules.final_rate = options.final_rate;
  rules.max_steps = static_cast<double>(options.max_steps);
  rules.max_scored = options.max_epochs * static_cast<double>(training_steps);
  rules.clip = options.clip;
  rules.weight_decay = options.weight_decay;
  rules.beta1 = corrects ? options.beta1 : 0.0;
  rules.beta2 = corrects ? options.beta2 : 0.0;
  rules.average = options.average;
  rules.schedule = static_cast<long long>(options.schedule);
  rules.seed = options.seed;
  rules.growth = loss_scale_growth;
  rules.backoff = loss_scale_backoff;
  rules.least_scale = least_loss_scale;
  rules.greatest_scale = greatest_loss_scale;
  rules.growth_steps = options.execution.precision == Precision::f16 ? loss_scale_growth_steps : 0;
  shape.loss = kind_of(loss);
  shape.optimizer = {.kind = optimizer,
                     .beta1 = options.optimizer == Optimizer::sgd ? options.momentum : options.beta1,
                     .beta2 = options.beta2,
                     .epsilon = options.epsilon,
                     .tensors = {}};
  return shape;
}

}  // namespace training

double learning_rate_at(const TrainOptions& options, double fraction) {
  return ops::step_rate(training::training_shape(options, Loss::mse, 0).rules, fraction);
}

}  // namespace penstock
