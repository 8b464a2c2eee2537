// Recurrent layers of dense cells on a GPU: the input product of all positions, then the recurrence over it.

#include "backend/cuda/dense/executable.h"
#include "backend/cuda/gradient_products.h"
#include "ops/cuda/common.h"
#include "ops/cuda/ops.h"
#include "plan/cell_table.h"

namespace penstock::ops {

namespace {

using cuda::DeviceAddress;

cuda::DenseSpec dense_spec(const Recurrence& shape, const Target& target) {
  return {.cell = shape.cell,
          .hidden = shape.hidden,
          .heads = shape.heads,
          .storage = storage_of(target.dtype),
          .reverse = shape.reverse};
}

cuda::DenseBatch dense_batch(const Batch& batch) {
  return {.rows = batch.rows,
          .steps = batch.steps,
          .lengths = address_of(batch.lengths),
          .reset = address_of(batch.reset),
          .reset_row_stride = batch.steps,
          .reset_step_stride = 1};
}

/// A tape: what the recurrence keeps, and the input product where its backward pass reads that again.
struct TapePlaces {
  TapePlaces(const Recurrence& shape, const Target& target) {
    const plan::CellTraits& cell = plan::cell_traits(shape.cell);
    const cuda::DenseTapeBytes bytes = tape_bytes(dense_spec(shape, target), dense_batch(planned_batch(target)));
    gates =
        padded(static_cast<std::size_t>(target.positions() * cell.info.gates * shape.hidden) * size_of(target.dtype));
    split = cell.split_gradients;
    states = padded(bytes.sums);
    wx = states + padded(bytes.states);
    end = wx + (split ? gates : 0);
    has_states = bytes.states > 0;
  }
  cuda::DenseTape at(DeviceAddress tape) const { return {tape, has_states ? tape + states : 0}; }

  std::size_t gates;  // bytes of [P, G, H]
  std::size_t states, wx, end;
  bool split, has_states;
};

/// The operands x, state_in, weight_ih, weight_hh, bias_ih, bias_hh, panels -> y, state_out, tape.
class DenseLayerForward final : public Executable {
 public:
  DenseLayerForward(const Recurrence& shape, const Target& target)
      : shape_(shape),
        gates_(plan::cell_traits(shape.cell).info.gates * shape.hidden),
        training_(target.training),
        tape_(shape, target),
        product_(gpu_of(target), product_of(shape, target)),
        recurrence_(gpu_of(target), dense_spec(shape, target), planned(shape, target)) {}

  std::size_t scratch_bytes() const override { return order_place() + padded(recurrence_.workspace_bytes()); }
  std::size_t opaque_bytes(int) const override { return tape_.end; }

  void run(const Call& call, const Operands& memory) override {
    const DeviceAddress scratch = address_of(memory.scratch), tape = address_of(memory, 9);
    const DeviceAddress wx = tape != 0 && tape_.split ? tape + tape_.wx : scratch + wx_place();
    product_.run(address_of(memory, 0), address_of(memory, 2), wx, 0, scratch, stream_of(call));
    cuda::DenseForward forward;
    forward.batch = dense_batch(call.batch);
    forward.wx = sequence_of(wx, call.batch, gates_);
    forward.y = sequence_of(address_of(memory, 7), call.batch, shape_.hidden);
    forward.weights = {address_of(memory, 3), address_of(memory, 4), address_of(memory, 5)};
    forward.state_in = address_of(memory, 1);
    forward.state_out = address_of(memory, 8);
    if (tape != 0) forward.tape = tape_.at(tape);
    recurrence_.run(forward, scratch + order_place(), stream_of(call));
  }

 private:
  std::size_t wx_place() const { return padded(product_.workspace_bytes()); }
  std::size_t order_place() const { return wx_place() + (training_ && tape_.split ? 0 : tape_.gates); }

  static cuda::ProductShape product_of(const Recurrence& shape, const Target& target) {
    cuda::ProductShape product{.storage = storage_of(target.dtype), .result = storage_of(target.dtype)};
    product.m = target.positions(), product.k = shape.input;
    product.n = plan::cell_traits(shape.cell).info.gates * shape.hidden;
    product.b_transposed = true;
    product.a_stride = product.b_stride = shape.input, product.d_stride = product.n;
    product.a_alignment = product.d_alignment = planned_value;
    product.b_alignment = static_cast<int>(planned_parameter(target.dtype));
    return product;
  }

  static cuda::DenseForward planned(const Recurrence& shape, const Target& target) {
    const Batch batch = planned_batch(target);
    const TapePlaces tape(shape, target);
    cuda::DenseForward forward;
    forward.batch = dense_batch(batch);
    forward.wx = sequence_of(planned_value, batch, plan::cell_traits(shape.cell).info.gates * shape.hidden);
    forward.y = sequence_of(planned_value, batch, shape.hidden);
    forward.weights = {planned_parameter(target.dtype), planned_parameter(target.master()), 0};
    forward.state_in = forward.state_out = planned_value;
    if (target.training) forward.tape = tape.at(planned_value);
    return forward;
  }

