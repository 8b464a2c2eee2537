#include "train/optimizer.h"

#include <algorithm>
#include <cmath>

#include "base/threads.h"

namespace penstock::training {

namespace {

constexpr Index values_per_range = 16384;

class AdamW final : public OptimizerRule {
 public:
  AdamW(const TrainOptions& options, const nn::ParameterLayout& layout)
      : OptimizerRule(layout, {"first_moment", "second_moment"}), options_(options) {}

 private:
  void begin(double learning_rate, double gradient_scale) override {
    const double updates = static_cast<double>(updates_);
    const double first_correction = 1.0 - std::pow(options_.beta1, updates);
    const double second_correction = 1.0 - std::pow(options_.beta2, updates);
    rate_ = static_cast<float>(learning_rate / first_correction);
    root_correction_ = static_cast<float>(1.0 / std::sqrt(second_correction));
    keep_ = static_cast<float>(1.0 - learning_rate * options_.weight_decay);
    scale_ = static_cast<float>(gradient_scale);
  }

  void update_range(Index begin, Index end, bool decay, float* values, const float* gradients) override {
    const float beta1 = static_cast<float>(options_.beta1), beta2 = static_cast<float>(options_.beta2);
    const float rest1 = static_cast<float>(1.0 - options_.beta1), rest2 = static_cast<float>(1.0 - options_.beta2);
    const float epsilon = static_cast<float>(options_.epsilon);
    const float keep = decay ? keep_ : 1.0f;
    float* const first = slots_[0].values.data();
    float* const second = slots_[1].values.data();
    for (Index i = begin; i < end; ++i) {
      const float g = gradients[i] * scale_;
      const float m = beta1 * first[i] + rest1 * g;
      const float v = beta2 * second[i] + rest2 * g * g;
      first[i] = m;
      second[i] = v;
      values[i] = keep * values[i] - rate_ * m / (std::sqrt(v) * root_correction_ + epsilon);
    }
  }

  TrainOptions options_;
  float rate_ = 0.0f, root_correction_ = 0.0f, keep_ = 1.0f, scale_ = 1.0f;
};

class Sgd final : public OptimizerRule {
 public:
  Sgd(const TrainOptions& options, const nn::ParameterLayout& layout)
      : OptimizerRule(layout, {"momentum"}), options_(options) {}

 private:
  void begin(double learning_rate, double gradient_scale) override {
    rate_ = static_cast<float>(learning_rate);
    keep_ = static_cast<float>(1.0 - learning_rate * options_.weight_decay);
    scale_ = static_cast<float>(gradient_scale);
  }

  void update_range(Index begin, Index end, bool decay, float* values, const float* gradients) override {
    const float momentum = static_cast<float>(options_.momentum);
    const float keep = decay ? keep_ : 1.0f;
    float* const velocity = slots_[0].values.data();
    for (Index i = begin; i < end; ++i) {
      velocity[i] = momentum * velocity[i] + gradients[i] * scale_;
      values[i] = keep * values[i] - rate_ * velocity[i];
    }
  }

  TrainOptions options_;
  float rate_ = 0.0f, keep_ = 1.0f, scale_ = 1.0f;
};

}  // namespace

OptimizerRule::OptimizerRule(const nn::ParameterLayout& layout, std::vector<std::string> slot_names) {
  for (std::string& name : slot_names) {
    slots_.push_back({std::move(name), std::vector<float>(static_cast<std::size_t>(layout.size()), 0.0f)});
  }
  for (const nn::ParameterEntry& entry : layout.entries()) {
    for (Index begin = 0; begin < entry.size; begin += values_per_range) {
      ranges_.push_back(
          {entry.offset + begin, entry.offset + std::min(entry.size, begin + values_per_range), entry.decay});
    }
  }
}

void OptimizerRule::update(nn::Parameters<float>& parameters, std::span<const float> gradients, double learning_rate,
                           double gradient_scale, const Execution& execution) {
  ++updates_;
  begin(learning_rate, gradient_scale);
  float* const values = parameters.values().data();
  parallel_for(resolve_threads(execution.threads), static_cast<Index>(ranges_.size()), 2, [&](Index first, Index last) {
    for (Index i = first; i < last; ++i) {
      update_range(ranges_[i].begin, ranges_[i].end, ranges_[i].decay, values, gradients.data());
    }
  });
  parameters.changed();
}

std::unique_ptr<OptimizerRule> make_optimizer(const TrainOptions& options, const nn::ParameterLayout& layout) {
  if (options.optimizer == Optimizer::sgd) return std::make_unique<Sgd>(options, layout);
  return std::make_unique<AdamW>(options, layout);
}

}  // namespace penstock::training
