#include <fmt/format.h>

#include <string>
#include <vector>

#include "io/onnx/onnx_file.h"
#include "io/onnx/recurrence.h"
#include "nn/recurrent_graph.h"
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

    const std::vector<nn::LayerParameters> layers = nn::layer_parameters(spec_);
    std::string x = "x";
    std::vector<std::string> next;
    for (Index layer = 0; layer < spec_.layers; ++layer) {
      std::vector<std::string> outputs;
      for (Index direction = 0; direction < spec_.directions(); ++direction) {
        const Index slot = layer * spec_.directions() + direction;
        const OnnxRecurrentValues made = write_slot(layers[static_cast<std::size_t>(slot)], slot, x);
        outputs.push_back(made.y);
        next.push_back(made.state);
      }
      x = outputs.size() == 1 ? outputs.front() : graph_.node("Concat", outputs, {{"axis", 2}});
    }
    graph_.enter("");
    graph_.output({"y", "float", {"batch", "time", number(spec_.output_size())}, ""}, x);
    graph_.output({"next_state", "float", state, "Behind the last step"}, graph_.node("Concat", next, {{"axis", 1}}));
    return {graph_.inputs(), graph_.outputs(), onnx_file(graph_, {{"cell", spec_.cell}})};
  }

 private:
  OnnxRecurrentValues write_slot(const nn::LayerParameters& parameters, Index slot, const std::string& x) {
    const bool first = slot < spec_.directions();
    const bool reverse = spec_.direction == Direction::reverse || slot % spec_.directions() == 1;
    const ops::Recurrence shape{.cell = spec_.cell,
                                .input = first ? spec_.input_size : spec_.output_size(),
                                .hidden = spec_.hidden_size,
                                .heads = spec_.heads,
                                .reverse = reverse,
                                .bias = spec_.bias};
    const std::string name = fmt::format("layer{}{}", slot / spec_.directions(), reverse ? ".reverse" : "");
    graph_.enter(name + "/");
    const std::vector<float> ih = values(parameters.weight_ih), hh = values(parameters.weight_hh),
                             bias_ih = values(parameters.bias_ih), bias_hh = values(parameters.bias_hh);
    // [S, slots, B, H] -> [S, B, H] -> [B, S * H], and at the end back to [S, 1, B, H].
    const std::string of_slot = graph_.node(
        "Squeeze", {graph_.node("Gather", {"state", graph_.integers({slot})}, {{"axis", 1}}), graph_.integers({1})});
    const std::vector<Index> swapped = {1, 0, 2};
    const std::string by_row = graph_.node("Transpose", {of_slot}, {{"perm", swapped}});
    const std::string state = graph_.node("Reshape", {by_row, graph_.integers({0, states_ * spec_.hidden_size})});
    OnnxRecurrentValues made = add_recurrence(graph_, shape, {ih, hh, bias_ih, bias_hh}, x, state, name);
    const std::string parts = graph_.node("Reshape", {made.state, graph_.integers({0, states_, spec_.hidden_size})});
    made.state =
        graph_.node("Unsqueeze", {graph_.node("Transpose", {parts}, {{"perm", swapped}}), graph_.integers({1})});
    return made;
  }

  /// Of a parameter by its number, from whichever device; none where there is no such parameter.
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
  io::write_onnx(path, onnx);
  return onnx;
}

}  // namespace penstock
