#include "penstock/quantize.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include "base/check.h"
#include "base/quote.h"
#include "nn/model/choose_int8_layers.h"
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

float round_row(std::span<const float> row, std::span<std::int8_t> rounded) {
  if (!std::ranges::all_of(row, [](float weight) { return std::isfinite(weight); })) {
    fail(ErrorCode::numerical, "a weight is infinite or not a number, which int8 cannot hold: train the model again");
  }
  float largest = 0.0f;
  for (const float weight : row) largest = std::max(largest, std::abs(weight));
  constexpr float least = 1e-30f;  // below which a scale would be denormal
  const float scale = largest < least ? 0.0f : largest / 127.0f;
  std::ranges::transform(row, rounded.begin(), [&](float weight) {
    const float value = largest < least ? 0.0f : std::nearbyint(weight / scale);
    return static_cast<std::int8_t>(std::clamp(value, -127.0f, 127.0f));
  });
  return scale;
}

namespace {

/// Sets a matrix to rounded rows.
void round_rows(std::span<const float> from, Parameters<float>& parameters, const ParameterEntry& matrix) {
  const auto columns = static_cast<std::size_t>(matrix.shape.back());
  std::vector<std::int8_t> to(from.size());
  std::vector<float> scales;
  for (std::size_t at = 0; at < from.size(); at += columns) {
    scales.push_back(round_row(from.subspan(at, columns), std::span(to).subspan(at, columns)));
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

double loss_between(const Model& model, double before, double after) {
  if (model.data().task == Task::classify) return after - before;
  if (before > 0.0) return after / before - 1.0;
  return after > 0.0 ? std::numeric_limits<double>::infinity() : 0.0;
}

Quantized quantize(const Model& model, const LossOf& loss_of, const QuantizeOptions& options) {
  std::vector<std::string> layers = int8_layers(model);
  std::erase_if(layers, [&](const std::string& name) {
    return std::ranges::find(model.spec().int8, name) != model.spec().int8.end();
  });
  if (layers.empty()) {
    fail(ErrorCode::unsupported, "no layer of this model can become int8: {}",
         model.spec().int8.empty() ? "cell " + model.spec().cell + " is not a built-in one, and there is no other"
                                   : "those that can already are");
  }
  const auto make = [&](std::span<const std::string> chosen) { return model.with_int8(chosen); };
  return nn::Int8LayerChoice<Model>(make, layers, loss_of).run<Quantized>(options);
}

}  // namespace penstock
