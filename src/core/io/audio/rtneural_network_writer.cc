// Imported networks as JSON of RTNeural: a chain of layers from the input to the output. The written text is read again
// and must give the answers of the network.

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <nlohmann/json.hpp>
#include <utility>
#include <vector>

#include "base/check.h"
#include "base/random.h"
#include "io/audio/import.h"
#include "io/audio/rtneural_network_writer.h"
#include "io/audio/sequence_network.h"
#include "io/model_json.h"
#include "io/status_error.h"
#include "network/session.h"
#include "network/tensor.h"

namespace penstock::io::audio {
namespace {

using network::Network;
using network::Node;
using Rows = std::vector<std::vector<float>>;

constexpr std::array<std::pair<std::string_view, std::string_view>, 5> kActivations = {
    {{"Tanh", "tanh"}, {"Relu", "relu"}, {"Sigmoid", "sigmoid"}, {"Softmax", "softmax"}, {"Elu", "elu"}}};
/// Nodes that move no values of a step, or the answers of what is written differ.
constexpr std::array<std::string_view, 6> kViews = {"Identity",  "Transpose", "Squeeze",
                                                    "Unsqueeze", "Reshape",   "Flatten"};

class NetworkWriter {
 public:
  NetworkWriter(const Network& network, const std::string& source) : network_(network), source_(source) {}

  nlohmann::json write() {
    int from = the_only(network_.inputs, &network::State::input, "inputs");
    const int to = the_only(network_.outputs, &network::State::output, "outputs");
    if (value(from).type != network::Type::f32) refuse("input {} is not of the type f32", in_quotes(value(from).name));
    channels_ = value(from).shape.empty() ? -1 : value(from).shape.back();
    if (channels_ < 1) refuse("input {} has no fixed number of channels", in_quotes(value(from).name));
    const Index inputs = channels_;
    while (from != to) {
      const Node& node = reader_of(from);
      if (node.writes.empty() || node.writes[0] < 0) refuse_node(node, "nothing reads its result");
      add(node, from);
      from = node.writes[0];
    }
    return {{"in_shape", {nullptr, nullptr, inputs}}, {"samplerate", network_.sample_rate}, {"layers", layers_}};
  }

 private:
  template <class... Args>
  [[noreturn]] void refuse(fmt::format_string<Args...> reason, Args&&... args) const {
    fail(ErrorCode::unsupported, "{}RTNeural cannot express this network: {}", source_,
         fmt::format(reason, std::forward<Args>(args)...));
  }
  [[noreturn]] void refuse_node(const Node& node, const std::string& reason) const {
    refuse("{}{}: {}", node.op, node.name.empty() ? "" : " " + in_quotes(node.name), reason);
  }
  const network::Value& value(int number) const { return network_.values[static_cast<std::size_t>(number)]; }

  int the_only(const std::vector<int>& all, int network::State::*end, const char* what) const {
    std::vector<int> others;
    for (std::size_t i = 0; i < all.size(); ++i) {
      if (!is_state(network_, end, i)) others.push_back(all[i]);
    }
    if (others.size() != 1) refuse("it has {} {}, expected 1", others.size(), what);
    return others[0];
  }

  bool is_state_input(int number) const {
    return std::ranges::any_of(network_.states, [&](const network::State& each) {
      return network_.inputs[static_cast<std::size_t>(each.input)] == number;
    });
  }
  /// Cuts the frames that a convolution reads again in the next step.
  bool keeps_history(const Node& node) const {
    return node.op == "Slice" && std::ranges::any_of(network_.states, [&](const network::State& each) {
             return network_.outputs[static_cast<std::size_t>(each.output)] == node.writes[0];
           });
  }

  const Node& reader_of(int number) const {
    const Node* found = nullptr;
    for (const Node& node : network_.nodes) {
      if (std::ranges::find(node.reads, number) == node.reads.end() || keeps_history(node)) continue;
      if (found != nullptr) {
        refuse("{} and {} both read {}; RTNeural has one layer after the other", in_quotes(found->name),
               in_quotes(node.name), in_quotes(value(number).name));
      }
      found = &node;
    }
    if (found == nullptr) refuse("nothing reads {}", in_quotes(value(number).name));
    return *found;
  }

  const network::Constant& constant(const Node& node, std::size_t read) const {
    const int number = read < node.reads.size() && node.reads[read] >= 0 ? value(node.reads[read]).constant : -1;
    if (number < 0) refuse_node(node, fmt::format("its input {} must be a constant", read + 1));
    const network::Constant& it = network_.constants[static_cast<std::size_t>(number)];
    if (it.type != network::Type::f32 || it.shape.empty()) {
      refuse_node(node, fmt::format("its input {} must be an array of f32", read + 1));
    }
    return it;
  }

