#pragma once

#include <memory>
#include <span>
#include <string>
#include <vector>

#include "nn/parameters.h"
#include "penstock/train.h"

namespace penstock::training {

/// An update rule over a flat store of parameters. What it remembers from step to step lies in arrays as long as the
/// store ("slots"), which a checkpoint keeps.
class OptimizerRule {
 public:
  struct Slot {
    std::string name;  // "first_moment"
    std::vector<float> values;
  };

  virtual ~OptimizerRule() = default;

  /// One update of all values by their gradients, in the same layout, each first multiplied by `gradient_scale`
  /// (clipping).
  void update(nn::Parameters<float>& parameters, std::span<const float> gradients, double learning_rate,
              double gradient_scale, const Execution& execution);

  std::vector<Slot>& slots() { return slots_; }
  /// Updates so far; a checkpoint restores it.
  Index updates() const { return updates_; }
  void set_updates(Index updates) { updates_ = updates; }

 protected:
  OptimizerRule(const nn::ParameterLayout& layout, std::vector<std::string> slot_names);

  /// Called once before an update's ranges.
  virtual void begin(double learning_rate, double gradient_scale) = 0;
  /// Updates places begin..end-1 of the store; `decay` says whether weight decay applies.
  virtual void update_range(Index begin, Index end, bool decay, float* values, const float* gradients) = 0;

  std::vector<Slot> slots_;
  Index updates_ = 0;

 private:
  struct Range {
    Index begin, end;
    bool decay;
  };
  std::vector<Range> ranges_;  // the store in pieces for the threads
};

/// AdamW (Loshchilov and Hutter 2019): decay multiplies the weights by 1 - learning_rate * weight_decay and stays out
/// of the moments. SGD: v = momentum v + g, w = w - learning_rate v, with the same decoupled decay.
std::unique_ptr<OptimizerRule> make_optimizer(const TrainOptions& options, const nn::ParameterLayout& layout);

}  // namespace penstock::training
