#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "penstock/model.h"
#include "penstock/stop.h"

namespace penstock {

/// A model on one sequence that comes in pieces: collects steps and runs them many at a time.
class SequenceRun {
 public:
  SequenceRun(const Model& model, const Execution& execution)
      : model_(model), execution_(execution), state_(model.state(1)) {}

  static constexpr Index piece = 1024;  // steps; bounds the memory, and fills the matrix products

  void add(std::span<const float> features) {
    features_.insert(features_.end(), features.begin(), features.end());
    ++steps_;
  }
  void add(std::int32_t token) {
    tokens_.push_back(token);
    ++steps_;
  }
  Index waiting() const { return steps_; }

  /// Outputs [steps, O] for what was added since the last call. Throws Error(interrupted) if it is to stop.
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
