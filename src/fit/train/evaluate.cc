#include <algorithm>
#include <array>
#include <cmath>
#include <memory>
#include <numbers>
#include <optional>
#include <utility>

#include "base/check.h"
#include "base/last_used_cache.h"
#include "data/batch.h"
#include "data/device_batch.h"
#include "data/series/series_rows.h"
#include "penstock/stop.h"
#include "train/check_options.h"
#include "train/optimizer_state.h"
#include "train/trainer.h"

namespace penstock {

namespace training {

namespace {

/// Programs for the shapes of held-out batches, and the memory that they work in.
class Scorer {
 public:
  Scorer(const Model::Impl& model, LossKind loss, const Execution& execution)
      : model_(model),
        loss_(loss),
        execution_(execution),
        weights_(model.weights_on(execution.device)),
        queue_(weights_->queue()),
        batch_(queue_),
        status_(queue_, static_cast<std::size_t>(ops::StatusLayout::bytes(0))),
        copied_(queue_) {
    const StepState state = ops::first_step_state(1.0f);
    status_.zero();
    status_.upload(&state, sizeof state);
  }

  /// Returns the loss of a batch; continues from the state of the one before if the batch continues it.
  LossSums score(const Example& example) {
    start_state(example);
    batch_.reserve(example);
    batch_.start_upload(example, staging_, copied_);
    graph::Workspace& workspace = workspace_for(target_of(example, execution_));
    batch_.bind(workspace);
    workspace.bind(graph::Home::status, status_.data());
    workspace.bind(graph::Home::state_in, state_[0].data());
    workspace.bind(graph::Home::state_out, state_[1].data());
    const ops::Call call = batch_.call(example, execution_);
    workspace.refresh(call);
    workspace.run(call);
    std::swap(state_[0], state_[1]);
    StepState state;
    status_.download(&state, sizeof state);
    return state.loss;
  }

 private:
  void start_state(const Example& example) {
    const auto bytes = static_cast<std::size_t>(example.rows * model_.state_size) * sizeof(float);
    const bool continues = example.continues && rows_ == example.rows;
    if (rows_ != example.rows) {
      for (ops::Buffer& state : state_) state = ops::Buffer(queue_, bytes);
    }
    if (!continues) state_[0].zero();
    rows_ = example.rows;
  }

  graph::Workspace& workspace_for(const ops::Target& target) {
    return *workspaces_.get(target, [&] {
      auto made = std::make_unique<graph::Workspace>(nn::scoring_program(model_.spec, model_.data, loss_, target),
                                                     weights_->shared_queue());
      made->bind(weights_);
      return made;
    });
  }

  const Model::Impl& model_;
  LossKind loss_;
  Execution execution_;
  std::shared_ptr<graph::Weights> weights_;
  ops::Queue& queue_;
  DeviceBatch batch_;
  ops::Buffer status_;
  std::array<ops::Buffer, 2> state_;
  std::optional<ops::StagingBuffer> staging_;
  ops::Marker copied_;
  LastUsedCache<ops::Target, std::unique_ptr<graph::Workspace>> workspaces_{1};
  Index rows_ = 0;
};

bool next_held_out(const Model::Impl& model, const Dataset& data, Index i, Index rows, Index steps, Example& example) {
  const SeriesRows* const series = data.series_rows();
  if (series == nullptr) return data.validation(i, rows, steps, example);
  const Index past_rows = model.spec.branch ? model.spec.branch->past_rows() : 0;
  return series->held_out_batch(i, rows, steps, past_rows, example);
}

}  // namespace

Evaluation evaluate_checked(const Model::Impl& model, const Dataset& data, const TrainOptions& options) {
  const Loss loss = resolve_loss(options.loss, model.data.task);
  Example example;
  LossSums total = {};
  Scorer scorer(model, kind_of(loss), options.execution);
  for (Index i = 0; options.validation_batches == 0 || i < options.validation_batches; ++i) {
    stop_if_asked();
    if (!next_held_out(model, data, i, options.batch, options.length, example)) break;
    check_example(example, model.data);
    ops::add_loss(total, scorer.score(example));
  }
  Evaluation result;
  result.loss = total.weight > 0.0 ? total.sum / total.weight : 0.0;
  result.scored = total.scored;
  if (loss == Loss::cross_entropy) {
    result.bits_per_step = result.loss / std::numbers::ln2;
    result.accuracy = total.scored > 0 ? static_cast<double>(total.correct) / static_cast<double>(total.scored) : 0.0;
  }
  return result;
}

namespace {

/// Evaluates series one by one, as some of them have forecasts of their own.
Evaluation evaluate_series(const Model& model, const Dataset& data, const TrainOptions& options) {
  const RowErrors found = held_out_errors(model, *data.series_rows(), options.execution);
  const bool squares = resolve_loss(options.loss, Task::forecast) == Loss::mse;
  const std::size_t width = found.errors.size() / std::max<std::size_t>(found.rows.size(), 1);
  double sum = 0.0, count = 0.0;
  Index scored = 0;
  for (std::size_t i = 0, last = found.rows.size(); i < found.errors.size(); ++i) {
    const auto error = static_cast<double>(found.errors[i]);
    if (!std::isfinite(error)) continue;
    sum += squares ? error * error : std::abs(error);
    ++count;
    scored += std::exchange(last, i / width) != i / width ? 1 : 0;
  }
  return {.loss = sum / std::max(count, 1.0), .scored = scored};
}

}  // namespace

}  // namespace training

bool held_out_batch(const Model& model, const Dataset& data, Index i, Index rows, Index steps, Example& example) {
  return training::next_held_out(model.impl(), data, i, rows, steps, example);
}

Evaluation evaluate(const Model& model, const Dataset& data, const TrainOptions& options) {
  training::check_batches(options);
  training::check_loss(options, data.description());
  training::check_same_data(model.impl().data, data.description());
  if (!model.data().series.own_forecasts().empty()) return training::evaluate_series(model, data, options);
  return training::evaluate_checked(model.impl(), data, options);
}

}  // namespace penstock
