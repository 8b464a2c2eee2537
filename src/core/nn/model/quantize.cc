#include "penstock/quantize.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include "base/check.h"
#include "base/quote.h"
#include "nn/model/model_graph.h"
#include "nn/model/model_impl.h"
#include "nn/model/quantize.h"

namespace penstock {

namespace nn {

std::vector<std::string> int8_layers(ModelSpec spec, const DataDescription& data) {
  spec.int8.clear();
  GraphBuilder builder({});
  add_model(builder, spec, data, graph::Home::outputs);
  return builder.int8_layers();
}

void check_int8(const ModelSpec& spec, const DataDescription& data) {
  if (spec.int8.empty()) return;
  const std::vector<std::string> known = int8_layers(spec, data);
  for (const std::string& name : spec.int8) {
    require(std::ranges::find(known, name) != known.end(),
            "int8 must name layers whose matrices can be int8, such as {}, not {}",
            known.empty() ? "those of built-in cells" : known.front(), in_quotes(name));
    require(std::ranges::count(spec.int8, name) == 1, "int8 must name layer {} once", in_quotes(name));
  }
}

namespace {

/// Sets a matrix to rows of floats, of which the largest of each becomes +-127.
void round_rows(std::span<const float> from, Parameters<float>& parameters, const ParameterEntry& matrix) {
  const auto columns = static_cast<std::size_t>(matrix.shape.back());
  std::vector<std::int8_t> to(from.size());
  std::vector<float> scales(from.size() / columns);
  for (std::size_t r = 0; r < scales.size(); ++r) {
    const auto row = from.subspan(r * columns, columns);
    float largest = 0.0f;
    for (const float weight : row) largest = std::max(largest, std::abs(weight));
    constexpr float least = 1e-30f;  // below which a scale would be denormal
    scales[r] = largest < least ? 0.0f : largest / 127.0f;
    for (std::size_t i = 0; i < columns; ++i) {
      const float value = largest < least ? 0.0f : std::nearbyint(row[i] / scales[r]);
      to[r * columns + i] = static_cast<std::int8_t>(std::clamp(value, -127.0f, 127.0f));
    }
  }
  set_int8_rows(parameters, matrix, to, scales);
}

}  // namespace

}  // namespace nn

std::vector<std::string> int8_layers(const Model& model) { return nn::int8_layers(model.spec(), model.data()); }

Model Model::with_int8(std::span<const std::string> layers) const {
  const Impl& from = impl();
  ModelSpec spec = from.spec;
  for (const std::string& layer : layers) {
    if (std::ranges::find(spec.int8, layer) == spec.int8.end()) spec.int8.push_back(layer);
  }
  nn::check_int8(spec, from.data);
  auto made = std::make_unique<Impl>(spec, from.data);
  nn::Parameters<float>& to = *made->parameters;
  nn::copy_shared(*from.parameters, to);
  for (const nn::ParameterEntry& entry : to.layout().entries()) {
    if (entry.dtype != DType::i8) continue;
    const nn::ParameterEntry* const source = from.parameters->layout().find(entry.name);
    if (source->dtype == DType::i8) continue;
    nn::round_rows(std::as_const(*from.parameters).value(*source), to, entry);
  }
  to.changed();
  return Model(std::move(made));
}

namespace {

std::string percent(double share) { return fmt::format("{:.3g} %", 100.0 * share); }

/// Quantises a model, and layers by themselves when that is asked for.
class Quantizer {
 public:
  Quantizer(const Model& model, const LossOf& loss_of) : model_(model), loss_of_(loss_of) {
    for (const std::string& name : int8_layers(model)) {
      if (std::ranges::find(model.spec().int8, name) == model.spec().int8.end()) layers_.push_back({name, {}, true});
    }
    if (layers_.empty()) {
      fail(ErrorCode::unsupported, "no layer of this model can become int8: {}",
           model.spec().int8.empty() ? "cell " + model.spec().cell + " is not a built-in one, and there is no other"
                                     : "those that can already are");
    }
  }

  Quantized run(const QuantizeOptions& options) {
    if (options.each_layer) measure_layers();
    Model made = model_.with_int8(chosen());
    double loss = loss_of_(made);
    while (options.max_loss && !(loss <= *options.max_loss)) {
      leave_worst(*options.max_loss, loss);
      made = model_.with_int8(chosen());
      loss = loss_of_(made);
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
    for (QuantizedLayer& layer : layers_) layer.loss = loss_of_(model_.with_int8(std::span(&layer.name, 1)));
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

  const Model& model_;
  const LossOf& loss_of_;
  std::vector<QuantizedLayer> layers_;
};

}  // namespace

double loss_between(const Model& model, double before, double after) {
  if (model.data().task == Task::classify) return after - before;
  if (before > 0.0) return after / before - 1.0;
  return after > 0.0 ? std::numeric_limits<double>::infinity() : 0.0;
}

Quantized quantize(const Model& model, const LossOf& loss_of, const QuantizeOptions& options) {
  if (options.max_loss) {
    require_argument(*options.max_loss >= 0.0, "max_loss", *options.max_loss,
                     "0 or more, such as 0.005 for half a percent");
  }
  return Quantizer(model, loss_of).run(options);
}

}  // namespace penstock
