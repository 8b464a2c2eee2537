#include "nn/layer/recurrent_graph.h"

#include <fmt/format.h>

#include <string>

#include "nn/layer/stack_shape.h"
#include "ops/pointwise/cast.h"
#include "ops/pointwise/dropout.h"
#include "ops/recurrence/recurrence.h"
#include "ops/recurrence/recurrence_stack.h"
#include "ops/tensor_check.h"

namespace penstock::nn {

using graph::Extent;
using graph::Home;
using graph::Phase;

namespace {

/// Writes one pass of a stack down as a graph.
class StackBuilder {
 public:
  StackBuilder(const RecurrentSpec& spec, const RecurrentForm& form, const Execution& execution)
      : spec_(spec), form_(form), shape_(spec, form, execution), target_(shape_.target()) {
    for (const ParameterShape& parameter : parameter_shapes(spec)) {
      const auto size = static_cast<Index>(ops::count_of(parameter.shape));
      pass_.weights.push_back(given(parameter.name, size, form.weights));
      sizes_.push_back(size);
    }
    pass_.x = given_sequence("x", spec.input_size, form.dtype);
    pass_.state_in = given("state_in", shape_.entering_values(), target_.master());
  }

  StackPass forward() {
    add_forward();
    return finish([](StackPass& pass) { place_tape(pass); });
  }

  StackPass backward(const StackTape& tape) {
    add_backward(tape);
    return finish([&](StackPass& pass) { pass.tape = tape; });
  }

  std::vector<graph::Graph> graphs() {
    StackBuilder after = *this;
    add_forward();
    std::vector<graph::Graph> all = {graph_};
    if (!form_.has(CallFlag::training)) return all;
    StackTape tape;
    tape.kept.resize(static_cast<std::size_t>(shape_.slots()));
    after.add_backward(tape);
    all.push_back(after.graph_);
    return all;
  }

 private:
  using Place = StackShape::Place;

  void add_forward() {
    shape_.choose_storage(false);
    pass_.rounds_tape = ops::rounds_tape(shape_.layer({}), target_);
    pass_.y = given_sequence("y", spec_.output_size(), form_.dtype);
    input_ = in_floats(pass_.x, spec_.input_size, form_.x);
    output_ = shape_.casts() ? workspace_sequence("y f32", spec_.output_size()) : pass_.y;
    pass_.state_out = given("state_out", shape_.state_values(), target_.master());
    if (form_.has(CallFlag::every_state)) pass_.states = given_sequence("states", every_state_size(), target_.master());
    if (shape_.stacked()) {
      forward_stack();
    } else {
      forward_layers();
    }
    if (shape_.casts()) cast_sequence(output_, pass_.y, spec_.output_size(), form_.y, false);
  }

  void forward_layers() {
    for (Index layer = 0; layer < spec_.layers; ++layer) {
      const ValueId x = input_of(layer);
      for (Index direction = 0; direction < spec_.directions(); ++direction) {
        const Place at{layer, direction};
        const ValueId kept = keeps(at);
        std::vector<ValueId> reads = {x, state_part(pass_.state_in, at, shape_.entering_rows())};
        const std::vector<ValueId> weights = read_weights(at);
        append(reads, weights);
        const ops::Recurrence shape = shape_.layer(at);
        append(reads, {panels(at, shape, ops::forward_panels(target_), weights)});
        node(ops::recurrence_forward(shape), std::move(reads),
             {part_of(output_of(layer), direction), state_part(pass_.state_out, at, form_.rows), kept,
              states_part(pass_.states, at)});
      }
    }
  }

  void add_backward(const StackTape& tape) {
    shape_.choose_storage(true);
    pass_.rounds_tape = ops::rounds_tape(shape_.layer({}), target_);
    pass_.y = given_sequence("y", spec_.output_size(), form_.dtype);
    pass_.dy = given_sequence("dy", spec_.output_size(), form_.dtype);
    input_ = in_floats(pass_.x, spec_.input_size, form_.x);
    output_ = in_floats(pass_.y, spec_.output_size(), form_.y);
    const ValueId dy = in_floats(pass_.dy, spec_.output_size(), ops::strides_or(form_.dy, form_.y));
    pass_.dstate_out = given("dstate_out", shape_.state_values(), target_.master());
    pass_.dstate_in = given("dstate_in", shape_.entering_values(), target_.master());
    if (form_.has(CallFlag::every_state))
      pass_.dstates = given_sequence("dstates", every_state_size(), target_.master());
    if (!form_.has(CallFlag::no_input_gradient)) pass_.dx = given_sequence("dx", spec_.input_size, form_.dtype);
    const bool casts_dx = shape_.casts() && !form_.has(CallFlag::no_input_gradient);
    dx_ = casts_dx ? workspace_sequence("dx f32", spec_.input_size) : pass_.dx;
    for (std::size_t i = 0; i < pass_.weights.size(); ++i) {
      pass_.gradients.push_back(given("gradient", sizes_[i], target_.master()));
    }
    for (const StackTape::Part& part : tape.kept) {
      pass_.tape_kept.push_back(given("tape", static_cast<Index>(part.bytes), DType::u8));
    }
    if (shape_.stacked()) {
      backward_stack(dy);
    } else {
      ValueId gradient = dy;
      for (Index layer = spec_.layers; layer-- > 0;) gradient = backward_layer(layer, gradient);
    }
    if (casts_dx) cast_sequence(dx_, pass_.dx, spec_.input_size, ops::strides_or(form_.dx, form_.x), false);
  }

