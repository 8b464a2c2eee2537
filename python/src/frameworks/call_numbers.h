#pragma once

#include <cstdint>
#include <initializer_list>

#include "penstock/recurrent_program.h"

/// Code that the bindings of PyTorch and of JAX share.
namespace penstock::frameworks {

/// The numbers that determine a call of a recurrent stack, and so the size of its tape, for callers who know only the
/// shapes of arrays.
struct CallNumbers {
  const char* cell;
  std::int64_t input, hidden, heads, layers, bidirectional, biases;
  std::int64_t type, weight_type;  // f32, f64, bf16, f16
  std::int64_t rows, steps;
  std::int64_t positions;  // of packed rows, all steps together; 0: rows are padded
  std::int64_t lengths, reset, batch_first, every_state;
  std::int64_t restarts;  // as the enumeration numbers them
  std::int64_t cuda;      // number of the GPU; -1 for the CPU
};

/// A call as the library describes it.
struct DescribedCall {
  RecurrentSpec spec;
  RecurrentForm form;  ///< Of a forward pass in training. Sequences are contiguous.
  Execution execution;
};

/// Returns the type of a number: f32, f64, bf16, f16. Throws std::out_of_range.
DType type_of(std::int64_t number);

/// Throws Error for an unknown cell, std::out_of_range for an unknown type or kind of restarts.
DescribedCall describe(const CallNumbers& numbers);

/// Returns the bytes of an array for the tape of this call, as TapeArray lays it out. Throws Error.
std::int64_t tape_array_bytes(const CallNumbers& numbers);

/// Returns the largest of 16, 8, 4 and 2 that divides all numbers of bytes, or all addresses.
int alignment_of(std::initializer_list<std::uintptr_t> bytes);
int alignment_of(std::initializer_list<const void*> addresses);

}  // namespace penstock::frameworks
