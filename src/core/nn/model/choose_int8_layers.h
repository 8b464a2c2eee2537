#pragma once

#include <algorithm>
#include <cmath>
#include <functional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "base/check.h"
#include "penstock/quantize.h"

namespace penstock::nn {

inline std::string percent(double share) { return fmt::format("{:.3g} %", 100.0 * share); }

/// Chooses which layers of a model or a network become int8, by what each loses, and makes them so.
template <class Made>
class Int8LayerChoice {
 public:
  using Loss = std::function<double(const Made&)>;

  using Make = std::function<Made(std::span<const std::string>)>;

  /// `make` returns the model with such layers of int8.
  Int8LayerChoice(Make make, const std::vector<std::string>& layers, const Loss& loss_of)
      : make_(std::move(make)), loss_of_(loss_of) {
    for (const std::string& name : layers) layers_.push_back({name, {}, true});
  }

  template <class Result>
  Result run(const QuantizeOptions& options) {
    if (options.max_loss) {
      require_argument(*options.max_loss >= 0.0, "max_loss", *options.max_loss,
                       "0 or more, such as 0.005 for half a percent");
    }
    if (options.each_layer) measure_layers();
    Made made = make_(chosen());
    double loss = loss_of_(made);
    while (options.max_loss && !(loss <= *options.max_loss)) {
      leave_worst(*options.max_loss, loss);
      made = make_(chosen());
      loss = loss_of_(made);
    }
    if (std::isnan(loss)) {
      fail(ErrorCode::numerical,
           "the loss is not a number: outputs for this data are not finite, or nothing is scored");
    }
    return {std::move(made), loss, std::move(layers_)};
  }

 private:
  std::vector<std::string> chosen() const {
    std::vector<std::string> names;
    for (const QuantizedLayer& layer : layers_) {
      if (layer.int8) names.push_back(layer.name);
    }
    return names;
  }

  void measure_layers() {
    for (QuantizedLayer& layer : layers_) layer.loss = loss_of_(make_(std::span(&layer.name, 1)));
  }

  /// NaN is the worst of losses.
  void leave_worst(double max_loss, double loss) {
    if (!layers_.front().loss) measure_layers();
    const auto left = std::ranges::count_if(layers_, &QuantizedLayer::int8);
    QuantizedLayer* worst = nullptr;
    for (QuantizedLayer& layer : layers_) {
      if (layer.int8 && (worst == nullptr || !(*layer.loss <= *worst->loss))) worst = &layer;
    }
    if (left == 1) {
      fail_with(ErrorCode::numerical, {"allow more with ", the_option("max_loss"), ", or keep the model as it is"},
                "no layer can be int8 without a loss of more than {}: {}, which loses the least, loses {}",
                percent(max_loss), worst->name, percent(loss));
    }
    worst->int8 = false;
  }

  Make make_;
  const Loss& loss_of_;
  std::vector<QuantizedLayer> layers_;
};

}  // namespace penstock::nn
