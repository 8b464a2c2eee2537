#include "train/batch.h"

#include "base/check.h"
#include "io/model_json.h"

namespace penstock::training {

namespace {

template <class T>
void check_size(const char* name, const std::vector<T>& values, Index expected, bool optional = false) {
  if (optional && values.empty()) return;
  require(static_cast<Index>(values.size()) == expected, "dataset: {} must hold {} values, not {}", name, expected,
          values.size());
}

}  // namespace

void check_example(const Example& example, const DataDescription& data) {
  require(example.rows >= 1 && example.steps >= 1, "dataset: a batch must have rows and steps, not {} and {}",
          example.rows, example.steps);
  const Index places = example.rows * example.steps;
  if (data.vocabulary > 0) {
    check_size("tokens", example.tokens, places);
  } else {
    check_size("features", example.features, places * data.input_size());
  }
  if (data.task == Task::forecast) {
    check_size("targets", example.targets, places * data.output_size());
    check_size("weights", example.weights, places * data.output_size());
  } else {
    check_size("labels", example.labels, places);
  }
  check_size("lengths", example.lengths, example.rows, true);
  check_size("reset", example.reset, places, true);
  for (const Index length : example.lengths) {
    require(length >= 0 && length <= example.steps, "dataset: a length must be 0 to {}, not {}", example.steps, length);
  }
}

void check_same_data(const DataDescription& model, const DataDescription& dataset) {
  const std::string difference =
      io::difference("data", {"the model", io::to_json(model)}, {"the dataset", io::to_json(dataset)});
  if (!difference.empty()) fail(ErrorCode::incompatible, "the model was made for other data: {}", difference);
}

Batch batch_of(const Example& example) {
  return {.rows = example.rows,
          .steps = example.steps,
          .lengths = example.lengths.empty() ? nullptr : example.lengths.data(),
          .reset = example.reset.empty() ? nullptr : example.reset.data()};
}

ops::Target target_of(const Example& example, const Execution& execution) {
  return {.rows = example.rows,
          .steps = example.steps,
          .lengths = !example.lengths.empty(),
          .reset = !example.reset.empty(),
          .execution = execution};
}

void bind_input(const Example& example, graph::Workspace& workspace) {
  // Programs write only what they say they write.
  workspace.bind(graph::Home::tokens, const_cast<std::int32_t*>(example.tokens.data()));
  workspace.bind(graph::Home::features, const_cast<float*>(example.features.data()));
}

ops::LossSum compute_loss(Loss loss, const Example& example, const Execution& execution, Index outputs, const float* y,
                          float* gradient, void* scratch) {
  const Index positions = example.rows * example.steps;
  const ops::LossScratch places = ops::LossScratch::in(scratch, positions);
  if (loss == Loss::cross_entropy) {
    return ops::cross_entropy(execution.threads, positions, outputs, y, example.labels.data(), gradient, places);
  }
  const auto regression = loss == Loss::mse ? ops::mean_squared_error : ops::mean_absolute_error;
  return regression(execution.threads, positions, outputs, y, example.targets.data(), example.weights.data(), gradient,
                    places);
}

void start_state(const Example& example, bool carry, Index carried_rows, std::span<const float> carried,
                 Index state_size, std::vector<float>& state) {
  if (carry && example.continues && carried_rows == example.rows) {
    state.assign(carried.begin(), carried.end());
  } else {
    state.assign(static_cast<std::size_t>(example.rows * state_size), 0.0f);
  }
}

}  // namespace penstock::training
