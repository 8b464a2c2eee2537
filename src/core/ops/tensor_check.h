#pragma once

#include <cstddef>
#include <initializer_list>
#include <span>

#include "penstock/tensor.h"

namespace penstock::ops {

/// Returns the number of values of a shape.
inline std::size_t count_of(std::span<const Index> shape) {
  std::size_t count = 1;
  for (const Index extent : shape) count *= static_cast<std::size_t>(extent);
  return count;
}

/// Strides of the rows and steps of a sequence: [B, T, C], or packed [positions, C], which has no rows.
inline SequenceStrides strides_of(const Tensor& sequence) {
  return sequence.rank == 2 ? SequenceStrides{0, sequence.strides[0]}
                            : SequenceStrides{sequence.strides[0], sequence.strides[1]};
}

/// Returns whether two tensors share memory. Views of the same rows and steps that interleave without touching do not.
bool share_memory(const Tensor& a, const Tensor& b);

/// An argument of a call; without data there is none.
struct NamedTensor {
  const char* name;
  const Tensor& tensor;
};

/// Throws Error(invalid_argument) that names the tensors if what is written shares memory with one of the others, or if
/// positions of it share memory.
void require_no_overlap(const NamedTensor& written, std::initializer_list<NamedTensor> others);
/// Throws if both share memory, unless they take exactly the same place.
void require_in_place_or_apart(const NamedTensor& written, const NamedTensor& other);

/// Returns whether a tensor has that shape. A call checks several tensors, and the C library's comparison of memory
/// takes longer than a few numbers.
inline bool has_shape(const Tensor& tensor, const Index* shape, int rank) {
  if (tensor.rank != rank) return false;
  for (std::size_t axis = 0; axis < static_cast<std::size_t>(rank); ++axis) {
    if (tensor.shape[axis] != shape[axis]) return false;
  }
  return true;
}

/// Throws unless a tensor has that type, lies on that device, and has data aligned so.
void require_tensor(const char* name, const Tensor& tensor, DType dtype, Device device, std::size_t alignment);
/// Throws also unless the tensor has this shape, without gaps.
void require_gapless(const char* name, const Tensor& tensor, std::initializer_list<Index> shape);
void require_gapless(const char* name, const Tensor& tensor, const Index* shape, int rank);
/// Bytes that the memory of a call is aligned to. XLA aligns its buffers to no more.
inline constexpr int call_alignment = 128;
/// Throws unless memory has so many bytes, aligned to call_alignment.
void require_memory(const char* name, const Memory& memory, std::size_t bytes);

/// Bytes, 16 at most, that a sequence's address and the addresses of all its positions are multiples of; 16 without
/// data.
int alignment_of(const Tensor& sequence);

}  // namespace penstock::ops
