// Recurrent layers of scan cells on a GPU.

#include "backend/cuda/driver/driver.h"
#include "backend/cuda/scan/layer.h"
#include "backend/cuda/scan/step.h"
#include "ops/cuda/common.h"
#include "ops/cuda/layer_memory.h"
#include "ops/cuda/ops.h"
#include "ops/memory/memory.h"
#include "plan/cell_table.h"

namespace penstock::ops {

namespace {

cuda::LayerSpec spec_of(const Recurrence& shape, const Target& target, bool backward) {
  return {.cell = shape.cell,
          .input = shape.input,
          .hidden = shape.hidden,
          .storage = storage_of(target.dtype),
          .gradients = plan::Storage::f32,
          .bias = shape.bias != Bias::none,
          .reverse = shape.reverse,
          .tf32 = target.tf32(),
          .exact = target.execution.exact && !backward,
          .algorithm = scan_algorithm_of(target.execution, backward)};
}

/// [P, G, H]: what the input product makes of all positions.
std::size_t gate_bytes(const Recurrence& shape, const Target& target) {
  const Index gates = plan::cell_traits(shape.cell).info.gates;
  return padded(static_cast<std::size_t>(target.positions() * gates * shape.hidden) * size_of(target.dtype));
}

class ScanLayerForward final : public Executable {
  using Of = ForwardOperand;

 public:
  ScanLayerForward(const Recurrence& shape, const Target& target)
      : shape_(shape),
        target_(target),
        gate_bytes_(gate_bytes(shape, target)),
        input_(shape, target, false, false),
        states_(shape, target),
        call_(planned()),
        layer_(gpu_of(target), spec_of(shape, target, false), call_),
        parts_(layer_.parts()) {}

  std::size_t scratch_bytes() const override { return input_place() + input_.scratch_bytes(); }
  std::size_t persistent_bytes() const override { return padded(parts_.passed) + padded(parts_.sums); }
  std::size_t opaque_bytes(int) const override { return gate_bytes_; }

  void run(const Call& call, const Operands& memory) override {
    const cuda::DeviceAddress scratch = address_of(memory.scratch), persistent = address_of(memory.persistent);
    set_rows(call_.batch, call.batch);
    call_.x = input_.enter(call, address_of(memory, Of::x), scratch + input_place());
    call_.y.data = address_of(memory, Of::y);
    call_.weights = {address_of(memory, Of::weight_ih), address_of(memory, Of::bias_ih)};
    call_.gates = target_.has(CallFlag::training) ? address_of(memory, Of::tape) : scratch + padded(parts_.products);
    call_.state_in = address_of(memory, Of::state_in);
    call_.batch.restarts = states_.given_restarts(call_.state_in);
    call_.state_out = address_of(memory, Of::state_out);
    // Memory for itself lies before the scratch, in one workspace.
    layer_.place({0, padded(parts_.passed), scratch - persistent});
    layer_.run(call_, persistent, stream_of(call));
  }

 private:
  std::size_t input_place() const {
    return padded(parts_.products) + (target_.has(CallFlag::training) ? 0 : gate_bytes_);
  }

  cuda::LayerForward planned() const {
    const Batch batch = planned_batch(target_);
    const cuda::DeviceAddress weight = planned_weight(shape_, target_.dtype);
    const SequenceStrides& x = input_.strides();
    cuda::LayerForward forward;
    forward.batch = ops::shape_of(batch, target_.packed);
    forward.batch.restarts = states_.restarts(planned_value);
    forward.x = {static_cast<cuda::DeviceAddress>(input_.alignment()), x.row, x.step};
    forward.y = sequence_of(planned_sequence(shape_), shape_.y_strides, batch, shape_.hidden);
    forward.weights = {weight, shape_.bias != Bias::none ? weight : 0};
    forward.gates = planned_value;
    forward.keep_gates = target_.has(CallFlag::training);
    forward.state_in = forward.state_out = planned_value;
    return forward;
  }

  Recurrence shape_;
  Target target_;
  std::size_t gate_bytes_;
  InputMatrix input_;
  StateBlocks states_;
  cuda::LayerForward call_;
  cuda::LayerForwardExecutable layer_;
  cuda::WorkspaceParts parts_;
};

class ScanLayerBackward final : public Executable {
  using Of = BackwardOperand;

 public:
  ScanLayerBackward(const Recurrence& shape, bool wants_dx, const Target& target)
      : shape_(shape),
        target_(target),
        wants_dx_(wants_dx),
        input_(shape, target, true, wants_dx),
        states_(shape, target),
        gradients_(shape, target),
        call_(planned()),
        layer_(gpu_of(target), spec_of(shape, target, true), call_),
        parts_(layer_.parts()) {}

  std::size_t scratch_bytes() const override {
    return dgates_place() + (shape_.keep_tape ? gate_bytes(shape_, target_) : 0);
  }
  std::size_t persistent_bytes() const override { return padded(parts_.passed) + padded(parts_.sums); }