  Recurrence shape_;
  Index gates_;
  bool training_;
  TapePlaces tape_;
  cuda::MatrixProduct product_;
  cuda::DenseForwardExecutable recurrence_;
};

/// The operands x, y, dy, state_in, the four weights, panels, tape -> the four gradients, dx.
class DenseLayerBackward final : public Executable {
 public:
  DenseLayerBackward(const Recurrence& shape, const Target& target)
      : shape_(shape),
        gates_(plan::cell_traits(shape.cell).info.gates * shape.hidden),
        tape_(shape, target),
        recurrence_(gpu_of(target), dense_spec(shape, target), planned(shape, target)),
        products_(gpu_of(target), products_of(shape, target)) {}

  std::size_t scratch_bytes() const override { return products_place() + padded(products_.products_bytes()); }
  std::size_t persistent_bytes() const override {
    return padded(recurrence_.workspace_bytes()) + padded(products_.sums_bytes());
  }

  void run(const Call& call, const Operands& memory) override {
    const DeviceAddress scratch = address_of(memory.scratch), persistent = address_of(memory.persistent);
    const DeviceAddress tape = address_of(memory, 9), dwx = scratch;
    cuda::DenseBackward backward;
    backward.batch = dense_batch(call.batch);
    if (tape_.split) backward.wx = sequence_of(tape + tape_.wx, call.batch, gates_);
    backward.y = sequence_of(address_of(memory, 1), call.batch, shape_.hidden);
    backward.dy = sequence_of(address_of(memory, 2), call.batch, shape_.hidden);
    backward.weights = {address_of(memory, 5), address_of(memory, 6), address_of(memory, 7)};
    backward.tape = tape_.at(tape);
    backward.dwx = dwx;
    backward.drh = tape_.split ? dwx + tape_.gates : 0;
    backward.gradients = {address_of(memory, 11), address_of(memory, 12), address_of(memory, 13)};
    backward.state_in = address_of(memory, 3);
    recurrence_.run(backward, persistent, stream_of(call));
    products_.run({.x = address_of(memory, 0),
                   .weight = address_of(memory, 4),
                   .dy = dwx,
                   .dweight = address_of(memory, 10),
                   .dx = address_of(memory, 14)},
                  persistent + padded(recurrence_.workspace_bytes()), scratch + products_place(), stream_of(call));
  }

 private:
  std::size_t products_place() const { return tape_.gates * (tape_.split ? 2 : 1); }

  static cuda::DenseBackward planned(const Recurrence& shape, const Target& target) {
    const Batch batch = planned_batch(target);
    const TapePlaces tape(shape, target);
    const Index gates = plan::cell_traits(shape.cell).info.gates * shape.hidden;
    const DeviceAddress gradient = planned_parameter(target.master());
    cuda::DenseBackward backward;
    backward.batch = dense_batch(batch);
    if (tape.split) backward.wx = sequence_of(planned_value, batch, gates);
    backward.y = backward.dy = sequence_of(planned_value, batch, shape.hidden);
    backward.weights = {planned_parameter(target.dtype), planned_parameter(target.master()), 0};
    backward.tape = tape.at(planned_value);
    backward.dwx = planned_value;
    backward.drh = tape.split ? planned_value : 0;
    backward.gradients = {gradient, gradient, 0};
    backward.state_in = planned_value;
    return backward;
  }

  /// Of the input: biases are the recurrence's, which has their sums anyway.
  static cuda::GradientShape products_of(const Recurrence& shape, const Target& target) {
    const Index gates = plan::cell_traits(shape.cell).info.gates * shape.hidden;
    return {.storage = storage_of(target.dtype),
            .gradients = plan::Storage::f32,
            .positions = target.positions(),
            .inputs = shape.input,
            .outputs = gates,
            .x_stride = shape.input,
            .bias = false,
            .dx = true,
            .dy_alignment = planned_value,
            .x_alignment = planned_value,
            .weight_alignment = static_cast<int>(planned_parameter(target.dtype)),
            .dweight_alignment = static_cast<int>(planned_parameter(target.master())),
            .dx_alignment = planned_value};
  }

  Recurrence shape_;
  Index gates_;
  TapePlaces tape_;
  cuda::DenseBackwardExecutable recurrence_;
  cuda::GradientProducts products_;
};

}  // namespace

Prepared cuda_dense_forward(const Recurrence& shape, const Target& target) {
  return std::make_unique<DenseLayerForward>(shape, target);
}

Prepared cuda_dense_backward(const Recurrence& shape, const Target& target) {
  return std::make_unique<DenseLayerBackward>(shape, target);
}

}  // namespace penstock::ops
