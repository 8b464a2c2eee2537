// Recurrent layers of dense cells on a GPU: the input product of all positions, then the recurrence over it.

#include "ops/cuda/dense_layer.h"
#include "backend/cuda/product/gradient_products.h"
#include "ops/cuda/layer_memory.h"
#include "ops/cuda/ops.h"

namespace penstock::ops {

namespace {

using cuda::DeviceAddress;

/// The operands x, state_in, weight_ih, weight_hh, bias_ih, bias_hh, panels -> y, state_out, tape, every state.
class DenseLayerForward final : public Executable {
 public:
  DenseLayerForward(const Recurrence& shape, const Target& target)
      : shape_(shape),
        target_(target),
        tape_(shape, target),
        input_(shape, target, false, false),
        states_(shape, target),
        product_(gpu_of(target), input_product(shape, target, input_, target.positions())),
        recurrence_(gpu_of(target), dense_spec(shape, target), planned_forward(shape, target, input_, tape_)) {}

  std::size_t scratch_bytes() const override { return state_place() + 2 * states_.scratch_bytes(); }
  std::size_t opaque_bytes(int) const override { return tape_.end; }

  void run(const Call& call, const Operands& memory) override {
    const DeviceAddress scratch = address_of(memory.scratch), tape = address_of(memory, 9);
    const DeviceAddress wx = tape != 0 && tape_.split ? tape + tape_.wx : scratch + wx_place();
    const DeviceAddress entering = scratch + state_place(), leaving = entering + states_.scratch_bytes();
    const cuda::DeviceSequence x = input_.enter(call, address_of(memory, 0), scratch + input_place());
    product_.run(x.data, address_of(memory, 2), wx, 0, scratch, stream_of(call));
    cuda::DenseForward forward;
    forward.batch = dense_batch(call.batch, target_, input_.time_first());
    forward.wx = gapless(wx, forward.batch, gates_of(shape_));
    forward.y = sequence_of(address_of(memory, 7), shape_.y_strides, call.batch, shape_.hidden);
    forward.weights = {address_of(memory, 3), address_of(memory, 4), address_of(memory, 5)};
    forward.state_in = states_.enter(call, address_of(memory, 1), entering);
    forward.state_out = states_.place(address_of(memory, 8), leaving);
    if (tape != 0) forward.tape = tape_.at(tape);
    if (shape_.every_state) forward.every_state = other_states(shape_, call.batch, address_of(memory, 10));
    recurrence_.run(forward, scratch + order_place(), stream_of(call));
    states_.leave(call, address_of(memory, 8), leaving);
  }

 private:
  std::size_t wx_place() const { return padded(product_.workspace_bytes()); }
  std::size_t order_place() const { return wx_place() + (target_.training && tape_.split ? 0 : tape_.gates); }
  std::size_t input_place() const { return order_place() + padded(recurrence_.workspace_bytes()); }
  std::size_t state_place() const { return input_place() + input_.scratch_bytes(); }

  Recurrence shape_;
  Target target_;
  TapePlaces tape_;
  InputMatrix input_;
  StateBlocks states_;
  cuda::MatrixProduct product_;
  cuda::DenseForwardExecutable recurrence_;
};

/// The operands x, y, dy, state_in, the four weights, panels, tape, dstate_out, dstates -> the four gradients, dx,
/// dstate_in.
class DenseLayerBackward final : public Executable {
 public:
  DenseLayerBackward(const Recurrence& shape, bool wants_dx, const Target& target)
      : shape_(shape),
        target_(target),
        wants_dx_(wants_dx),
        tape_(shape, target),
        input_(shape, target, true, wants_dx),
        gradients_(shape, target),
        states_(shape, target),
        recurrence_(gpu_of(target), dense_spec(shape, target), planned()),
        products_(gpu_of(target), input_products()) {}

  std::size_t scratch_bytes() const override { return state_place() + 3 * states_.scratch_bytes(); }
  std::size_t persistent_bytes() const override {
    return padded(recurrence_.workspace_bytes()) + padded(products_.sums_bytes());
  }