  static std::vector<float> floats(const network::Constant& from) {
    std::vector<float> values(from.bytes.size() / sizeof(float));
    std::memcpy(values.data(), from.bytes.data(), from.bytes.size());
    return values;
  }

  /// One number for each channel; a single one is for all.
  std::vector<float> channel_values(const Node& node, std::size_t read) const {
    const network::Constant& it = constant(node, read);
    std::vector<float> values = floats(it);
    if (values.size() == 1) values.resize(static_cast<std::size_t>(channels_), values[0]);
    const bool flat = std::ranges::all_of(it.shape, [&](Index extent) { return extent == 1 || extent == channels_; });
    if (!flat || static_cast<Index>(values.size()) != channels_) {
      refuse_node(node, fmt::format("its input {} has the shape {}, expected {} values", read + 1,
                                    network::text_of(it.shape), channels_));
    }
    return values;
  }

  /// The elements of a constant of that shape but for leading axes of 1; of none, zeros.
  std::vector<float> elements(const Node& node, std::size_t read, const network::Shape& shape) const {
    if (read >= node.reads.size() || node.reads[read] < 0) {
      return std::vector<float>(static_cast<std::size_t>(network::elements(shape)));
    }
    const network::Constant& it = constant(node, read);
    network::Shape own = it.shape;
    while (own.size() > shape.size() && own[0] == 1) own.erase(own.begin());
    if (own != shape) {
      refuse_node(node, fmt::format("its input {} has the shape {}, expected {}", read + 1, network::text_of(it.shape),
                                    network::text_of(shape)));
    }
    return floats(it);
  }

  void push(std::string_view type, std::string_view activation, nlohmann::json weights) {
    layers_.push_back({{"type", type},
                       {"activation", activation},
                       {"shape", {nullptr, nullptr, channels_}},
                       {"weights", std::move(weights)}});
  }
  bool ends_with(std::string_view type) const { return !layers_.empty() && layers_.back()["type"] == type; }
  /// A dense layer or a convolution can have an activation.
  bool is_open() const {
    return (ends_with("dense") || ends_with("conv1d") || ends_with("conv2d")) &&
           layers_.back()["activation"].get<std::string>().empty();
  }

  void add(const Node& node, int from) {
    if (node.op == "Conv" && node.reads[0] == from) return add_convolution(node);
    if (history_ != 0) refuse_node(node, "only a convolution may read earlier samples");
    if (node.op == "Concat" && node.reads.size() == 2 && node.reads[1] == from && is_state_input(node.reads[0])) {
      const network::Shape& shape = value(node.reads[0]).shape;  // [batch, channels, time] or [.., time, features]
      history_ = shape.size() < 3 ? 0 : shape[2];
      return;
    }
    if (node.op == "Recurrent" && node.reads[0] == from) return add_recurrent(node);
    if (node.op == "MatMul" && node.reads[0] == from) return add_dense(node);
    if (node.op == "PRelu" && node.reads[0] == from) {
      return push("prelu", "", nlohmann::json::array({Rows{channel_values(node, 1)}}));
    }
    if (node.op == "Add" && is_open() && !ends_with("conv2d")) {
      auto& bias = layers_.back()["weights"][1];
      const std::vector<float> more = channel_values(node, node.reads[0] == from ? 1 : 0);
      for (std::size_t i = 0; i < more.size(); ++i) bias[i] = bias[i].get<float>() + more[i];
      return;
    }
    if (node.op == "Add" || node.op == "Mul" || (node.op == "Sub" && node.reads[0] == from)) {
      return add_norm(node, channel_values(node, node.reads[0] == from ? 1 : 0));
    }
    if (std::ranges::find(kViews, node.op) != kViews.end() && node.reads[0] == from) return;
    const auto found = std::ranges::find(kActivations, node.op, &std::pair<std::string_view, std::string_view>::first);
    if (found == kActivations.end()) {
      refuse_node(node,
                  "RTNeural has no such operator; supported: lstm, gru, dense, conv1d, conv2d, prelu, batchnorm, "
                  "tanh, relu, sigmoid, softmax, elu");
    }
    if (is_open()) return static_cast<void>(layers_.back()["activation"] = found->second);
    push("activation", found->second, nlohmann::json::array());
  }

