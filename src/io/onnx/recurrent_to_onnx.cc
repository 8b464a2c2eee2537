#include <fmt/format.h>

#include <string>
#include <vector>

#include "io/onnx/onnx_file.h"
#include "io/onnx/recurrence.h"
#include "nn/layer/recurrent_graph.h"
#include "penstock/file_writer.h"
#include "penstock/onnx.h"

namespace penstock {

namespace io {

namespace {

/// Writes a stack of recurrent layers. Its state is [S, slots, B, H], with a slot for each layer and direction.
class StackWriter {
 public:
  explicit StackWriter(const Recurrent<float>& network)
      : network_(network), spec_(network.spec()), states_(find_cell(spec_.cell).states) {}

  OnnxModel write() {
    const Index slots = spec_.layers * spec_.directions();
    const auto number = [](Index n) { return std::to_string(n); };
    const std::vector<std::string> state = {number(states_), number(slots), "batch", number(spec_.hidden_size)};
    graph_.input({"x", "float", {"batch", "time", number(spec_.input_size)}, ""});
    graph_.input({"state", "float", state, "Before the first step; zeros at the start of a sequence"});

    std::vector<std::vector<std::string>> states = split(slots);  // [B, H] of each slot and state
    const std::vector<nn::LayerParameters> layers = nn::layer_parameters(spec_);
    std::string x = "x";
    for (Index layer = 0; layer < spec_.layers; ++layer) {
      std::vector<std::string> outputs;
      for (Index direction = 0; direction < spec_.directions(); ++direction) {
        const auto slot = static_cast<std::size_t>(layer * spec_.directions() + direction);
        const OnnxRecurrentValues made = write_slot(layers[slot], layer, direction, x, states[slot]);
        outputs.push_back(made.y);
        states[slot] = made.states;
      }
      x = joined(outputs, 2);
    }
    graph_.enter("");
    graph_.output({"y", "float", {"batch", "time", number(spec_.output_size())}, ""}, x);
    graph_.output({"next_state", "float", state, "Behind the last step"}, joined(states));
    return {graph_.inputs(), graph_.outputs(), onnx_file(graph_, {{"cell", spec_.cell}})};
  }

 private:
  std::vector<std::string> parts(const std::string& x, Index count, Index axis) {
    if (count == 1) return {x};
    return graph_.node(static_cast<int>(count), "Split", {x}, {{"axis", axis}});
  }
  std::string joined(const std::vector<std::string>& parts, Index axis) {
    return parts.size() == 1 ? parts.front() : graph_.node("Concat", parts, {{"axis", axis}});
  }

  std::vector<std::vector<std::string>> split(Index slots) {
    std::vector<std::vector<std::string>> all(static_cast<std::size_t>(slots));
    for (const std::string& of_slots : parts("state", states_, 0)) {
      const std::vector<std::string> each = parts(of_slots, slots, 1);
      for (std::size_t i = 0; i < all.size(); ++i) {
        all[i].push_back(graph_.node("Squeeze", {each[i], graph_.integers({0, 1})}));
      }
    }
    return all;
  }

  /// Back again.
  std::string joined(const std::vector<std::vector<std::string>>& states) {
    std::vector<std::string> all;
    for (std::size_t state = 0; state < states.front().size(); ++state) {
      std::vector<std::string> of_slots;
      for (const auto& of_slot : states) {
        of_slots.push_back(graph_.node("Unsqueeze", {of_slot[state], graph_.integers({0, 1})}));
      }
      all.push_back(joined(of_slots, 1));
    }
    return joined(all, 0);
  }

  OnnxRecurrentValues write_slot(const nn::LayerParameters& parameters, Index layer, Index direction,
                                 const std::string& x, const std::vector<std::string>& states) {
    const bool reverse = spec_.direction == Direction::reverse || direction == 1;
    const ops::Recurrence shape{.cell = spec_.cell,
                                .input = layer == 0 ? spec_.input_size : spec_.output_size(),
                                .hidden = spec_.hidden_size,
                                .heads = spec_.heads,
                                .reverse = reverse,
                                .bias = spec_.bias};
    const std::string name = fmt::format("layer{}{}", layer, reverse ? ".reverse" : "");
    graph_.enter(name + "/");
    const std::vector<float> ih = values(parameters.weight_ih), hh = values(parameters.weight_hh),
                             bias_ih = values(parameters.bias_ih), bias_hh = values(parameters.bias_hh);
    return add_recurrence(graph_, shape, {ih, hh, bias_ih, bias_hh}, x, states, name);
  }

  /// Returns the values of a parameter by its number, from any device; empty if there is no such parameter.
  std::vector<float> values(int parameter) const {
    if (parameter < 0) return {};
    const Recurrent<float>::Parameter& of = network_.parameters()[static_cast<std::size_t>(parameter)];
    Index count = 1;
    for (const Index n : of.shape) count *= n;
    std::vector<float> result(static_cast<std::size_t>(count));
    network_.read(of.name, result);
    return result;
  }

  const Recurrent<float>& network_;
  const RecurrentSpec& spec_;
  const Index states_;
  OnnxGraph graph_{""};
};

}  // namespace

}  // namespace io

OnnxModel to_onnx(const Recurrent<float>& network) { return io::StackWriter(network).write(); }

OnnxModel save_onnx(const Recurrent<float>& network, const std::string& path) {
  OnnxModel onnx = to_onnx(network);
  write_file(path, onnx.file);
  return onnx;
}

}  // namespace penstock
