#include "nn/layer/stack_shape.h"

#include "base/threads.h"
#include "ops/program_check.h"

namespace penstock::nn {

ops::Target stack_target(const RecurrentForm& form, const Execution& execution) {
  ops::Target target = ops::target_of_form(form, execution);
  const bool stored_only = !execution.device.is_cuda() && form.dtype == DType::bf16;
  if (stored_only) target.dtype = DType::f32;
  target.execution.threads = resolve_threads(execution.threads);
  return target;
}

StackShape::StackShape(const RecurrentSpec& spec, const RecurrentForm& form, const Execution& execution)
    : spec_(spec), form_(form), target_(stack_target(form, execution)), cell_(plan::cell_traits(spec.cell)) {}

void StackShape::choose_storage(bool backward) {
  if (target_.device.is_cuda() || form_.dtype != DType::bf16) return;
  const ops::Recurrence shape = layer({});
  const bool forward_takes = ops::takes_bf16(shape, false, target_);
  const bool backward_takes = target_.has(CallFlag::training) && ops::takes_bf16(shape, true, target_);
  packs_bf16_ = form_.weights == DType::bf16 && (backward ? backward_takes : forward_takes);
  stores_bf16_ = forward_takes && (!target_.has(CallFlag::training) || (backward_takes && spec_.directions() == 1));
  casts_ = !stores_bf16_;
}

SequenceStrides StackShape::own_strides(Index width) const {
  if (form_.positions > 0) return {0, width};
  const bool chunks = target_.device.is_cuda() && stacked() && !cell_.info.scan && !form_.has(CallFlag::lengths);
  return chunks || form_.x.step > form_.x.row ? SequenceStrides{width, form_.rows * width}
                                              : SequenceStrides{form_.steps * width, width};
}

ops::Recurrence StackShape::layer(const Place& at) const {
  const bool first = at.layer == 0, last = at.layer + 1 == spec_.layers;
  ops::Recurrence shape{.cell = spec_.cell,
                        .input = first ? spec_.input_size : spec_.output_size(),
                        .hidden = spec_.hidden_size,
                        .heads = spec_.heads,
                        .reverse = reverse(at),
                        .bias = spec_.bias,
                        .projected = spec_.projected_input};
  const bool given_x = first && !casts_, given_y = last && !casts_;
  shape.x_strides = given_x ? given_strides(form_.x, shape.input) : own_strides(shape.input);
  shape.dx_strides = given_x ? ops::strides_or(form_.dx, shape.x_strides) : shape.x_strides;
  shape.y_strides = given_y ? given_strides(form_.y, spec_.output_size()) : own_strides(spec_.output_size());
  shape.dy_strides = given_y ? ops::strides_or(form_.dy, shape.y_strides) : shape.y_strides;
  shape.bf16_x = first && stores_bf16_;
  shape.bf16_y = last && stores_bf16_;
  shape.bf16_weights = packs_bf16_;
  shape.state_pitch = slots();
  shape.restarts = form_.restarts;
  shape.gradient_clip = spec_.gradient_clip;
  shape.every_state = form_.has(CallFlag::every_state) && last;
  shape.state_strides = given_strides(form_.states, spec_.directions() * other_states());
  const Index own = at.direction * spec_.hidden_size * static_cast<Index>(size_of(target_.dtype));
  shape.alignment = first || last ? form_.alignment : ops::call_alignment;
  while (own % shape.alignment != 0) shape.alignment /= 2;
  shape.parameter_alignment = 16;
  shape.keep_tape = form_.has(CallFlag::keep_tape);
  shape.one_launch = form_.has(CallFlag::step) && target_.device.is_cuda() && !target_.execution.exact;
  return shape;
}

ops::RecurrenceStack StackShape::all_layers() const {
  ops::RecurrenceStack stack{.layers = {}, .dropout = spec_.dropout};
  for (Index i = 0; i < spec_.layers; ++i) {
    stack.layers.push_back(layer({i, 0}));
    stack.layers.back().add_gradients = form_.has(CallFlag::add_gradients);
  }
  return stack;
}

}  // namespace penstock::nn