  void run(const Call& call, const Operands& memory) override {
    const DeviceAddress scratch = address_of(memory.scratch), persistent = address_of(memory.persistent);
    const DeviceAddress tape = address_of(memory, 9), dwx = scratch, sums = scratch + gradients_place();
    const DeviceAddress copies = scratch + input_place(), states = scratch + state_place();
    const DeviceAddress dx = address_of(memory, 16), leaving = states + 2 * states_.scratch_bytes();
    const cuda::DeviceSequence x = input_.enter(call, address_of(memory, 0), copies);
    cuda::DenseBackward backward;
    backward.batch = dense_batch(call.batch, target_, input_.time_first());
    if (tape_.split) backward.wx = gapless(tape + tape_.wx, backward.batch, gates_of(shape_));
    backward.y = sequence_of(address_of(memory, 1), shape_.y_strides, call.batch, shape_.hidden);
    backward.dy = sequence_of(address_of(memory, 2), dy_strides(), call.batch, shape_.hidden);
    backward.weights = {address_of(memory, 5), address_of(memory, 6), address_of(memory, 7)};
    backward.tape = tape_.at(tape);
    backward.dwx = dwx;
    backward.drh = tape_.split ? dwx + tape_.gates : 0;
    backward.gradients = {gradients_.address(memory, 1, sums), gradients_.address(memory, 2, sums),
                          gradients_.address(memory, 3, sums)};
    backward.state_in = states_.enter(call, address_of(memory, 3), states);
    backward.dstate_out = states_.enter(call, address_of(memory, 10), states + states_.scratch_bytes());
    backward.dstate_in = states_.place(address_of(memory, 17), leaving);
    if (shape_.every_state) backward.dstates = other_states(shape_, call.batch, address_of(memory, 11));
    backward.clip = static_cast<float>(shape_.gradient_clip);
    recurrence_.run(backward, persistent, stream_of(call));
    states_.leave(call, address_of(memory, 17), leaving);
    cuda::GradientCall products{.x = x.data, .weight = address_of(memory, 4), .dy = dwx};
    products.dweight = gradients_.address(memory, 0, sums);
    if (wants_dx_) products.dx = input_.enter_dx(call, dx, copies).data;
    products.add_dx = shape_.add_dx;
    products_.run(products, persistent + padded(recurrence_.workspace_bytes()), scratch + products_place(),
                  stream_of(call));
    if (wants_dx_) input_.leave_dx(call, dx, copies);
    gradients_.finish(call, memory, sums);
  }

 private:
  std::size_t products_place() const { return tape_.gates * (tape_.split ? 2 : 1); }
  std::size_t input_place() const { return products_place() + padded(products_.products_bytes()); }
  std::size_t gradients_place() const { return input_place() + input_.scratch_bytes(); }
  std::size_t state_place() const { return gradients_place() + gradients_.scratch_bytes(); }
  const SequenceStrides& dy_strides() const { return strides_or(shape_.dy_strides, shape_.y_strides); }

  cuda::DenseBackward planned() const {
    const Batch batch = planned_batch(target_);
    const DeviceAddress gradient = planned_weight(shape_, target_.master());
    const bool has_bias = shape_.bias != Bias::none, has_both = shape_.bias == Bias::both;
    cuda::DenseBackward backward;
    backward.batch = dense_batch(batch, target_, input_.time_first());
    if (tape_.split) backward.wx = gapless(planned_value, backward.batch, gates_of(shape_));
    backward.y = sequence_of(planned_sequence(shape_), shape_.y_strides, batch, shape_.hidden);
    backward.dy = sequence_of(planned_sequence(shape_), dy_strides(), batch, shape_.hidden);
    backward.weights = {planned_weight(shape_, target_.dtype), has_bias ? gradient : 0, has_both ? gradient : 0};
    backward.tape = tape_.at(planned_value);
    backward.dwx = planned_value;
    backward.drh = tape_.split ? planned_value : 0;
    backward.gradients = {gradient, has_bias ? gradient : 0, has_both ? gradient : 0};
    backward.state_in = planned_value;
    if (shape_.every_state) backward.dstates = other_states(shape_, batch, planned_value);
    backward.clip = static_cast<float>(shape_.gradient_clip);
    return backward;
  }

  /// Of the input: biases are the recurrence's, which has their sums anyway.
  cuda::GradientShape input_products() const {
    return {.storage = storage_of(target_.dtype),
            .gradients = plan::Storage::f32,
            .positions = target_.positions(),
            .inputs = shape_.input,
            .outputs = gates_of(shape_),
            .x_stride = input_.stride(),
            .bias = false,
            .dx = wants_dx_,
            .dy_alignment = planned_value,
            .x_alignment = input_.alignment(),
            .weight_alignment = static_cast<int>(planned_weight(shape_, target_.dtype)),
            .dweight_alignment = static_cast<int>(planned_weight(shape_, target_.master())),
            .dx_alignment = input_.dx_alignment()};
  }

  Recurrence shape_;
  Target target_;
  bool wants_dx_;
  TapePlaces tape_;
  InputMatrix input_;
  LayerGradients gradients_;
  StateBlocks states_;
  cuda::DenseBackwardExecutable recurrence_;
  cuda::GradientProducts products_;
};

}  // namespace

Prepared cuda_dense_forward(const Recurrence& shape, const Target& target) {
  return std::make_unique<DenseLayerForward>(shape, target);
}

Prepared cuda_dense_backward(const Recurrence& shape, bool wants_dx, const Target& target) {
  return std::make_unique<DenseLayerBackward>(shape, wants_dx, target);
}

}  // namespace penstock::ops
