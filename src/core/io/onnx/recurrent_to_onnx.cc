#include <fmt/format.h>

#include <span>
#include <string>
#include <vector>

#include "io/onnx/graph_writer.h"
#include "io/onnx/onnx_file.h"
#include "nn/model/graph_builder.h"
#include "penstock/file_writer.h"
#include "penstock/onnx.h"

namespace penstock {

namespace io {

namespace {

const std::vector<Index> rows_and_states = {2, 1, 0, 3};  // [S, slots, B, H] -> [B, slots, S, H], and back

/// Writes a stack of recurrent layers, each as a graph of its one or two directions. The state of the stack is
/// [S, slots, B, H], with a slot for each layer and direction; that of a layer is [B, its slots * S * H].
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

    const std::string rows_first = graph_.node("Transpose", {"state"}, {{"perm", rows_and_states}});
    const Index width = slots * states_ * spec_.hidden_size;
    std::vector<std::string> states = {graph_.node("Reshape", {rows_first, graph_.integers({0, width})})};
    if (spec_.layers > 1) {
      states = graph_.node(static_cast<int>(spec_.layers), "Split", states, {{"axis", 1}});
    }
    std::string x = "x";
    for (Index layer = 0; layer < spec_.layers; ++layer) {
      x = write_layer(layer, x, states[static_cast<std::size_t>(layer)]);
    }
    graph_.enter("");
    graph_.output({"y", "float", {"batch", "time", number(spec_.output_size())}, ""}, x);
    const std::string next =
        graph_.node("Reshape", {joined(states, 1), graph_.integers({0, slots, states_, spec_.hidden_size})});
    graph_.output({"next_state", "float", state, "Behind the last step"},
                  graph_.node("Transpose", {next}, {{"perm", rows_and_states}}));
    return {graph_.inputs(), graph_.outputs(), onnx_file(graph_, {{"cell", spec_.cell}})};
  }

 private:
  std::string joined(const std::vector<std::string>& parts, Index axis) {
    return parts.size() == 1 ? parts.front() : graph_.node("Concat", parts, {{"axis", axis}});
  }

  /// Writes a layer that reads x. Returns its output, and replaces its state by the next one.
  std::string write_layer(Index layer, const std::string& x, std::string& state) {
    nn::GraphBuilder builder({});
    const Index input = layer == 0 ? spec_.input_size : spec_.output_size();
    const nn::ValueId features =
        builder.external("x", graph::Home::features, graph::Extent::positions, input, builder.target().dtype);
    std::vector<nn::ValueId> made;
    for (Index direction = 0; direction < spec_.directions(); ++direction) {
      const bool reverse = spec_.direction == Direction::reverse || direction == 1;
      made.push_back(builder.recurrence(fmt::format("layer{}{}", layer, reverse ? ".reverse" : ""), features,
                                        {.cell = spec_.cell,
                                         .input = input,
                                         .hidden = spec_.hidden_size,
                                         .heads = spec_.heads,
                                         .reverse = reverse,
                                         .bias = spec_.bias}));
    }
    const graph::Graph layer_graph = builder.take_graph();
    const std::vector<float> values = read_values(builder.layout());
    GraphWriter writer(graph_, layer_graph, values);
    writer.write(x, state);
    state = writer.next_state();
    std::vector<std::string> outputs;
    for (const nn::ValueId id : made) outputs.push_back(writer.name_of(id));
    return joined(outputs, 2);
  }

  /// Reads the parameters of the next layer, which are in the order of the network's, from any device.
  std::vector<float> read_values(const nn::ParameterLayout& layout) {
    std::vector<float> values(static_cast<std::size_t>(layout.size()));
    for (const nn::ParameterEntry& entry : layout.entries()) {
      network_.read(
          network_.parameters()[parameters_read_++].name,
          std::span(values).subspan(static_cast<std::size_t>(entry.offset), static_cast<std::size_t>(entry.size)));
    }
    return values;
  }

  const Recurrent<float>& network_;
  const RecurrentSpec& spec_;
  const Index states_;
  std::size_t parameters_read_ = 0;
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