  /// A caller's sequence as layers read it.
  ValueId in_floats(ValueId sequence, Index width, const SequenceStrides& strides) {
    if (!shape_.casts()) return sequence;
    const ValueId floats = workspace_sequence(graph_.value(sequence).name + " f32", width);
    cast_sequence(sequence, floats, width, strides, true);
    return floats;
  }

  /// Between a caller's sequence and one of the workspace.
  void cast_sequence(ValueId from, ValueId to, Index width, const SequenceStrides& strides, bool to_floats) {
    const SequenceStrides given = shape_.given_strides(strides, width), own = shape_.own_strides(width);
    const ops::CastShape shape{.width = width,
                               .per_position = true,
                               .from_strides = to_floats ? given : own,
                               .to_strides = to_floats ? own : given};
    const DType other = target_.dtype;
    node(ops::cast(shape, to_floats ? form_.dtype : other, to_floats ? other : form_.dtype), {from}, {to});
  }

  void forward_stack() {
    const ops::RecurrenceStack all = shape_.all_layers();
    std::vector<ValueId> reads = {input_}, writes;
    for (Index layer = 0; layer < spec_.layers; ++layer) {
      const Place at{layer, 0};
      append(reads, {state_part(pass_.state_in, at, shape_.entering_rows())});
      const std::vector<ValueId> weights = read_weights(at);
      append(reads, weights);
      append(reads, {panels(at, shape_.layer(at), ops::forward_panels(target_), weights)});
      append(writes, {output_of(layer), state_part(pass_.state_out, at, form_.rows), keeps(at)});
    }
    append(writes, {pass_.states});
    node(ops::recurrence_stack_forward(all), std::move(reads), std::move(writes));
  }

  void backward_stack(ValueId dy) {
    const ops::RecurrenceStack all = shape_.all_layers();
    std::vector<ValueId> reads = {input_, dy, pass_.dstates}, writes;
    for (Index layer = 0; layer < spec_.layers; ++layer) {
      const Place at{layer, 0};
      append(reads, {output_of(layer), state_part(pass_.state_in, at, shape_.entering_rows())});
      const std::vector<ValueId> weights = read_weights(at);
      append(reads, weights);
      append(reads, {panels(at, shape_.layer(at), ops::Panels::backward, weights), pass_.tape_kept[shape_.index_of(at)],
                     state_part(pass_.dstate_out, at, form_.rows)});
      append(writes, gradients_of(at));
      append(writes, {state_part(pass_.dstate_in, at, shape_.entering_rows())});
    }
    append(writes, {dx_});
    node(ops::recurrence_stack_backward(all, static_cast<bool>(dx_)), std::move(reads), std::move(writes));
  }

  static void append(std::vector<ValueId>& values, const std::vector<ValueId>& more) {
    values.insert(values.end(), more.begin(), more.end());
  }

  /// The tape of a layer, where a backward pass follows.
  ValueId keeps(const Place& at) {
    if (!target_.has(CallFlag::training)) return {};
    pass_.tape_kept.push_back(graph_.add(
        {.name = name("tape", at), .extent = Extent::fixed, .width = -1, .dtype = DType::u8, .home = Home::given}));
    return pass_.tape_kept.back();
  }

  /// Those of the four weights, absent where the weight is.
  std::vector<ValueId> gradients_of(const Place& at) const {
    const LayerParameters own = layer_parameters(spec_)[shape_.index_of(at)];
    std::vector<ValueId> gradients;
    for (const int i : {own.weight_ih, own.weight_hh, own.bias_ih, own.bias_hh}) {
      gradients.push_back(i < 0 ? ValueId{} : pass_.gradients[static_cast<std::size_t>(i)]);
    }
    return gradients;
  }

