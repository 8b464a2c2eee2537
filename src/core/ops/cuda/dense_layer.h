#pragma once

// Code that the passes of a recurrent layer of a dense cell on a GPU share. Private to src/core/ops/cuda.

#include "backend/cuda/dense/executable.h"
#include "ops/cuda/common.h"
#include "ops/cuda/layer_memory.h"
#include "ops/recurrence/recurrence.h"
#include "plan/cell_table.h"

namespace penstock::ops {

inline Index gates_of(const Recurrence& shape) { return plan::cell_traits(shape.cell).info.gates * shape.hidden; }

/// Values from position to position of W x and of the gates' gradients. A caller's W x and its gradient have no gaps,
/// nor have few gates, whose GEMMs would gain less than clearing the gaps takes.
inline Index gate_pitch_of(const Recurrence& shape, const Target& target) {
  constexpr Index few = 512;
  const Index gates = gates_of(shape);
  return shape.projected || gates < few ? gates : cuda::product_pitch(gates, storage_of(target.dtype));
}

inline cuda::DenseSpec dense_spec(const Recurrence& shape, const Target& target) {
  return {.cell = shape.cell,
          .hidden = shape.hidden,
          .heads = shape.heads,
          .storage = storage_of(target.dtype),
          .reverse = shape.reverse,
          .exact = target.execution.exact,
          .tf32 = target.tf32(),
          .gate_pitch = gate_pitch_of(shape, target)};
}

/// `time_first`: what lies over all positions lies steps after steps.
inline cuda::DenseBatch dense_batch(const Target& target, bool time_first) {
  auto of = ops::shape_of<cuda::DenseBatch>(planned_batch(target), target.packed);
  of.time_first = time_first;
  of.sorted = target.has(CallFlag::sorted);
  return of;
}

inline void set_rows(cuda::DenseBatch& of, const Batch& batch) {
  set_rows<cuda::DenseBatch>(of, batch);
  if (batch.batch_sizes != nullptr) of.sizes = {batch.batch_sizes, static_cast<std::size_t>(batch.steps)};
}

/// A tensor over all positions, `channels` apart.
inline cuda::DeviceSequence gapless(cuda::DeviceAddress data, const cuda::DenseBatch& batch, Index channels) {
  if (batch.time_first) return {data, channels, batch.rows * channels};
  return {data, batch.steps * channels, channels};
}

/// The states but h after each step, or their gradients.
inline cuda::DeviceSequence other_states(const Recurrence& shape, const Batch& batch, cuda::DeviceAddress data) {
  return sequence_of(data, shape.state_strides, batch, shape.other_states_size());
}

/// A tape: what the recurrence keeps, and the input product where its backward pass reads that again and the caller
/// does not keep it.
struct TapePlaces {
  TapePlaces(const Recurrence& shape, const Target& target) {
    const cuda::DenseTapeBytes bytes = tape_bytes(dense_spec(shape, target), dense_batch(target, false));
    gates = padded(bytes.sums);
    split = plan::cell_traits(shape.cell).split_gradients;
    states = padded(bytes.sums);
    wx = states + padded(bytes.states);
    keeps_wx = split && !shape.projected;
    end = wx + (keeps_wx ? gates : 0);
    has_states = bytes.states > 0;
  }
  cuda::DenseTape at(cuda::DeviceAddress tape) const { return {tape, has_states ? tape + states : 0}; }

  std::size_t gates;  // bytes of [P, gate pitch]
  std::size_t states, wx, end;
  bool split, keeps_wx, has_states;
};

/// The product of a layer's input and its weights over so many positions, in one matrix.
inline cuda::ProductShape input_product(const Recurrence& shape, const Target& target, const InputMatrix& input,
                                        Index positions) {
  cuda::ProductShape product{.storage = storage_of(target.dtype), .result = storage_of(target.dtype)};
  product.m = positions, product.n = gates_of(shape), product.k = shape.input;
  product.m_varies = true;
  product.exact = target.execution.exact, product.tf32 = target.tf32();
  product.b_transposed = true;
  product.a_stride = input.stride(), product.b_stride = shape.input;
  product.d_stride = gate_pitch_of(shape, target);
  product.d_padded = product.d_stride > product.n;
  product.a_alignment = input.alignment(), product.d_alignment = planned_value;
  product.b_alignment = static_cast<int>(planned_weight(shape, target.dtype));
  return product;
}

/// W x as a call's x: in any strides.
inline cuda::DeviceSequence given_wx(const Recurrence& shape, const Batch& batch, cuda::DeviceAddress x) {
  return sequence_of(x, shape.x_strides, batch, shape.input);
}

/// A call over all steps, for executables to be made for. A run puts its addresses in the place of the stand-ins.
inline cuda::DenseForward planned_forward(const Recurrence& shape, const Target& target, const InputMatrix& input,
                                          const TapePlaces& tape, const StateBlocks& states) {
  const Batch batch = planned_batch(target);
  cuda::DenseForward forward;
  forward.batch = dense_batch(target, input.time_first());
  forward.wx = shape.projected ? given_wx(shape, batch, planned_sequence(shape))
                               : gapless(planned_value, forward.batch, gate_pitch_of(shape, target));
  forward.y = sequence_of(planned_sequence(shape), shape.y_strides, batch, shape.hidden);
  forward.weights = {planned_weight(shape, target.dtype), planned_weight(shape, target.master()), 0};
  forward.state_in = forward.state_out = planned_value;
  forward.batch.restarts = states.restarts(planned_value);
  if (target.has(CallFlag::training)) forward.tape = tape.at(planned_value);
  if (shape.every_state) forward.every_state = other_states(shape, batch, planned_value);
  return forward;
}

}  // namespace penstock::ops
