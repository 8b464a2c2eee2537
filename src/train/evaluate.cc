#include "train/evaluate.h"

#include <numbers>

#include "base/check.h"
#include "train/batch.h"
#include "train/train_options.h"

namespace penstock {

namespace training {

Evaluation evaluate_model(const Model::Impl& model, const Dataset& data, const TrainOptions& options, Loss loss) {
  Example example;
  ops::LossSum total;
  std::vector<float> state, outputs;
  std::vector<double> scratch;
  Index state_rows = 0;
  const std::shared_ptr<graph::Weights> weights = model.weights_on(Device::cpu());
  for (Index i = 0; options.validation_batches == 0 || i < options.validation_batches; ++i) {
    if (!data.validation(i, options.batch, options.length, example)) break;
    check_example(example, model.data);
    const std::vector<float> before = std::move(state);
    start_state(example, true, state_rows, before, model.state_size, state);
    state_rows = example.rows;
    outputs.resize(static_cast<std::size_t>(example.rows * example.steps * model.outputs()));
    scratch.resize(ops::LossScratch::bytes(example.rows * example.steps) / sizeof(double) + 1);
    const ops::Target target = target_of(example, options.execution);
    const nn::ModelPrograms::Lease workspace =
        model.programs.take(model.spec, model.data, target, weights->shared_queue());
    workspace->bind(weights);
    bind_input(example, *workspace);
    workspace->bind(graph::Home::outputs, outputs.data());
    workspace->bind(graph::Home::state_in, state.data());
    workspace->bind(graph::Home::state_out, state.data());
    const ops::Call call{.batch = batch_of(example), .threads = options.execution.threads};
    workspace->refresh(call);
    workspace->run(call);
    total += compute_loss(loss, example, options.execution, model.outputs(), outputs.data(), nullptr, scratch.data());
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
