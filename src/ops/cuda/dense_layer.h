#pragma once

// What the passes of a recurrent layer of a dense cell on a GPU share. Private to src/ops/cuda.

#include "backend/cuda/dense/executable.h"
#include "ops/cuda/common.h"
#include "ops/recurrence.h"
#include "plan/cell_table.h"

namespace penstock::ops {

inline cuda::DenseSpec dense_spec(const Recurrence& shape, const Target& target) {
  return {.cell = shape.cell,
          .hidden = shape.hidden,
          .heads = shape.heads,
          .storage = storage_of(target.dtype),
          .reverse = shape.reverse};
}

inline Index gates_of(const Recurrence& shape) { return plan::cell_traits(shape.cell).info.gates * shape.hidden; }

/// `time_first`: what lies over all positions lies steps after steps.
inline cuda::DenseBatch dense_batch(const Batch& batch, const Target& target, bool time_first) {
  auto of = ops::shape_of<cuda::DenseBatch>(batch, target.packed);
  of.time_first = time_first;
  return of;
}

/// A tensor over all positions without gaps.
inline cuda::DeviceSequence gapless(cuda::DeviceAddress data, const cuda::DenseBatch& batch, Index channels) {
  if (batch.time_first) return {data, channels, batch.rows * channels};
  return {data, batch.steps * channels, channels};
}

/// The states but h after each step, or their gradients.
inline cuda::DeviceSequence other_states(const Recurrence& shape, const Batch& batch, cuda::DeviceAddress data) {
  return sequence_of(data, shape.state_strides, batch, shape.other_states_size());
}

/// A tape: what the recurrence keeps, and the input product where its backward pass reads that again.
struct TapePlaces {
  TapePlaces(const Recurrence& shape, const Target& target) {
    const cuda::DenseTapeBytes bytes =
        tape_bytes(dense_spec(shape, target), dense_batch(planned_batch(target), target, false));
    gates = padded(static_cast<std::size_t>(target.positions() * gates_of(shape)) * size_of(target.dtype));
    split = plan::cell_traits(shape.cell).split_gradients;
    states = padded(bytes.sums);
    wx = states + padded(bytes.states);
    end = wx + (split ? gates : 0);
    has_states = bytes.states > 0;
  }
  cuda::DenseTape at(cuda::DeviceAddress tape) const { return {tape, has_states ? tape + states : 0}; }

  std::size_t gates;  // bytes of [P, G, H]
  std::size_t states, wx, end;
  bool split, has_states;
};

}  // namespace penstock::ops