  void run(const Call& call, const Operands& memory) override {
    const cuda::DeviceAddress scratch = address_of(memory.scratch), persistent = address_of(memory.persistent);
    const cuda::DeviceAddress copies = scratch + padded(parts_.products), sums = scratch + gradients_place();
    const cuda::DeviceAddress dx = address_of(memory, Of::dx);
    set_rows(call_.batch, call.batch);
    call_.x = input_.enter(call, address_of(memory, Of::x), copies);
    call_.y.data = address_of(memory, Of::y);
    call_.dy.data = address_of(memory, Of::dy);
    call_.state_in = address_of(memory, Of::state_in);
    call_.batch.restarts = states_.given_restarts(call_.state_in);
    call_.weights = {address_of(memory, Of::weight_ih), address_of(memory, Of::bias_ih)};
    call_.gates = address_of(memory, Of::tape);
    call_.dgates = shape_.keep_tape ? scratch + dgates_place() : call_.gates;
    call_.dstate_out = address_of(memory, Of::dstate_out);
    call_.gradients = {gradients_.address(memory, 0, sums), gradients_.address(memory, 2, sums)};
    if (wants_dx_) call_.dx = input_.enter_dx(call, dx, copies);
    call_.dstate_in = address_of(memory, Of::dstate_in);
    call_.drestarts = states_.restarts(call_.dstate_in).data;
    layer_.place({0, padded(parts_.passed), scratch - persistent});
    layer_.run(call_, persistent, stream_of(call));
    if (wants_dx_) input_.leave_dx(call, dx, copies);
    gradients_.finish(call, memory, sums);
  }

 private:
  std::size_t gradients_place() const { return padded(parts_.products) + input_.scratch_bytes(); }
  std::size_t dgates_place() const { return gradients_place() + padded(gradients_.scratch_bytes()); }
  const SequenceStrides& dy_strides() const { return strides_or(shape_.dy_strides, shape_.y_strides); }

  cuda::LayerBackward planned() const {
    const Batch batch = planned_batch(target_);
    const cuda::DeviceAddress weight = planned_weight(shape_, target_.dtype);
    const cuda::DeviceAddress gradient = planned_weight(shape_, target_.master());
    const SequenceStrides& x = input_.strides();
    const bool bias = shape_.bias != Bias::none;
    cuda::LayerBackward backward;
    backward.batch = ops::shape_of(batch, target_.packed);
    backward.batch.restarts = states_.restarts(planned_value);
    backward.drestarts = backward.batch.restarts.data;
    backward.x = {static_cast<cuda::DeviceAddress>(input_.alignment()), x.row, x.step};
    if (wants_dx_) backward.dx = {static_cast<cuda::DeviceAddress>(input_.dx_alignment()), x.row, x.step};
    backward.add_dx = shape_.add_dx;
    backward.y = sequence_of(planned_sequence(shape_), shape_.y_strides, batch, shape_.hidden);
    backward.dy = sequence_of(planned_sequence(shape_), dy_strides(), batch, shape_.hidden);
    backward.weights = {weight, bias ? weight : 0};
    backward.gradients = {gradient, bias ? gradient : 0};
    backward.gates = backward.dgates = planned_value;
    backward.state_in = planned_value;
    return backward;
  }

  Recurrence shape_;
  Target target_;
  bool wants_dx_;
  InputMatrix input_;
  StateBlocks states_;
  LayerGradients gradients_;
  cuda::LayerBackward call_;
  cuda::LayerBackwardExecutable layer_;
  cuda::WorkspaceParts parts_;
};

/// One step of all rows, with the operands of a forward pass.
class ScanLayerStep final : public Executable {
  using Of = ForwardOperand;

 public:
  ScanLayerStep(const Recurrence& shape, const Target& target)
      : shape_(shape),
        target_(target),
        call_(planned()),
        layer_(gpu_of(target), spec_of(shape, target, false), call_) {}

  std::size_t scratch_bytes() const override { return padded(state_bytes()); }

  void run(const Call& call, const Operands& memory) override {
    const cuda::DeviceAddress before = address_of(memory, Of::state_in), after = address_of(memory, Of::state_out);
    call_.x = address_of(memory, Of::x), call_.y = address_of(memory, Of::y);
    call_.state = after != 0 ? after : address_of(memory.scratch);
    call_.weights = {address_of(memory, Of::weight_ih), address_of(memory, Of::bias_ih)};
    if (before == 0) {
      clear_memory(target_.device, cuda::device_pointer<void>(call_.state), state_bytes(), call.stream);
    } else if (before != call_.state) {
      gpu_of(target_).make_current();
      cuda::check(cuda::driver().copy_on_device(call_.state, before, state_bytes(), stream_of(call)),
                  "copying the state of a layer");
    }
    layer_.run(call_, stream_of(call));
  }

 private:
  std::size_t state_bytes() const {
    return static_cast<std::size_t>(target_.rows * shape_.hidden) * size_of(target_.master());
  }
  cuda::LayerStep planned() const {
    const auto stride = [](const SequenceStrides& of, Index width) { return of == SequenceStrides{} ? width : of.row; };
    const cuda::DeviceAddress weight = planned_weight(shape_, target_.dtype);
    return {.rows = target_.rows,
            .x = planned_sequence(shape_),
            .x_stride = stride(shape_.x_strides, shape_.input),
            .y = planned_sequence(shape_),
            .y_stride = stride(shape_.y_strides, shape_.hidden),
            .state = planned_value,
            .weights = {weight, shape_.bias != Bias::none ? weight : 0}};
  }

  Recurrence shape_;
  Target target_;
  cuda::LayerStep call_;
  cuda::StepExecutable layer_;
};

}  // namespace

Prepared cuda_scan_forward(const Recurrence& shape, const Target& target) {
  if (shape.one_launch) return std::make_unique<ScanLayerStep>(shape, target);
  return std::make_unique<ScanLayerForward>(shape, target);
}

Prepared cuda_scan_backward(const Recurrence& shape, bool wants_dx, const Target& target) {
  return std::make_unique<ScanLayerBackward>(shape, wants_dx, target);
}

}  // namespace penstock::ops
