#include "io/audio/import.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>

#include "io/audio/document.h"
#include "io/audio/sequence_network.h"
#include "io/onnx/read/simplify.h"
#include "io/onnx/stream/stream.h"
#include "io/status_error.h"
#include "network/check_file.h"

namespace penstock::io::audio {
namespace {

constexpr Index kMostUnits = 1 << 12, kMostValues = 1 << 13, kMostHistory = 1 << 22;

Array transposed(const Array& matrix) {
  const Index rows = matrix.shape[0], columns = matrix.shape[1];
  Array result{{columns, rows}, std::vector<float>(matrix.values.size())};
  for (Index i = 0; i < rows * columns; ++i) {
    result.values[static_cast<std::size_t>(i % columns * rows + i / columns)] =
        matrix.values[static_cast<std::size_t>(i)];
  }
  return result;
}

// RTNeural --------------------------------------------------------------------------------------------------------

/// Gates of Keras become rows in Penstock's order: [.., G H] becomes [G H, ..].
Array gate_rows(const Array& matrix, const std::vector<Index>& order) {
  const Array rows = transposed(matrix);
  const auto block = static_cast<std::ptrdiff_t>(rows.values.size() / order.size());
  Array result{rows.shape, {}};
  for (const Index gate : order) {
    const auto begin = rows.values.begin() + gate * block;
    result.values.insert(result.values.end(), begin, begin + block);
  }
  return result;
}

/// A row of biases.
Array gate_bias(const Array& biases, Index row, const std::vector<Index>& order) {
  const Index all = biases.shape.back();
  const auto begin = biases.values.begin() + row * all;
  Array result = gate_rows({{1, all}, {begin, begin + all}}, order);
  result.shape = {all};
  return result;
}

void add_activation(SequenceNetwork& network, const Object& layer) {
  constexpr std::array<std::pair<std::string_view, std::string_view>, 6> operators = {
      {{"", ""}, {"tanh", "Tanh"}, {"relu", "Relu"}, {"sigmoid", "Sigmoid"}, {"softmax", "Softmax"}, {"elu", "Elu"}}};
  const std::string_view name = layer.text("activation");
  const auto* const found = std::ranges::find(operators, name, &std::pair<std::string_view, std::string_view>::first);
  if (found == operators.end()) {
    layer.refuse(ErrorCode::unsupported, "activation {}; supported: tanh, relu, sigmoid, softmax, elu",
                 in_quotes(name));
  }
  if (!name.empty()) network.apply(found->second);
}

/// RTNeural computes a tanh in recurrent layers, and nothing behind a norm, whatever the file says.
void require_activation(const Object& layer, std::string_view allowed) {
  const std::string_view name = layer.text("activation");
  if (name.empty() || name == allowed) return;
  layer.refuse(ErrorCode::unsupported, "activation {}; such a layer of RTNeural has {}", in_quotes(name),
               allowed.empty() ? "none" : allowed);
}

void require_weights(const Object& layer, const std::vector<network::Shape>& shapes) {
  if (layer.weights.size() != shapes.size()) {
    layer.refuse(ErrorCode::bad_input, "{} arrays of weights, expected {}", layer.weights.size(), shapes.size());
  }
  for (std::size_t i = 0; i < shapes.size(); ++i) {
    layer.require_shape(fmt::format("weights[{}]", i), layer.weights[i], shapes[i]);
  }
}

void add_recurrent(SequenceNetwork& network, const Object& layer, Index hidden) {
  const bool lstm = layer.text("type") == "lstm";
  // Keras: i, f, c, o and z, r, h; Penstock: i, f, g, o and r, z, n.
  const std::vector<Index> order = lstm ? std::vector<Index>{0, 1, 2, 3} : std::vector<Index>{1, 0, 2};
  const Index units = static_cast<Index>(order.size()) * hidden;
  require_activation(layer, "tanh");
  const network::Shape bias = lstm ? network::Shape{units} : network::Shape{2, units};
  require_weights(layer, {{network.channels(), units}, {hidden, units}, bias});
  const std::vector<Array>& w = layer.weights;
  network.recurrent(lstm ? "lstm" : "gru", hidden,
                    {gate_rows(w[0], order), gate_rows(w[1], order), gate_bias(w[2], 0, order),
                     lstm ? Array() : gate_bias(w[2], 1, order)});
}

/// Values of a step: the last extent, or the last two of [batch, time, features, filters].
Index values_of(const Object& object, std::string_view name) {
  const Index last = object.integer(name, 1, kMostUnits);
  const std::vector<float>& all = object.numbers.find(name)->second.values;
  if (all.size() != 4) return last;
  const auto before = static_cast<double>(all[2]), count = before * static_cast<double>(last);
  if (!(before >= 1 && before == std::floor(before) && count <= static_cast<double>(kMostValues))) {
    object.refuse(ErrorCode::bad_input, "{} has {} values a step, expected a whole number from 1 to {}", name, count,
                  kMostValues);
  }
  return static_cast<Index>(count);
}

/// Weights [taps.., C, O] become [O, C, taps..].
Array kernels(const Array& from, network::Shape shape) {
  const Index maps = shape[0], inner = shape[1], taps = static_cast<Index>(from.values.size()) / (maps * inner);
  Array weight{std::move(shape), {}};
  for (Index i = 0; i < maps * inner * taps; ++i) {
    const Index map = i / (inner * taps), channel = i / taps % inner, tap = i % taps;
    weight.values.push_back(from.values[static_cast<std::size_t>((tap * inner + channel) * maps + map)]);
  }
  return weight;
}

void require_history(const Object& layer, Index steps, Index values) {
  if (steps <= kMostHistory / values) return;
  layer.refuse(ErrorCode::unsupported, "its history of {} steps of {} values has more than {} values", steps, values,
               kMostHistory);
}

void add_convolution(SequenceNetwork& network, const Object& layer, Index maps) {
  const Index kernel = layer.integer("kernel_size", 1, kMostUnits), groups = layer.integer("groups", 1, kMostUnits, 1);
  const Index dilation = layer.integer("dilation", 1, kMostHistory, 1), channels = network.channels();
  if (channels % groups != 0 || maps % groups != 0) {
    layer.refuse(ErrorCode::bad_input, "{} groups do not divide {} inputs and {} outputs", groups, channels, maps);
  }
  require_history(layer, kernel * dilation, channels);
  if (layer.integer("strides", 1, kMostUnits, 1) != 1) layer.refuse(ErrorCode::unsupported, "strides are not 1");
  if (layer.text("padding") == "same") layer.refuse(ErrorCode::unsupported, "padding \"same\" needs later samples");
  require_weights(layer, {{kernel, channels / groups, maps}, {maps}});
  network.convolution(kernels(layer.weights[0], {maps, channels / groups, kernel}), layer.weights[1], dilation, groups);
  add_activation(network, layer);
}

/// Over steps and features: causal over steps, whatever `padding` says, which is about features, as `strides` are.
void add_convolution_2d(SequenceNetwork& network, const Object& layer, Index size) {
  const Index steps = layer.integer("kernel_size_time", 1, kMostUnits);
  const Index width = layer.integer("kernel_size_feature", 1, kMostUnits);
  const Index inner = layer.integer("num_filters_in", 1, kMostUnits);
  const Index features = layer.integer("num_features_in", 1, kMostUnits);
  const Index maps = layer.integer("num_filters_out", 1, kMostUnits);
  const Index dilation = layer.integer("dilation", 1, kMostHistory, 1);
  const Index stride = layer.integer("strides", 1, kMostUnits, 1);
  if (features * inner != network.channels()) {
    layer.refuse(ErrorCode::bad_input, "num_features_in * num_filters_in is {}, but there are {} values before it",
                 features * inner, network.channels());
  }
  const std::string_view padding = layer.text("padding");
  if (padding != "valid" && padding != "same") {
    layer.refuse(ErrorCode::bad_input, "padding {}, expected \"valid\" or \"same\"", in_quotes(padding));
  }
  const Index added = padding == "same" ? same_padding(features, width, stride) : 0;
  if (width > features + added) {
    layer.refuse(ErrorCode::bad_input, "kernel_size_feature is {}, more than the {} features", width, features);
  }
  const Index outputs = (features + added - width) / stride + 1;
  if (outputs * maps != size) {
    layer.refuse(ErrorCode::bad_input, "its shape has {} values a step, expected {} features of {} filters", size,
                 outputs, maps);
  }
  require_history(layer, steps * dilation, network.channels());
  require_weights(layer, {{steps, width, inner, maps}, {maps}});
  network.convolution_2d(kernels(layer.weights[0], {maps, inner, steps, width}), layer.weights[1], dilation, stride,
                         {added / 2, added - added / 2});
  add_activation(network, layer);
}

/// `maps` values are normalised each by its own numbers; with several features, those of each feature alike.
void add_norm(SequenceNetwork& network, const Object& layer, Index maps) {
  require_activation(layer, "");
  const Index size = network.channels();
  if (size % maps != 0) layer.refuse(ErrorCode::bad_input, "{} filters do not divide {} values", maps, size);
  const bool affine = layer.weights.size() == 4;
  require_weights(layer, std::vector<network::Shape>(affine ? 4 : 2, {maps}));
  std::vector<Array> w = layer.weights;
  for (Array& each : w) {
    each.shape = {size};
    while (static_cast<Index>(each.values.size()) < size) {
      each.values.push_back(each.values[each.values.size() - static_cast<std::size_t>(maps)]);
    }
  }
  Array scale = w[affine ? 3 : 1];
  const double epsilon = layer.number("epsilon");
  for (std::size_t i = 0; i < scale.values.size(); ++i) {
    const double variance = static_cast<double>(scale.values[i]) + epsilon;
    if (!(variance > 0)) layer.refuse(ErrorCode::bad_input, "a variance plus epsilon is {}", variance);
    scale.values[i] = static_cast<float>((affine ? static_cast<double>(w[0].values[i]) : 1.0) / std::sqrt(variance));
  }
  network.apply("Sub", {w[affine ? 2 : 0]});
  network.apply("Mul", {scale});
  if (affine) network.apply("Add", {w[1]});
}

void add_slopes(SequenceNetwork& network, const Object& layer) {
  require_activation(layer, "");
  const bool shared = !layer.weights.empty() && layer.weights[0].values.size() == 1;
  require_weights(layer, {{1, shared ? 1 : network.channels()}});
  network.apply("PRelu", {{{layer.weights[0].shape[1]}, layer.weights[0].values}});
}

void add_layer(SequenceNetwork& network, const Object& layer) {
  const std::string_view type = layer.text("type");
  constexpr std::array types = {
      "dense",     "time-distributed-dense", "lstm", "gru", "conv1d", "conv2d", "batchnorm2d", "prelu", "batchnorm",
      "activation"};
  if (std::ranges::find(types, type) == types.end()) {
    layer.refuse(ErrorCode::unsupported, "there is no such layer here; supported: {}", fmt::join(types, ", "));
  }
  const Index size = values_of(layer, "shape"), before = network.channels();
  if (type == "lstm" || type == "gru") return add_recurrent(network, layer, size);
  if (type == "conv1d") return add_convolution(network, layer, size);
  if (type == "conv2d") return add_convolution_2d(network, layer, size);
  if (type.ends_with("dense")) {
    std::vector<network::Shape> shapes = {{before, size}, {size}};
    if (layer.weights.size() == 1) shapes.pop_back();
    require_weights(layer, shapes);
    network.dense(layer.weights[0], layer.weights.size() == 2 ? layer.weights[1] : Array());
    return add_activation(network, layer);
  }
  if (size != before) layer.refuse(ErrorCode::bad_input, "it has {} inputs and {} outputs", before, size);
  if (type == "prelu") return add_slopes(network, layer);
  if (type == "batchnorm") return add_norm(network, layer, size);
  if (type == "batchnorm2d") return add_norm(network, layer, layer.integer("num_filters_in", 1, kMostUnits));
  require_weights(layer, {});
  add_activation(network, layer);
}

void multiply(SequenceNetwork& network, const Object& top, const char* name) {
  const double decibels = top.numbers.contains(name) ? top.number(name) : 0.0;
  if (decibels == 0.0) return;
  network.name(name);
  network.apply("Mul", {{{1}, {static_cast<float>(std::pow(10.0, decibels / 20.0))}}});
}

/// Also as AIDA-X extends it: gains in decibels, and an input that is added to the output.
network::Network read_rtneural(const Document& document) {
  const Object& top = document.top;
  SequenceNetwork network(values_of(top, "in_shape"));
  multiply(network, top, "in_gain");
  network.keep_input();
  for (std::size_t i = 0; i < document.layers.size(); ++i) {
    network.name(fmt::format("layers.{}", i));
    add_layer(network, document.layers[i]);
  }
  network.name("in_skip");
  const Index skip = top.integer("in_skip", 0, 1, 0);
  if (skip == 1) network.add_input(1);
  multiply(network, top, "out_gain");
  return network.finish();
}

// GuitarML --------------------------------------------------------------------------------------------------------

/// SimpleRNN of Automated-GuitarAmpModelling, which Proteus and other plugins read.
network::Network read_guitarml(const Document& document) {
  const Object &data = document.model_data, &weights = document.state_dict;
  if (data.text("model") != "SimpleRNN") {
    data.refuse(ErrorCode::unsupported, "model {}; supported: SimpleRNN", in_quotes(data.text("model")));
  }
  const std::string_view unit = data.text("unit_type");
  const Index gates = unit == "LSTM" ? 4 : unit == "GRU" ? 3 : unit == "RNN" ? 1 : 0;
  if (gates == 0) data.refuse(ErrorCode::unsupported, "unit_type {}; supported: LSTM, GRU, RNN", in_quotes(unit));
  const Index hidden = data.integer("hidden_size", 1, kMostUnits), inputs = data.integer("input_size", 1, kMostUnits);
  const Index outputs = data.integer("output_size", 1, kMostUnits), layers = data.integer("num_layers", 1, 100, 1);
  const Index skip = data.integer("skip", 0, inputs), bias = data.integer("bias_fl", 0, 1, 1);
  if (skip > 1 && skip != outputs) {
    data.refuse(ErrorCode::unsupported, "skip is {}, expected 0, 1 or output_size, {}", skip, outputs);
  }
  if (static_cast<Index>(weights.numbers.size()) != 4 * layers + 1 + bias) {
    weights.refuse(ErrorCode::bad_input, "{} tensors, expected {} of {} layers and lin", weights.numbers.size(),
                   4 * layers + 1 + bias, layers);
  }
  SequenceNetwork network(inputs);
  for (Index layer = 0; layer < layers; ++layer) {
    const auto tensor = [&](const char* name, const network::Shape& shape) {
      return weights.array(fmt::format("rec.{}_l{}", name, layer), shape);
    };
    network.name(fmt::format("rec.{}", layer));
    network.recurrent(
        gates == 4   ? "lstm"
        : gates == 3 ? "gru"
                     : "elman",
        hidden,
        {tensor("weight_ih", {gates * hidden, network.channels()}), tensor("weight_hh", {gates * hidden, hidden}),
         tensor("bias_ih", {gates * hidden}), tensor("bias_hh", {gates * hidden})});
  }
  network.name("lin");
  network.dense(transposed(weights.array("lin.weight", {outputs, hidden})),
                bias == 1 ? weights.array("lin.bias", {outputs}) : Array());
  network.name("skip");
  if (skip > 0) network.add_input(skip);
  return network.finish();
}

// Neural Amp Modeler ----------------------------------------------------------------------------------------------

network::Network read_nam(const Document& document) {
  const Object &top = document.top, &config = document.config;
  if (top.text("architecture") != "LSTM") {
    top.refuse(ErrorCode::unsupported, "architecture {}; supported: LSTM", in_quotes(top.text("architecture")));
  }
  const Index hidden = config.integer("hidden_size", 1, kMostUnits), layers = config.integer("num_layers", 1, 100);
  const Index inputs = config.integer("input_size", 1, kMostUnits);
  const Index outputs = config.integer("out_channels", 1, kMostUnits, 1), units = 4 * hidden;
  const auto size = [&](Index layer) { return units * ((layer == 0 ? inputs : hidden) + hidden + 1) + 2 * hidden; };
  const Index all = size(0) + (layers - 1) * size(1) + outputs * (hidden + 1);
  const std::vector<float>& values = top.array("weights", {all}).values;
  auto at = values.begin();
  const auto take = [&](network::Shape shape) {
    Index count = 1;
    for (const Index extent : shape) count *= extent;
    Array array{std::move(shape), {at, at + count}};
    at += count;
    return array;
  };
  SequenceNetwork network(inputs);
  for (Index layer = 0; layer < layers; ++layer) {
    // Rows are [W_ih | W_hh].
    const Index before = network.channels();
    const Array both = transposed(take({units, before + hidden}));
    const auto middle = both.values.begin() + before * units;
    const Array bias = take({units}), h = take({1, hidden}), c = take({1, hidden});
    network.name(fmt::format("lstm.{}", layer));
    network.recurrent("lstm", hidden,
                      {transposed({{before, units}, {both.values.begin(), middle}}),
                       transposed({{hidden, units}, {middle, both.values.end()}}),
                       bias,
                       {},
                       h,
                       c});
  }
  network.name("head");
  const Array weight = take({outputs, hidden});
  network.dense(transposed(weight), take({outputs}));
  return network.finish();
}

/// Samples per second; 0: the file does not say.
double sample_rate(const Document& document) {
  for (const Object* object : {&document.top, &document.metadata, &document.model_data, &document.config}) {
    for (const char* name : {"sample_rate", "samplerate"}) {
      double rate = object->numbers.contains(name) ? object->number(name) : 0.0;
      const std::string_view text = object->text(name);
      std::from_chars(text.data(), text.data() + text.size(), rate);
      if (rate >= 1.0 && rate <= 1e7) return rate;
    }
  }
  return document.top.text("architecture").empty() ? 0.0 : 48000.0;  // which Neural Amp Modeler leaves out
}

network::Network read(const Document& document) {
  if (document.top.numbers.contains("in_shape") || !document.layers.empty()) return read_rtneural(document);
  if (!document.model_data.place.empty()) return read_guitarml(document);
  if (!document.top.text("architecture").empty()) return read_nam(document);
  document.top.refuse(ErrorCode::incompatible,
                      "no model: expected in_shape and layers (RTNeural), model_data and state_dict (GuitarML), or "
                      "architecture and weights (Neural Amp Modeler); the weights of PyTorch alone do not say what "
                      "the layers are");
}

}  // namespace

network::Network import_audio(std::string_view content, const std::string& source) {
  const Document document = read_document(content, source);
  network::Network network = read(document);
  require_ok(network::check(network), source + ": ");
  onnx::make_stream(network, "time", source);
  onnx::drop_unused(network);
  require_ok(network::check(network), source + ": as a stream: ");
  network.sample_rate = sample_rate(document);
  return network;
}

}  // namespace penstock::io::audio
