#include "data/batch.h"

#include <algorithm>

#include "base/check.h"
#include "io/model_json.h"
#include "ops/pointwise/embedding.h"

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
  // A GPU does not look at what it is given, and finds out too late: so this is where tokens and labels are checked.
  if (data.vocabulary > 0) ops::check_tokens(batch_of(example), example.tokens.data(), data.vocabulary);
  const Index classes = data.output_size();
  for (const std::int32_t label : example.labels) {
    require(label >= -1 && label < classes, "label {} is outside -1..{}", label, classes - 1);
  }
}

Index scored_positions(const Example& example) {
  if (!example.labels.empty()) {
    return std::ranges::count_if(example.labels, [](std::int32_t label) { return label >= 0; });
  }
  const Index positions = example.rows * example.steps;
  const auto width = static_cast<Index>(example.weights.size()) / positions;
  Index scored = 0;
  for (Index r = 0; r < positions; ++r) {
    const auto first = example.weights.begin() + r * width;
    scored += std::any_of(first, first + width, [](float weight) { return weight > 0.0f; }) ? 1 : 0;
  }
  return scored;
}

void check_same_data(const DataDescription& model, const DataDescription& dataset) {
  DataDescription read = model;
  read.series.forget_forecasts();  // which a dataset does not know
  read.latency = dataset.latency;  // of a recording, not of the model
  const std::string difference =
      io::difference("data", {"the model", io::to_json(read)}, {"the dataset", io::to_json(dataset)});
  if (!difference.empty()) fail(ErrorCode::incompatible, "the model was made for other data: {}", difference);
}

Batch batch_of(const Example& example) {
  return {.rows = example.rows,
          .steps = example.steps,
          .lengths = example.lengths.empty() ? nullptr : example.lengths.data(),
          .reset = example.reset.empty() ? nullptr : example.reset.data()};
}

ops::Target target_of(const Example& example, const Execution& execution) {
  ops::Target target = model_target(example.rows, example.steps, execution);
  target.flags.set(CallFlag::lengths, !example.lengths.empty());
  target.flags.set(CallFlag::reset, !example.reset.empty());
  return target;
}

}  // namespace penstock::training
