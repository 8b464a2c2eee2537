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

/// A sequence [B, T, C] in memory, for questions about where it lies. Packed rows: one row of all their steps.
struct SequencePlace {
  const void* data = nullptr;
  Index rows = 1, steps = 1, channels = 1;
  SequenceStrides strides;
  std::size_t size = 1;  // bytes of a number
};

/// Do two sequences share memory? Views of the same rows and steps that interleave without touching do not.
bool share_memory(const SequencePlace& a, const SequencePlace& b);

/// An argument of a call, and where it lies; without data there is none.
struct NamedPlace {
  const char* name;
  SequencePlace at;
};

/// Throws Error(invalid_argument) naming both if what is written shares memory with one of the others.
void require_no_overlap(const NamedPlace& written, std::initializer_list<NamedPlace> others);
/// Throws like require_no_overlap(), but allows that both take exactly the same place.
void require_in_place_or_apart(const NamedPlace& written, const NamedPlace& other);

/// Throws Error(invalid_argument) naming the sequence unless every position of it has a place of its own.
void require_apart(const char* name, const SequencePlace& place);

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
/// Throws unless memory has so many bytes, aligned to 256.
void require_memory(const char* name, const Memory& memory, std::size_t bytes);

/// Bytes, 16 at most, that a sequence's address and the addresses of all its positions are multiples of; 16 without
/// data.
int alignment_of(const Tensor& sequence);

}  // namespace penstock::ops
