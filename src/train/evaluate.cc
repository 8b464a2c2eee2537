#include "train/evaluate.h"

#include <numbers>

#include "base/check.h"
#include "train/batch.h"
#include "train/train_options.h"

namespace penstock {

namespace training {

Evaluation evaluate_model(const Model::Impl& model, const Dataset& data, const TrainOptions& options, Loss loss) {
  const std::lock_guard lock(model.guard);
  Example example;
  LossSum total;
  std::vector<float> state;
  Index state_rows = 0;
  const Index outputs = model.network.outputs();
  for (Index i = 0; options.validation_batches == 0 || i < options.validation_batches; ++i) {
    if (!data.validation(i, options.batch, options.length, example)) break;
    check_example(example, model.data);
    const std::vector<float> before = std::move(state);
    start_state(example, true, state_rows, before, model.network.state_size(), state);
    state_rows = example.rows;
    model.arena.reset();
    float* const y = model.arena.take<float>(example.rows * example.steps * outputs);
    const nn::Pass pass{.batch = batch_of(example), .execution = options.execution, .arena = &model.arena};
    model.network.forward(pass, input_of(example), y, state.data());
    total += compute_loss(loss, example, options.execution, outputs, y, nullptr, model.arena);
  }
  Evaluation result;
  result.loss = total.mean();
  result.scored = total.scored;
  if (loss == Loss::cross_entropy) {
    result.bits_per_step = result.loss / std::numbers::ln2;
    result.accuracy = total.scored > 0 ? static_cast<double>(total.correct) / static_cast<double>(total.scored) : 0.0;
  }
  return result;
}

}  // namespace training

Evaluation evaluate(const Model& model, const Dataset& data, const TrainOptions& options) {
  require(options.batch >= 1, "batch must be at least 1, not {}", options.batch);
  require(options.length >= 1, "length must be at least 1, not {}", options.length);
  require(options.validation_batches >= 0, "validation_batches must not be negative, not {}",
          options.validation_batches);
  training::check_same_data(model.impl().data, data.description());
  return training::evaluate_model(model.impl(), data, options,
                                  training::resolve_loss(options.loss, data.description().task));
}

}  // namespace penstock
