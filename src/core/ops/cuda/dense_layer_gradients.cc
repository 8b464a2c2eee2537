#include "ops/cuda/dense_layer_gradients.h"

namespace penstock::ops {

using cuda::DeviceAddress;

DenseLayerGradients::DenseLayerGradients(const Recurrence& shape, bool wants_dx, const Target& target,
                                         const std::optional<plan::GpuDensePlan>& plan)
    : shape_(shape),
      target_(target),
      wants_dx_(wants_dx),
      tape_(shape, target),
      input_(shape, target, true, wants_dx),
      gradients_(shape, target),
      states_(shape, target),
      loop_(planned()),
      recurrence_(loop_by(plan)) {
  if (!shape.projected) products_.emplace(gpu_of(target), products_of(target.positions()));
}

cuda::DenseBackwardExecutable DenseLayerGradients::loop_by(const std::optional<plan::GpuDensePlan>& plan) const {
  if (plan) return {gpu_of(target_), spec(), loop_, *plan};
  return {gpu_of(target_), spec(), loop_};
}

const cuda::DenseBackward& DenseLayerGradients::enter(const Call& call, const Operands& memory) {
  const DeviceAddress scratch = address_of(memory.scratch), tape = address_of(memory, Of::tape);
  const DeviceAddress sums = scratch + gradients_place(), states = scratch + state_place();
  const DeviceAddress copies = scratch + input_place();
  const DeviceAddress x = input_.enter(call, address_of(memory, Of::x), copies).data;
  set_rows(loop_.batch, call.batch);
  if (tape_.split) loop_.wx.data = tape_.keeps_wx ? tape + tape_.wx : x;
  loop_.y.data = address_of(memory, Of::y);
  loop_.dy.data = address_of(memory, Of::dy);
  loop_.weights = {address_of(memory, Of::weight_hh), address_of(memory, Of::bias_ih), address_of(memory, Of::bias_hh)};
  loop_.tape = tape_.at(tape);
  loop_.dwx = makes_dx() ? input_.enter_dx(call, address_of(memory, Of::dx), copies).data : scratch;
  loop_.drh = tape_.split ? scratch + drh_place() : 0;
  loop_.gradients = {gradients_.address(memory, 1, sums), gradients_.address(memory, 2, sums),
                     gradients_.address(memory, 3, sums)};
  loop_.state_in = states_.enter_first(call, address_of(memory, Of::state_in), states);
  loop_.batch.restarts = states_.given_restarts(address_of(memory, Of::state_in));
  loop_.drestarts = states_.restarts(address_of(memory, Of::dstate_in)).data;
  loop_.dstate_out = states_.enter(call, address_of(memory, Of::dstate_out), states + states_.scratch_bytes());
  loop_.dstate_in = states_.place(address_of(memory, Of::dstate_in), states + 2 * states_.scratch_bytes());
  loop_.dstates.data = address_of(memory, Of::dstates);
  if (const Index gates = gates_of(shape_); gate_pitch_of(shape_, target_) > gates) {
    cuda::clear_padding(loop_.dwx, target_.positions(), gates, storage_of(target_.dtype), stream_of(call));
  }
  return loop_;
}

void DenseLayerGradients::finish(const Call& call, const Operands& memory) const {
  const DeviceAddress scratch = address_of(memory.scratch), counters = address_of(memory.persistent);
  const DeviceAddress copies = scratch + input_place(), sums = scratch + gradients_place();
  const DeviceAddress dx = address_of(memory, Of::dx);
  recurrence_.run_products(loop_, scratch + loop_place(), counters, stream_of(call));
  states_.leave_first(call, address_of(memory, Of::dstate_in), scratch + state_place() + 2 * states_.scratch_bytes());
  if (products_) {
    cuda::GradientCall products{.x = input_.place(address_of(memory, Of::x), copies),
                                .weight = address_of(memory, Of::weight_ih)};
    products.dy = loop_.dwx;
    products.dweight = gradients_.address(memory, 0, sums);
    if (wants_dx_) products.dx = input_.enter_dx(call, dx, copies).data;
    products.add_dx = shape_.add_dx;
    products_->run(products, counters + recurrence_.counters_bytes(), scratch + products_place(), stream_of(call));
  }
  if (wants_dx_) input_.leave_dx(call, dx, copies);
  gradients_.finish(call, memory, sums);
}

cuda::DenseBackward DenseLayerGradients::planned() const {
  const Batch batch = planned_batch(target_);
  const DeviceAddress gradient = planned_weight(shape_, target_.master());
  const bool has_bias = shape_.bias != Bias::none, has_both = shape_.bias == Bias::both;
  cuda::DenseBackward loop;
  loop.batch = dense_batch(target_, input_.time_first());
  if (tape_.split) {
    loop.wx = tape_.keeps_wx ? gapless(planned_value, loop.batch, gate_pitch_of(shape_, target_))
                             : given_wx(shape_, batch, planned_sequence(shape_));
  }
  loop.y = sequence_of(planned_sequence(shape_), shape_.y_strides, batch, shape_.hidden);
  loop.dy = sequence_of(planned_sequence(shape_), dy_strides(), batch, shape_.hidden);
  loop.weights = {planned_weight(shape_, target_.dtype), has_bias ? gradient : 0, has_both ? gradient : 0};
  loop.tape = tape_.at(planned_value);
  loop.dwx = makes_dx() ? static_cast<DeviceAddress>(input_.dx_alignment()) : planned_value;
  loop.drh = tape_.split ? planned_value : 0;
  loop.gradients = {gradient, has_bias ? gradient : 0, has_both ? gradient : 0};
  loop.state_in = planned_value;
  loop.batch.restarts = states_.restarts(planned_value);
  loop.drestarts = loop.batch.restarts.data;
  if (shape_.every_state) loop.dstates = other_states(shape_, batch, planned_value);
  loop.clip = static_cast<float>(shape_.gradient_clip);
  return loop;
}

// Products of the input's gradients. The recurrence makes those of biases, since it has their sums anyway.
cuda::GradientShape DenseLayerGradients::products_of(Index positions) const {
  return {.storage = storage_of(target_.dtype),
          .gradients = plan::Storage::f32,
          .positions = positions,
          .inputs = shape_.input,
          .outputs = gates_of(shape_),
          .x_stride = input_.stride(),
          .dy_stride = gate_pitch_of(shape_, target_),
          .bias = false,
          .dx = wants_dx_,
          .tf32 = target_.tf32(),
          .dy_alignment = planned_value,
          .x_alignment = input_.alignment(),
          .weight_alignment = static_cast<int>(planned_weight(shape_, target_.dtype)),
          .dweight_alignment = static_cast<int>(planned_weight(shape_, target_.master())),
          .dx_alignment = input_.dx_alignment()};
}

}  // namespace penstock::ops