  /// The gradient of what the layer below made, from that of this layer's output.
  ValueId backward_layer(Index layer, ValueId gradient) {
    const ValueId x = input_of(layer), y = output_of(layer);
    const ValueId dx = layer == 0 ? dx_ : workspace_sequence("dx", spec_.output_size());
    for (Index direction = 0; direction < spec_.directions(); ++direction) {
      const Place at{layer, direction};
      ops::Recurrence shape = shape_.layer(at);
      shape.add_dx = direction == 1;
      shape.add_gradients = form_.has(CallFlag::add_gradients);
      std::vector<ValueId> reads = {x, part_of(y, direction), part_of(gradient, direction),
                                    state_part(pass_.state_in, at, shape_.entering_rows())};
      const std::vector<ValueId> weights = read_weights(at);
      append(reads, weights);
      append(reads, {panels(at, shape, ops::Panels::backward, weights), pass_.tape_kept[shape_.index_of(at)],
                     state_part(pass_.dstate_out, at, form_.rows), states_part(pass_.dstates, at)});
      std::vector<ValueId> writes = gradients_of(at);
      append(writes, {dx, state_part(pass_.dstate_in, at, shape_.entering_rows())});
      node(ops::recurrence_backward(shape, static_cast<bool>(dx)), std::move(reads), std::move(writes));
    }
    if (layer == 0 || !drops()) return dx;
    const ValueId dropped = workspace_sequence("ddropped", spec_.output_size());
    node(ops::dropout(spec_.output_size(), dropout_behind(layer - 1)), {dx}, {dropped},
         {{ops::UnaryOperand::y, ops::UnaryOperand::x}});
    return dropped;
  }

  std::string name(const char* what, const Place& at) const {
    return fmt::format("{}_l{}{}", what, at.layer, shape_.reverse(at) ? "_reverse" : "");
  }
  bool drops() const { return target_.has(CallFlag::training) && spec_.dropout > 0.0; }
  ops::Dropout dropout_behind(Index layer) const {
    return {spec_.dropout, ops::dropout_site(static_cast<std::size_t>(layer))};
  }

  ValueId given(const std::string& what, Index width, DType type) {
    return graph_.add({.name = what, .extent = Extent::fixed, .width = width, .dtype = type, .home = Home::given});
  }
  /// A sequence of the caller's, or of the tape.
  ValueId given_sequence(const std::string& what, Index width, DType type) {
    return graph_.add({.name = what, .width = width, .dtype = type, .home = Home::given});
  }
  /// Channels of the states but h of the last layer, all directions side by side.
  Index every_state_size() const { return spec_.directions() * shape_.other_states(); }
  ValueId workspace_sequence(const std::string& what, Index width) {
    return graph_.add({.name = what, .width = width, .dtype = target_.dtype});
  }
  void node(ops::Op op, std::vector<ValueId> reads, std::vector<ValueId> writes,
            std::vector<std::pair<int, int>> in_place = {}) {
    graph_.add({std::move(op), std::move(reads), std::move(writes), Phase::forward, std::move(in_place)});
  }

  /// The output of a layer: the caller's y, the tape's, or memory of the workspace.
  ValueId output_of(Index layer) {
    if (layer + 1 == spec_.layers) return output_;
    while (static_cast<Index>(outputs_.size()) <= layer) outputs_.emplace_back();
    ValueId& output = outputs_[static_cast<std::size_t>(layer)];
    if (!output) {
      output = target_.has(CallFlag::training) ? given_sequence("output", spec_.output_size(), target_.dtype)
                                               : workspace_sequence("output", spec_.output_size());
    }
    return output;
  }

  /// Returns the input of a layer: x, or the output below after its dropout, which a backward pass draws again.
  ValueId input_of(Index layer) {
    if (layer == 0) return input_;
    const ValueId below = output_of(layer - 1);
    if (!drops()) return below;
    const ValueId dropped = workspace_sequence("dropped", spec_.output_size());
    node(ops::dropout(spec_.output_size(), dropout_behind(layer - 1)), {below}, {dropped});
    return dropped;
  }

  /// A direction's channels of an output.
  ValueId part_of(ValueId output, Index direction) { return part_of(output, direction, spec_.hidden_size); }
  ValueId part_of(ValueId output, Index direction, Index channels) {
    if (spec_.directions() == 1) return output;
    const graph::Value& whole = graph_.value(output);
    return graph_.add({.name = whole.name + ".part",
                       .extent = Extent::fixed,
                       .width = 0,
                       .dtype = whole.dtype,
                       .home = whole.home,
                       .offset = direction * channels,
                       .part_of = output});
  }
  /// Returns the part of every state, which only the last layer has.
  ValueId states_part(ValueId states, const Place& at) {
    if (!states || at.layer + 1 < spec_.layers) return {};
    return part_of(states, at.direction, shape_.other_states());
  }

  /// The first [rows, H] of a layer and direction among all states.
  ValueId state_part(ValueId states, const Place& at, Index rows) {
    if (shape_.slots() == 1) return states;
    return graph_.add({.name = name("state", at),
                       .extent = Extent::fixed,
                       .width = 0,
                       .dtype = target_.master(),
                       .home = Home::given,
                       .offset = static_cast<Index>(shape_.index_of(at)) * rows * spec_.hidden_size,
                       .part_of = states});
  }

