#include "io/onnx/graph_writer.h"

#include <algorithm>
#include <any>
#include <limits>
#include <numeric>
#include <stdexcept>

#include "io/onnx/layer_to_onnx.h"

namespace penstock::io {

using graph::Home;
using graph::ValueId;

namespace {

const std::vector<Index> rows_of_channels = {0, 2, 1};  // [B, T, W] -> [B, W, T], and back

}  // namespace

GraphWriter::GraphWriter(OnnxGraph& onnx, const graph::Graph& graph, std::span<const float> parameters,
                         const nn::Parameters<float>* int8)
    : onnx_(onnx), graph_(graph), parameters_(parameters), int8_(int8), names_(graph.values().size()) {
  for (int i = 0; i < static_cast<int>(names_.size()); ++i) {
    const graph::Value& value = graph.value({i});
    if (value.home != Home::state_in || value.width == 0) continue;
    carried_.push_back({i});
    state_size_ += value.width;
  }
  std::ranges::sort(carried_, {}, [&](ValueId id) { return graph.value(id).offset; });
  next_states_.resize(carried_.size());
}

void GraphWriter::write(const std::string& input, const std::string& state) {
  for (int i = 0; i < static_cast<int>(names_.size()); ++i) {
    const Home home = graph_.value({i}).home;
    if (home == Home::tokens || home == Home::features) names_[static_cast<std::size_t>(i)] = input;
  }
  split_state(state);
  for (const graph::Node& node : graph_.nodes()) {
    if (node.phase == graph::Phase::forward) write_node(node);
  }
}

void GraphWriter::split_state(const std::string& state) {
  if (carried_.empty()) return;
  std::vector<Index> widths;
  for (const ValueId id : carried_) widths.push_back(graph_.value(id).width);
  std::vector<std::string> parts = {state};
  if (widths.size() > 1) {
    parts = onnx_.node(static_cast<int>(widths.size()), "Split", {state, onnx_.integers(widths)}, {{"axis", 1}});
  }
  for (std::size_t i = 0; i < parts.size(); ++i) names_[static_cast<std::size_t>(carried_[i].index)] = parts[i];
}

std::string GraphWriter::next_state() {
  return next_states_.size() == 1 ? next_states_.front() : onnx_.node("Concat", next_states_, {{"axis", 1}});
}

void GraphWriter::write_node(const graph::Node& node) {
  node_ = &node;
  onnx_.enter(graph_.value(node.writes.front()).name + "/");
  const auto write_as = [&]<class... Shapes>() {
    const auto try_one = [&]<class Shape>(const Shape* shape) {
      if (shape != nullptr) write(*shape);
      return shape != nullptr;
    };
    return (try_one(std::any_cast<Shapes>(&node.op.definition)) || ...);
  };
  const bool known =
      write_as.operator()<ops::Embedding, ops::Linear, ops::ResidualNorm, ops::ResidualSum, ops::CausalConvolution,
                          ops::Recurrence, ops::SiluGate, ops::ClearPadding, ops::ReadChanges, ops::AddLastValues>();
  if (!known) throw std::logic_error("the op " + node.op.name + " cannot be written as ONNX");
}

const std::string& GraphWriter::read(int i) const { return name_of(node_->reads[static_cast<std::size_t>(i)]); }

std::span<const float> GraphWriter::parameter(int i) const {
  const ValueId id = node_->reads[static_cast<std::size_t>(i)];
  if (!id) return {};
  const graph::Value& value = graph_.value(id);
  return parameters_.subspan(static_cast<std::size_t>(value.offset), static_cast<std::size_t>(value.width));
}

OnnxMatrix GraphWriter::int8_matrix(const std::string& name) const {
  const nn::ParameterLayout& layout = int8_->layout();
  const nn::ParameterEntry *const rows = layout.find(name), *const scales = layout.find(name + ".scale");
  if (rows == nullptr) return {};  // a cell without it
  const std::span<const float> of_rows = int8_->value(*scales);
  return {{}, nn::int8_rows(*int8_, *rows), {of_rows.begin(), of_rows.end()}};
}

std::string GraphWriter::tensor(int i, const std::vector<Index>& shape) {
  const std::string& name = graph_.value(node_->reads[static_cast<std::size_t>(i)]).name;
  return onnx_.floats(name.substr(name.rfind('.') + 1), shape, parameter(i));
}

void GraphWriter::made(int i, const std::string& name) {
  const ValueId id = node_->writes[static_cast<std::size_t>(i) - node_->reads.size()];
  if (!id) return;
  names_[static_cast<std::size_t>(id.index)] = name;
  const graph::Value& value = graph_.value(id);
  if (value.home != Home::state_out) return;
  const auto in = std::ranges::find(carried_, value.offset, [&](ValueId of) { return graph_.value(of).offset; });
  next_states_[static_cast<std::size_t>(in - carried_.begin())] = name;
}

void GraphWriter::write(const ops::Embedding& shape) {
  using Of = ops::EmbeddingOperand;
  const std::string& tokens = read(Of::tokens);
  if (!shape.int8) {
    made(Of::y, onnx_.node("Gather", {tensor(Of::table, {shape.vocabulary, shape.width}), tokens}));
    return;
  }
  const OnnxMatrix table = int8_matrix(graph_.value(node_->reads[Of::table]).name);
  const std::string rows =
      onnx_.node("Gather", {onnx_.bytes("weight", {shape.vocabulary, shape.width}, table.int8), tokens});
  const std::string scales =
      onnx_.node("Gather", {onnx_.floats("weight.scale", {shape.vocabulary, 1}, table.scales), tokens});
  made(ops::Int8EmbeddingOperand::y, onnx_.node("Mul", {onnx_.cast(rows, "float"), scales}));
}

void GraphWriter::write(const ops::Linear& shape) {
  using Of = ops::LinearOperand;
  const OnnxMatrix weight =
      shape.int8 ? int8_matrix(graph_.value(node_->reads[Of::weight]).name) : OnnxMatrix{parameter(Of::weight), {}, {}};
  const std::string product = add_product(onnx_, read(Of::x), "weight", weight, shape.outputs, shape.inputs);
  made(Of::y, onnx_.node("Add", {product, tensor(Of::bias, {shape.outputs})}));
}

void GraphWriter::write(const ops::ResidualNorm& shape) {
  using Of = ops::NormOperand;
  const std::string sum = shape.branch ? onnx_.node("Add", {read(Of::x), read(Of::branch)}) : read(Of::x);
  const std::string mean =
      onnx_.node("ReduceMean", {onnx_.node("Mul", {sum, sum})}, {{"axes", std::vector<Index>{-1}}, {"keepdims", 1}});
  const std::string size =
      onnx_.node("Sqrt", {onnx_.node("Add", {mean, onnx_.scalar(static_cast<float>(ops::ResidualNorm::epsilon))})});
  made(Of::normal, onnx_.node("Mul", {onnx_.node("Div", {sum, size}), tensor(Of::gain, {shape.width})}));
  made(Of::sum, sum);
}

void GraphWriter::write(const ops::ResidualSum&) {
  made(ops::ResidualSumOperand::sum,
       onnx_.node("Add", {read(ops::ResidualSumOperand::x), read(ops::ResidualSumOperand::branch)}));
}

void GraphWriter::write(const ops::CausalConvolution& shape) {
  using Of = ops::ConvolutionOperand;
  const Index taps = shape.taps, width = shape.width;
  std::vector<float> kernel = transposed(parameter(Of::weight), taps, width);                  // [width, 1, taps] ...
  for (auto of = kernel.begin(); of != kernel.end(); of += taps) std::reverse(of, of + taps);  // ... oldest step first
  std::string x = read(Of::x);
  if (taps > 1) {
    const std::string before = onnx_.node("Reshape", {read(Of::state_in), onnx_.integers({0, taps - 1, width})});
    x = onnx_.node("Concat", {before, x}, {{"axis", 1}});
    const std::string last =
        onnx_.node("Slice", {x, onnx_.integers({1 - taps}), onnx_.integers({std::numeric_limits<std::int64_t>::max()}),
                             onnx_.integers({1})});
    made(Of::state_out, onnx_.node("Reshape", {last, onnx_.integers({0, shape.state_size()})}));
  }
  const std::string channels = onnx_.node("Transpose", {x}, {{"perm", rows_of_channels}});
  const std::string y =
      onnx_.node("Conv", {channels, onnx_.floats("weight", {width, 1, taps}, kernel), tensor(Of::bias, {width})},
                 {{"group", width}});
  made(Of::y, onnx_.node("Transpose", {y}, {{"perm", rows_of_channels}}));
}

void GraphWriter::write(const ops::Recurrence& shape) {
  using Of = ops::ForwardOperand;
  const std::string name = graph_.value(node_->writes.front()).name;
  OnnxRecurrentWeights weights = {{parameter(Of::weight_ih), {}, {}},
                                  {parameter(Of::weight_hh), {}, {}},
                                  parameter(Of::bias_ih),
                                  parameter(Of::bias_hh)};
  if (shape.int8) {
    weights.ih = int8_matrix(name + ".weight_ih");
    weights.hh = int8_matrix(name + ".weight_hh");
  }
  const Index count = shape.state_size() / shape.hidden;
  std::vector<std::string> states = {read(Of::state_in)};
  if (count > 1) states = onnx_.node(static_cast<int>(count), "Split", {read(Of::state_in)}, {{"axis", 1}});
  const OnnxRecurrentValues values = add_recurrence(onnx_, shape, weights, read(Of::x), states, name);
  made(Of::y, values.y);
  made(Of::state_out, count == 1 ? values.states.front() : onnx_.node("Concat", values.states, {{"axis", 1}}));
}

void GraphWriter::write(const ops::SiluGate&) {
  const std::vector<std::string> parts = onnx_.node(2, "Split", {read(ops::UnaryOperand::x)}, {{"axis", -1}});
  const std::string gate = onnx_.node("Mul", {parts[0], onnx_.node("Sigmoid", {parts[0]})});
  made(ops::UnaryOperand::y, onnx_.node("Mul", {gate, parts[1]}));
}

// Rows have no padding here.
void GraphWriter::write(const ops::ClearPadding&) { made(ops::UnaryOperand::y, read(ops::UnaryOperand::x)); }

void GraphWriter::write(const ops::ReadChanges& op) {
  const ops::Changes& changes = op.changes;
  const Index shared = changes.shared();
  std::vector<Index> columns;
  std::vector<float> factors;
  std::vector<bool> bounded(static_cast<std::size_t>(changes.inputs));
  for (const ops::Changes::Shared& column : changes.columns) {
    columns.push_back(column.input);
    factors.push_back(static_cast<float>(changes.change_scale * column.factor));
    bounded[static_cast<std::size_t>(column.input)] = true;
  }
  const std::string& features = read(ops::ReadChangesOperand::features);
  const std::string levels = onnx_.node("Where", {onnx_.flags(bounded), onnx_.node("Tanh", {features}), features});
  // The row before every row, and in front of the first one what was carried; at the start of a sequence itself.
  const auto steps = [&](const std::string& x, Index begin, Index end) {
    return onnx_.node("Slice", {x, onnx_.integers({begin}), onnx_.integers({end}), onnx_.integers({1})});
  };
  const std::string values = onnx_.node("Gather", {features, onnx_.integers(columns)}, {{"axis", 2}});
  const std::vector<std::string> carried =
      onnx_.node(2, "Split", {read(ops::ReadChangesOperand::state_in), onnx_.integers({shared, 1})}, {{"axis", 1}});
  const auto with_steps = [&](const std::string& x) { return onnx_.node("Unsqueeze", {x, onnx_.integers({1})}); };
  const std::string starts = onnx_.node("Equal", {with_steps(carried[1]), onnx_.scalar(0.0f)});
  const std::string first = onnx_.node("Where", {starts, steps(values, 0, 1), with_steps(carried[0])});
  const std::string before = onnx_.node("Concat", {first, steps(values, 0, -1)}, {{"axis", 1}});
  const std::string moved =
      onnx_.node("Mul", {onnx_.node("Sub", {values, before}), onnx_.floats("factors", {shared}, factors)});
  made(ops::ReadChangesOperand::y, onnx_.node("Concat", {levels, moved}, {{"axis", 2}}));

  const std::string last =
      onnx_.node("Squeeze", {steps(values, -1, std::numeric_limits<std::int64_t>::max()), onnx_.integers({1})});
  const std::string seen = onnx_.node("Add", {onnx_.node("Mul", {carried[1], onnx_.scalar(0.0f)}), onnx_.scalar(1.0f)});
  made(ops::ReadChangesOperand::state_out, onnx_.node("Concat", {last, seen}, {{"axis", 1}}));
}

void GraphWriter::write(const ops::AddLastValues& op) {
  using Of = ops::AddLastValuesOperand;
  const ops::Changes& changes = op.changes;
  const auto width = static_cast<std::size_t>(changes.horizon * changes.targets);
  // Which input every output starts from, and how; outputs that start from none are left alone by factor and offset.
  std::vector<Index> inputs(width, 0);
  std::vector<float> factors(width, 0.0f), offsets(width, 0.0f);
  for (const ops::Changes::Shared& column : changes.columns) {
    for (auto i = static_cast<std::size_t>(column.target); i < width; i += static_cast<std::size_t>(changes.targets)) {
      inputs[i] = column.input;
      factors[i] = static_cast<float>(column.factor);
      offsets[i] = static_cast<float>(column.offset);
    }
  }
  std::vector<Index> all(static_cast<std::size_t>(changes.inputs));
  std::iota(all.begin(), all.end(), Index{0});
  const auto is = [](float value) { return [value](float x) { return x == value; }; };
  if (inputs == all && std::ranges::all_of(factors, is(1.0f)) && std::ranges::all_of(offsets, is(0.0f))) {
    made(Of::outputs, onnx_.node("Add", {read(Of::outputs_in), read(Of::features)}));
    return;
  }
  const std::vector<Index> shape = {changes.horizon * changes.targets};
  std::string last = onnx_.node("Gather", {read(Of::features), onnx_.integers(inputs)}, {{"axis", 2}});
  last = onnx_.node("Mul", {last, onnx_.floats("factors", shape, factors)});
  last = onnx_.node("Add", {last, onnx_.floats("offsets", shape, offsets)});
  made(Of::outputs, onnx_.node("Add", {read(Of::outputs_in), last}));
}

}  // namespace penstock::io
