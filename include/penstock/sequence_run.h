#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "penstock/model.h"
#include "penstock/stop.h"

/// Running a model over one long sequence that arrives in pieces.
namespace penstock {

/// Runs a model over one sequence that arrives step by step: collects steps and computes many at once.
class SequenceRun {
 public:
  /// Starts a sequence. The model must outlive this object.
  SequenceRun(const Model& model, const Execution& execution)
      : model_(model), execution_(execution), state_(model.state(1)) {}

  static constexpr Index piece = 1024;  ///< Recommended steps per run(): bounds memory and fills products.

  /// Adds a step of normalised features [I].
  void add(std::span<const float> features) {
    features_.insert(features_.end(), features.begin(), features.end());
    ++steps_;
  }
  /// Adds a step with a token.
  void add(std::int32_t token) {
    tokens_.push_back(token);
    ++steps_;
  }
  /// Returns the number of steps that were added since the last run().
  Index waiting() const { return steps_; }

  /// Computes the steps since the last call and returns their outputs [steps, O], which are valid until the next call.
  /// Throws Error as Model::forward(), and interrupted if the user asked to stop.
  std::span<const float> run() {
    stop_if_asked();
    outputs_.resize(static_cast<std::size_t>(steps_ * model_.data().output_size()));
    if (model_.data().vocabulary > 0) {
      model_.forward(1, steps_, std::span<const std::int32_t>(tokens_), outputs_, state_, execution_);
    } else {
      model_.forward(1, steps_, std::span<const float>(features_), outputs_, state_, execution_);
    }
    steps_ = 0;
    tokens_.clear();
    features_.clear();
    return outputs_;
  }

  /// Adds a step of a sequence from which end() returns only the outputs of the last step.
  void add_for_last(const auto& step) {
    if (steps_ == piece) run();
    add(step);
  }
  /// Ends such a sequence, of at least one step: returns the outputs [O] of its last step, and starts a new one.
  std::span<const float> end() {
    const auto outputs = run().last(static_cast<std::size_t>(model_.data().output_size()));
    restart();
    return outputs;
  }
  /// Starts a new sequence.
  void restart() { state_ = model_.state(1); }

 private:
  const Model& model_;
  Execution execution_;
  ModelState state_;
  Index steps_ = 0;
  std::vector<std::int32_t> tokens_;
  std::vector<float> features_;
  std::vector<float> outputs_;
};

}  // namespace penstock