  /// The four weights as ops read them: products in the type of activations, or as given where panels are packed of
  /// that; biases of dense cells, whose products have none in their epilogue, in that of parameters.
  std::vector<ValueId> read_weights(const Place& at) {
    const LayerParameters own = layer_parameters(spec_)[shape_.index_of(at)];
    const DType bias = shape_.scans() ? target_.dtype : target_.master();
    const DType matrix = shape_.packs_bf16() ? DType::bf16 : target_.dtype;
    return {in_type(own.weight_ih, matrix), in_type(own.weight_hh, matrix), in_type(own.bias_ih, bias),
            in_type(own.bias_hh, bias)};
  }

  ValueId in_type(int parameter, DType type) {
    if (parameter < 0) return {};
    const auto i = static_cast<std::size_t>(parameter);
    if (form_.weights == type) return pass_.weights[i];
    const std::string key = fmt::format("{} {}", graph_.value(pass_.weights[i]).name, to_string(type));
    const ValueId cast = graph_.add(
        {.name = key, .extent = Extent::fixed, .width = sizes_[i], .dtype = type, .home = Home::derived, .key = key});
    graph_.add({ops::cast({.width = sizes_[i]}, form_.weights, type), {pass_.weights[i]}, {cast}, Phase::weights, {}});
    pass_.derived.push_back(cast);
    return cast;
  }

  ValueId panels(const Place& at, const ops::Recurrence& shape, ops::Panels which,
                 const std::vector<ValueId>& weights) {
    if (!ops::reads_panels(shape, which, target_)) return {};
    const std::string key = name("panels", at) + " " + ops::panels_key(which, target_);
    const ValueId id = graph_.add(
        {.name = key, .extent = Extent::fixed, .width = -1, .dtype = target_.dtype, .home = Home::derived, .key = key});
    graph_.add({ops::recurrence_panels(shape, which), weights, {id}, Phase::weights, {}});
    pass_.derived.push_back(id);
    return id;
  }

  template <class Tape>
  StackPass finish(const Tape& set_tape) {
    pass_.tape_outputs = target_.has(CallFlag::training) ? outputs_ : std::vector<ValueId>();
    pass_.program = std::make_shared<graph::Program>(std::move(graph_), target_);
    for (const ValueId id : pass_.derived) pass_.derived_bytes += aligned(pass_.program->bytes(id));
    set_tape(pass_);
    return std::move(pass_);
  }

  static void place_tape(StackPass& pass) {
    const auto place = [&](ValueId id) {
      const StackTape::Part part{pass.tape.bytes, pass.program->bytes(id)};
      pass.tape.bytes += aligned(part.bytes);
      return part;
    };
    for (const ValueId id : pass.tape_kept) pass.tape.kept.push_back(place(id));
    for (const ValueId id : pass.tape_outputs) pass.tape.outputs.push_back(place(id));
  }

  const RecurrentSpec& spec_;
  const RecurrentForm& form_;
  StackShape shape_;
  ops::Target target_;
  graph::Graph graph_;
  StackPass pass_;
  std::vector<Index> sizes_;      // of the parameters
  std::vector<ValueId> outputs_;  // of all layers but the last
  ValueId input_, output_, dx_;   // x, y and dx, or what is cast from and to them
};

}  // namespace

StackPass forward_pass(const RecurrentSpec& spec, const RecurrentForm& form, const Execution& execution) {
  return StackBuilder(spec, form, execution).forward();
}

StackPass backward_pass(const RecurrentSpec& spec, const RecurrentForm& form, const Execution& execution,
                        const StackTape& tape) {
  return StackBuilder(spec, form, execution).backward(tape);
}

std::vector<graph::Graph> pass_graphs(const RecurrentSpec& spec, const RecurrentForm& form,
                                      const Execution& execution) {
  return StackBuilder(spec, form, execution).graphs();
}

void StackPass::bind_tape(graph::Workspace& workspace, void* tape_memory) const {
  auto* const base = static_cast<std::byte*>(tape_memory);
  for (std::size_t i = 0; i < tape_kept.size(); ++i) workspace.bind(tape_kept[i], base + tape.kept[i].offset);
  for (std::size_t i = 0; i < tape_outputs.size(); ++i) workspace.bind(tape_outputs[i], base + tape.outputs[i].offset);
}

void StackPass::bind_derived(graph::Workspace& workspace, void* memory) const {
  auto* at = static_cast<std::byte*>(memory);
  for (const ValueId id : derived) {
    workspace.bind(id, at);
    at += aligned(program->bytes(id));
  }
}

}  // namespace penstock::nn
