#pragma once

#include <algorithm>
#include <vector>

#include "nn/model/model_impl.h"

namespace penstock::training {

/// Scales the linear heads that end the layers of a model, of every member of an ensemble. Without them a model is its
/// linear forecast. The destructor leaves them as they were, or as leave() says.
class Heads {
 public:
  explicit Heads(Model& model) : parameters_(own_parameters(model)) {
    for (const nn::ParameterEntry& entry : parameters_.layout().entries()) {
      if (!entry.name.ends_with("head.weight") && !entry.name.ends_with("head.bias")) continue;
      const auto values = parameters_.value(entry);
      heads_.push_back({&entry, {values.begin(), values.end()}});
    }
  }
  ~Heads() { scale(left_); }
  Heads(const Heads&) = delete;
  Heads& operator=(const Heads&) = delete;

  /// Sets the factor that the destructor applies: 1 before.
  void leave(double factor) { left_ = factor; }
  /// Makes them so many times what they were at first, for now.
  void scale(double factor) {
    for (const auto& [entry, were] : heads_) {
      // Their place changes when the model parts from sessions.
      std::ranges::transform(were, parameters_.value(*entry).begin(),
                             [&](float was) { return static_cast<float>(factor * static_cast<double>(was)); });
    }
    parameters_.changed();
  }

 private:
  struct Head {
    const nn::ParameterEntry* entry;
    std::vector<float> were;
  };

  static nn::Parameters<float>& own_parameters(Model& model) {
    model.impl().detach_sessions();
    return *model.impl().parameters;
  }

  nn::Parameters<float>& parameters_;
  std::vector<Head> heads_;
  double left_ = 1.0;
};

}  // namespace penstock::training