  /// (x - mean) gamma + beta, to which Sub, Mul and Add of constants are put together.
  void add_norm(const Node& node, const std::vector<float>& by) {
    if (!ends_with("batchnorm")) {
      const std::vector<float> zeros(by.size(), 0.0f), ones(by.size(), 1.0f);
      push("batchnorm", "", {ones, zeros, zeros, ones});
      layers_.back()["epsilon"] = 0.0;
    }
    nlohmann::json& weights = layers_.back()["weights"];
    for (std::size_t i = 0; i < by.size(); ++i) {
      const auto gamma = weights[0][i].get<float>(), beta = weights[1][i].get<float>();
      if (node.op == "Mul") {
        weights[0][i] = gamma * by[i];
        weights[1][i] = beta * by[i];
      } else if (node.op == "Sub" && gamma == 1 && beta == 0) {
        weights[2][i] = weights[2][i].get<float>() + by[i];
      } else {
        weights[1][i] = node.op == "Sub" ? beta - by[i] : beta + by[i];
      }
    }
  }

  void add_convolution(const Node& node) {
    const auto integer = [&](const char* name, std::size_t i, Index otherwise) {
      const network::Attribute* found = node.find(name);
      return found == nullptr || found->integers.size() <= i ? otherwise : found->integers[i];
    };
    const network::Shape shape = constant(node, 1).shape;
    const bool two = shape.size() == 4;
    if (shape.size() != 3 && !two) refuse_node(node, "expected one axis of time, and at most one of features");
    const Index maps = shape[0], inner = shape[1], steps = shape[2], groups = integer("group", 0, 1);
    const Index dilation = integer("dilations", 0, 1), features = two ? channels_ / inner : 1;
    if (inner * groups * features != channels_) refuse_node(node, fmt::format("it does not read {} values", channels_));
    if (integer("pads", 0, 0) != 0 || integer("pads", two ? 2 : 1, 0) != 0 || integer("strides", 0, 1) != 1 ||
        std::exchange(history_, 0) != (steps - 1) * dilation) {
      refuse_node(node, "RTNeural's reads the present sample and earlier ones, which begin as zeros, at stride 1");
    }
    const std::vector<float> weights = elements(node, 1, shape), bias = elements(node, 2, {maps});
    const Index taps = network::elements(shape) / (maps * inner), width = taps / steps;
    std::vector<Rows> kernel;
    for (Index tap = 0; tap < taps; ++tap) {
      kernel.push_back(
          matrix(inner, maps, [&](Index i, Index map) { return weights[(map * inner + i) * taps + tap]; }));
    }
    if (!two) {
      channels_ = maps;
      push("conv1d", "", {kernel, bias});
      return layers_.back().update({{"kernel_size", {steps}}, {"dilation", {dilation}}, {"groups", groups}});
    }
    const Index stride = integer("strides", 1, 1), before = integer("pads", 1, 0), behind = integer("pads", 3, 0);
    const Index same = same_padding(features, width, stride);
    const bool filled = before == same / 2 && behind == same - same / 2;
    if (groups != 1 || integer("dilations", 1, 1) != 1 || (!filled && before + behind != 0)) {
      refuse_node(node,
                  "RTNeural's has no groups, no dilation over features, and no padding but \"same\" or \"valid\"");
    }
    const Index outputs = (features + before + behind - width) / stride + 1;
    std::vector<std::vector<Rows>> planes;
    for (Index step = 0; step < steps; ++step) {
      planes.emplace_back(kernel.begin() + step * width, kernel.begin() + (step + 1) * width);
    }
    channels_ = outputs * maps;
    push("conv2d", "", {planes, bias});
    layers_.back().update({{"shape", {nullptr, nullptr, outputs, maps}},
                           {"kernel_size_time", steps},
                           {"kernel_size_feature", width},
                           {"dilation", dilation},
                           {"strides", stride},
                           {"num_filters_in", inner},
                           {"num_features_in", features},
                           {"num_filters_out", maps},
                           {"padding", before + behind != 0 ? "same" : "valid"}});
  }

  void add_dense(const Node& node) {
    const Index outputs = constant(node, 1).shape.back();
    const std::vector<float> weights = elements(node, 1, {channels_, outputs});
    const nlohmann::json rows = matrix(channels_, outputs, [&](Index i, Index k) { return weights[i * outputs + k]; });
    channels_ = outputs;
    push("dense", "", {rows, std::vector<float>(static_cast<std::size_t>(outputs))});
  }

  static Rows matrix(Index rows, Index columns, const auto& at) {
    Rows all;
    for (Index i = 0; i < rows; ++i) {
      all.emplace_back();
      for (Index k = 0; k < columns; ++k)
        all.back().push_back(at(static_cast<std::size_t>(i), static_cast<std::size_t>(k)));
    }
    return all;
  }

