// Recurrent layers of scan cells on a GPU.

#include "backend/cuda/layer.h"
#include "ops/cuda/common.h"
#include "ops/cuda/ops.h"
#include "plan/cell_table.h"

namespace penstock::ops {

namespace {

cuda::LayerSpec spec_of(const Recurrence& shape, const Target& target, bool bias) {
  return {.cell = shape.cell,
          .input = shape.input,
          .hidden = shape.hidden,
          .storage = storage_of(target.dtype),
          .gradients = plan::Storage::f32,
          .bias = bias,
          .reverse = shape.reverse};
}

/// [P, G, H]: what the input product makes of all positions.
std::size_t gate_bytes(const Recurrence& shape, const Target& target) {
  const Index gates = plan::cell_traits(shape.cell).info.gates;
  return padded(static_cast<std::size_t>(target.positions() * gates * shape.hidden) * size_of(target.dtype));
}

/// The operands x, state_in, weight_ih, weight_hh, bias_ih, bias_hh, panels -> y, state_out, tape.
class ScanLayerForward final : public Executable {
 public:
  ScanLayerForward(const Recurrence& shape, const Target& target, bool bias)
      : shape_(shape),
        training_(target.training),
        gate_bytes_(gate_bytes(shape, target)),
        layer_(gpu_of(target), spec_of(shape, target, bias), planned(shape, target, bias)),
        parts_(layer_.parts()) {}

  std::size_t scratch_bytes() const override { return padded(parts_.products) + (training_ ? 0 : gate_bytes_); }
  std::size_t persistent_bytes() const override { return padded(parts_.passed) + padded(parts_.sums); }
  std::size_t opaque_bytes(int) const override { return gate_bytes_; }

  void run(const Call& call, const Operands& memory) override {
    const cuda::DeviceAddress scratch = address_of(memory.scratch), persistent = address_of(memory.persistent);
    cuda::LayerForward forward;
    forward.batch = ops::shape_of(call.batch);
    forward.x = sequence_of(address_of(memory, 0), call.batch, shape_.input);
    forward.y = sequence_of(address_of(memory, 7), call.batch, shape_.hidden);
    forward.weights = {address_of(memory, 2), address_of(memory, 4)};
    forward.gates = training_ ? address_of(memory, 9) : scratch + padded(parts_.products);
    forward.keep_gates = training_;
    forward.state_in = address_of(memory, 1);
    forward.state_out = address_of(memory, 8);
    // Memory for itself lies before the scratch, in one workspace.
    layer_.place({0, padded(parts_.passed), scratch - persistent});
    layer_.run(forward, persistent, stream_of(call));
  }

 private:
  static cuda::LayerForward planned(const Recurrence& shape, const Target& target, bool bias) {
    const Batch batch = planned_batch(target);
    cuda::LayerForward forward;
    forward.batch = ops::shape_of(batch);
    forward.x = sequence_of(planned_value, batch, shape.input);
    forward.y = sequence_of(planned_value, batch, shape.hidden);
    forward.weights = {planned_parameter(target.dtype), bias ? planned_parameter(target.dtype) : 0};
    forward.gates = planned_value;
    forward.keep_gates = target.training;
    forward.state_in = forward.state_out = planned_value;
    return forward;
  }

  Recurrence shape_;
  bool training_;
  std::size_t gate_bytes_;
  cuda::LayerForwardExecutable layer_;
  cuda::WorkspaceParts parts_;
};

/// The operands x, y, dy, state_in, the four weights, panels, tape -> the four gradients, dx.
class ScanLayerBackward final : public Executable {
 public:
  ScanLayerBackward(const Recurrence& shape, const Target& target, bool bias)
      : shape_(shape),
        layer_(gpu_of(target), spec_of(shape, target, bias), planned(shape, target, bias)),
        parts_(layer_.parts()) {}

  std::size_t scratch_bytes() const override { return padded(parts_.products); }
  std::size_t persistent_bytes() const override { return padded(parts_.passed) + padded(parts_.sums); }

  void run(const Call& call, const Operands& memory) override {
    const cuda::DeviceAddress scratch = address_of(memory.scratch), persistent = address_of(memory.persistent);
    cuda::LayerBackward backward;
    backward.batch = ops::shape_of(call.batch);
    backward.x = sequence_of(address_of(memory, 0), call.batch, shape_.input);
    backward.y = sequence_of(address_of(memory, 1), call.batch, shape_.hidden);
    backward.dy = sequence_of(address_of(memory, 2), call.batch, shape_.hidden);
    backward.state_in = address_of(memory, 3);
    backward.weights = {address_of(memory, 4), address_of(memory, 6)};
    backward.gates = backward.dgates = address_of(memory, 9);
    backward.gradients = {address_of(memory, 10), address_of(memory, 12)};
    backward.dx = sequence_of(address_of(memory, 14), call.batch, shape_.input);
    layer_.place({0, padded(parts_.passed), scratch - persistent});
    layer_.run(backward, persistent, stream_of(call));
  }

 private:
  static cuda::LayerBackward planned(const Recurrence& shape, const Target& target, bool bias) {
    const Batch batch = planned_batch(target);
    const cuda::DeviceAddress gradient = planned_parameter(target.master());
    cuda::LayerBackward backward;
    backward.batch = ops::shape_of(batch);
    backward.x = backward.dx = sequence_of(planned_value, batch, shape.input);
    backward.y = backward.dy = sequence_of(planned_value, batch, shape.hidden);
    backward.weights = {planned_parameter(target.dtype), bias ? planned_parameter(target.dtype) : 0};
    backward.gradients = {gradient, bias ? gradient : 0};
    backward.gates = backward.dgates = planned_value;
    backward.state_in = planned_value;
    return backward;
  }

  Recurrence shape_;
  cuda::LayerBackwardExecutable layer_;
  cuda::WorkspaceParts parts_;
};

}  // namespace

Prepared cuda_scan_forward(const Recurrence& shape, const Target& target) {
  return std::make_unique<ScanLayerForward>(shape, target, true);
}

Prepared cuda_scan_backward(const Recurrence& shape, const Target& target) {
  return std::make_unique<ScanLayerBackward>(shape, target, true);
}

}  // namespace penstock::ops
