#include "io/audio/sequence_network.h"

#include <algorithm>
#include <numeric>

#include "io/onnx/read/tensor.h"

namespace penstock::io::audio {

SequenceNetwork::SequenceNetwork(Index inputs) : channels_(inputs) {
  value_ = add_value({.name = "input", .shape = {-1, -1, inputs}, .axes = {"batch", "time", ""}});
  network_.inputs = {value_};
}

int SequenceNetwork::add_value(network::Value value) {
  network_.values.push_back(std::move(value));
  return static_cast<int>(network_.values.size()) - 1;
}

int SequenceNetwork::constant(const Array& array) {
  if (array.values.empty()) return -1;
  network_.constants.push_back(
      onnx::make_constant(network::Type::f32, array.shape, std::as_bytes(std::span(array.values))));
  return add_value({.name = fmt::format("{}.{}", name_, network_.values.size()),
                    .shape = array.shape,
                    .constant = static_cast<int>(network_.constants.size()) - 1});
}

int SequenceNetwork::integers(const std::vector<Index>& values) {
  network_.constants.push_back(onnx::make_integers({static_cast<Index>(values.size())}, values));
  return add_value({.name = fmt::format("{}.{}", name_, network_.values.size()),
                    .type = network::Type::i64,
                    .shape = {static_cast<Index>(values.size())},
                    .constant = static_cast<int>(network_.constants.size()) - 1});
}

int SequenceNetwork::node(std::string_view op, std::vector<int> reads, std::vector<network::Attribute> attributes) {
  const int written = add_value({.name = fmt::format("{}.{}", name_, network_.values.size())});
  network_.nodes.push_back({.op = std::string(op),
                            .name = name_,
                            .reads = std::move(reads),
                            .writes = {written},
                            .attributes = std::move(attributes)});
  return written;
}

void SequenceNetwork::to(const std::string& axes) {
  if (axes == axes_) return;
  std::vector<Index> perm;
  for (const char axis : axes) perm.push_back(static_cast<Index>(axes_.find(axis)));
  value_ = node("Transpose", {value_}, {{.name = "perm", .integers = perm}});
  axes_ = axes;
}

void SequenceNetwork::apply(std::string_view op, const std::vector<Array>& constants) {
  if (axes_ == "bct") to("btc");
  std::vector<int> reads = {value_};
  for (const Array& each : constants) reads.push_back(constant(each));
  std::vector<network::Attribute> attributes;
  if (op == "Softmax") attributes.push_back({.name = "axis", .integers = {2}});
  value_ = node(op, std::move(reads), std::move(attributes));
}

void SequenceNetwork::dense(const Array& weight, const Array& bias) {
  apply("MatMul", {weight});
  if (!bias.values.empty()) apply("Add", {bias});
  channels_ = weight.shape[1];
}

void SequenceNetwork::recurrent(std::string_view cell, Index hidden, std::vector<Array> weights) {
  to("tbc");
  std::vector<int> reads = {value_};
  for (std::size_t i = 0; i < weights.size(); ++i) {
    Array& each = weights[i];
    const bool state = i + 1 >= network::kRecurrentFirstState;
    if (state && std::ranges::all_of(each.values, [](float value) { return value == 0; })) each = {};
    each.shape.insert(each.shape.begin(), 1);
    if (state && !each.values.empty()) network_.values[static_cast<std::size_t>(network_.inputs[0])].shape[0] = 1;
    reads.push_back(constant(each));
  }
  value_ = node("Recurrent", std::move(reads),
                {{.name = "cell", .text = std::string(cell)}, {.name = "direction", .text = "forward"}});
  channels_ = hidden;
}

void SequenceNetwork::convolution(const Array& weight, const Array& bias, Index dilation, Index groups) {
  to("bct");
  value_ = node("Conv", {value_, constant(weight), constant(bias)},
                {{.name = "dilations", .integers = {dilation}},
                 {.name = "group", .integers = {groups}},
                 {.name = "pads", .integers = {(weight.shape[2] - 1) * dilation, 0}}});
  channels_ = weight.shape[0];
}

void SequenceNetwork::convolution_2d(const Array& weight, const Array& bias, Index dilation, Index stride,
                                     std::array<Index, 2> pads) {
  const Index maps = weight.shape[0], inner = weight.shape[1], features = channels_ / inner;
  to("btc");
  value_ = node("Reshape", {value_, integers({0, 0, features, inner})});
  value_ = node("Transpose", {value_}, {{.name = "perm", .integers = {0, 3, 1, 2}}});
  value_ = node("Conv", {value_, constant(weight), constant(bias)},
                {{.name = "dilations", .integers = {dilation, 1}},
                 {.name = "strides", .integers = {1, stride}},
                 {.name = "pads", .integers = {(weight.shape[2] - 1) * dilation, pads[0], 0, pads[1]}}});
  channels_ = ((features + pads[0] + pads[1] - weight.shape[3]) / stride + 1) * maps;
  value_ = node("Transpose", {value_}, {{.name = "perm", .integers = {0, 2, 3, 1}}});
  value_ = node("Reshape", {value_, integers({0, 0, channels_})});
}

void SequenceNetwork::add_input(Index channels) {
  to("btc");
  const network::Value& input = network_.values[static_cast<std::size_t>(network_.inputs[0])];
  int added = input_;
  if (channels < input.shape[2]) {
    std::vector<Index> first(static_cast<std::size_t>(channels));
    std::iota(first.begin(), first.end(), Index{0});
    added = node("Gather", {input_, integers(first)}, {{.name = "axis", .integers = {2}}});
  }
  value_ = node("Add", {value_, added});
}

network::Network SequenceNetwork::finish() {
  to("btc");
  name_ = "output";
  if (network_.nodes.empty()) value_ = node("Identity", {value_});
  network_.values[static_cast<std::size_t>(value_)].name = "output";
  network_.outputs = {value_};
  return std::move(network_);
}

}  // namespace penstock::io::audio
