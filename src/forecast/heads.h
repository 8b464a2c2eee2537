#pragma once

#include <algorithm>
#include <span>
#include <vector>

#include "nn/model/model_impl.h"

namespace penstock::training {

/// The linear heads that end the layers of a model, of every member of an ensemble. Without them a model is its linear
/// forecast.
class Heads {
 public:
  explicit Heads(Model& model) : parameters_(*model.impl().parameters) {
    for (const nn::ParameterEntry& entry : parameters_.layout().entries()) {
      if (!entry.name.ends_with("head.weight") && !entry.name.ends_with("head.bias")) continue;
      const auto values = parameters_.value(entry);
      heads_.push_back({values, {values.begin(), values.end()}});
    }
  }
  /// Makes them so many times what they were at first.
  void scale(double factor) {
    for (const auto& [values, were] : heads_) {
      std::ranges::transform(were, values.begin(),
                             [&](float was) { return static_cast<float>(factor * static_cast<double>(was)); });
    }
    parameters_.changed();
  }

 private:
  struct Head {
    std::span<float> values;
    std::vector<float> were;
  };
  nn::Parameters<float>& parameters_;
  std::vector<Head> heads_;
};

}  // namespace penstock::training