  void add_recurrent(const Node& node) {
    const auto text = [&](const char* name) { return node.find(name) == nullptr ? "" : node.find(name)->text; };
    const std::string cell = text("cell");
    if (cell != "lstm" && cell != "gru") refuse_node(node, "its cell is " + in_quotes(cell) + ", expected lstm or gru");
    if (text("direction") != "forward") refuse_node(node, "it does not run forward");
    const bool lstm = cell == "lstm";
    const std::size_t states = lstm ? 2 : 1;
    const std::size_t behind = network::kRecurrentFirstState + states;
    for (std::size_t i = network::kRecurrentFirstState; i < std::max(node.reads.size(), behind); ++i) {
      const int read = i < node.reads.size() ? node.reads[i] : -1;
      if (i < behind ? !is_state_input(read) : read >= 0) {
        refuse_node(node, "it does not begin with states of zero that go on from step to step");
      }
    }
    const Index gates = lstm ? 4 : 3;
    const Index hidden = constant(node, network::kRecurrentWeightHh).shape.back(), all = gates * hidden;
    // Ours: i, f, g, o and r, z, n; Keras: i, f, c, o and z, r, h.
    const auto row = [&](std::size_t column) {
      const auto h = static_cast<std::size_t>(hidden), gate = column / h;
      return (lstm || gate == 2 ? gate : 1 - gate) * h + column % h;
    };
    const std::vector<float> input = elements(node, network::kRecurrentWeightIh, {all, channels_});
    const std::vector<float> state = elements(node, network::kRecurrentWeightHh, {all, hidden});
    const std::vector<float> bias = elements(node, network::kRecurrentBiasIh, {all});
    const std::vector<float> other = elements(node, network::kRecurrentBiasHh, {all});
    const auto turned = [&](const std::vector<float>& from, Index inner) {
      return matrix(inner, all, [&, inner](std::size_t i, std::size_t k) {
        return from[row(k) * static_cast<std::size_t>(inner) + i];
      });
    };
    Rows biases = matrix(2, all, [&](std::size_t i, std::size_t k) { return (i == 0 ? bias : other)[row(k)]; });
    for (std::size_t k = 0; lstm && k < biases[0].size(); ++k) biases[0][k] += biases[1][k];
    nlohmann::json weights = {turned(input, channels_), turned(state, hidden)};
    weights.push_back(lstm ? nlohmann::json(biases[0]) : nlohmann::json(biases));
    channels_ = hidden;
    push(cell, "tanh", std::move(weights));
  }

  const Network& network_;
  const std::string& source_;
  nlohmann::json layers_ = nlohmann::json::array();
  Index channels_ = 0;
  Index history_ = 0;  // earlier frames that the next node, a convolution, reads
};

/// What a stream answers to some steps of random values. Free extents are 1.
std::vector<float> answers(Network network) {
  for (const int input : network.inputs) {
    for (Index& extent : network.values[static_cast<std::size_t>(input)].shape) extent = std::abs(extent);
  }
  std::vector<network::Shape> shapes;
  for (const int input : network.inputs) shapes.push_back(network.values[static_cast<std::size_t>(input)].shape);
  std::size_t input = 0, output = 0;
  while (is_state(network, &network::State::input, input)) ++input;
  while (is_state(network, &network::State::output, output)) ++output;
  std::shared_ptr<const network::Program> program;
  require_ok(network::Program::prepare(std::make_shared<const Network>(std::move(network)), shapes, program), "");
  std::unique_ptr<network::Session> session;
  require_ok(network::Session::open(program, nullptr, session), "");
  Random random(1);
  std::vector<float> all;
  Index steps = 16;  // and so many more that each history is filled
  for (const network::State& each : program->network().states) {
    const network::Shape& shape = shapes[static_cast<std::size_t>(each.input)];
    steps += shape.size() < 3 ? 0 : shape[2];
  }
  steps = std::min<Index>(steps, 4096);
  for (Index step = 0; step < steps; ++step) {
    auto* const x = static_cast<float*>(session->input(input));
    for (Index i = 0; i < network::elements(shapes[input]); ++i) x[i] = static_cast<float>(2 * random.uniform() - 1);
    session->run();
    const auto* const y = static_cast<const float*>(session->output(output));
    all.insert(all.end(), y, y + network::elements(program->output_shape(output)));
  }
  return all;
}

}  // namespace

std::string write_rtneural(const Network& network, const std::string& source) {
  std::string text = to_text(NetworkWriter(network, source).write());
  const std::vector<float> ours = answers(network),
                           theirs = answers(import_audio(text, source + "as JSON of RTNeural"));
  float difference = ours.size() == theirs.size() ? 0.0f : HUGE_VALF;
  for (std::size_t i = 0; i < std::min(ours.size(), theirs.size()); ++i) {
    difference = std::max(difference, std::abs(ours[i] - theirs[i]) / (1.0f + std::abs(ours[i])));
  }
  if (!(difference <= 1e-5f)) {
    fail(ErrorCode::unsupported, "{}RTNeural cannot express this network: the layers alone differ from it by {:.2g}",
         source, difference);
  }
  return text;
}

}  // namespace penstock::io::audio
