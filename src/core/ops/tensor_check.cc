#include "ops/tensor_check.h"

#include <algorithm>
#include <functional>
#include <limits>
#include <span>
#include <utility>

#include "base/check.h"

namespace penstock::ops {

namespace {

std::span<const Index> extents(const std::array<Index, Tensor::max_rank>& all, int rank) {
  return {all.data(), static_cast<std::size_t>(rank)};
}

/// Elements from the data to the first and behind the last that belong to a tensor.
std::pair<Index, Index> reach(const Tensor& tensor) {
  Index first = 0, end = 1;
  for (std::size_t axis = 0; axis < static_cast<std::size_t>(tensor.rank); ++axis) {
    const Index last = (tensor.shape[axis] - 1) * tensor.strides[axis];
    (last < 0 ? first : end) += last;
  }
  return {first, end};
}

bool is_empty(const Tensor& tensor) {
  const std::span<const Index> shape = extents(tensor.shape, tensor.rank);
  return std::ranges::find(shape, 0) != shape.end();
}

/// Throws unless every position of a tensor has a place of its own.
void require_apart(const NamedTensor& written) {
  const Tensor& tensor = written.tensor;
  const auto last = static_cast<std::size_t>(tensor.rank) - 1;
  for (std::size_t axis = last; axis-- > 0;) {
    require(tensor.shape[axis] <= 1 || std::abs(tensor.strides[axis]) >= tensor.shape[last],
            "{} must have a {} stride of at least its {} channels, not {}: batch_first() and time_first() make views",
            written.name, axis + 1 == last ? "step" : "row", tensor.shape[last], tensor.strides[axis]);
  }
}

}  // namespace

bool share_memory(const Tensor& a, const Tensor& b) {
  const auto a_size = static_cast<Index>(size_of(a.dtype)), b_size = static_cast<Index>(size_of(b.dtype));
  const auto* const a_data = static_cast<const std::byte*>(a.data);
  const auto* const b_data = static_cast<const std::byte*>(b.data);
  const auto [a_first, a_end] = reach(a);
  const auto [b_first, b_end] = reach(b);
  const std::less_equal<> before;
  if (before(a_data + a_end * a_size, b_data + b_first * b_size) ||
      before(b_data + b_end * b_size, a_data + a_first * a_size)) {
    return false;
  }
  if (is_empty(a) || is_empty(b)) return false;
  // Channels of one wider tensor, side by side: same strides, and no position of one touches the other's.
  if (a.rank != b.rank || a_size != b_size) return true;
  const auto last = static_cast<std::size_t>(a.rank) - 1;
  Index smallest = std::numeric_limits<Index>::max();
  for (std::size_t axis = 0; axis < last; ++axis) {
    if (a.shape[axis] != b.shape[axis] || a.strides[axis] != b.strides[axis]) return true;
    if (a.shape[axis] > 1) smallest = std::min(smallest, std::abs(a.strides[axis]));
  }
  const Index apart = (b_data - a_data) / a_size;
  return apart >= 0 ? !(apart >= a.shape[last] && apart + b.shape[last] <= smallest)
                    : !(-apart >= b.shape[last] && -apart + a.shape[last] <= smallest);
}

void require_no_overlap(const NamedTensor& written, std::initializer_list<NamedTensor> others) {
  if (!written.tensor) return;
  require_apart(written);
  for (const NamedTensor& other : others) {
    require(!other.tensor || !share_memory(written.tensor, other.tensor), "{} must not overlap {}", written.name,
            other.name);
  }
}

void require_in_place_or_apart(const NamedTensor& written, const NamedTensor& other) {
  if (!written.tensor || !other.tensor) return;
  const bool in_place =
      written.tensor.data == other.tensor.data && strides_of(written.tensor) == strides_of(other.tensor);
  require(in_place || !share_memory(written.tensor, other.tensor), "{} must not overlap {} unless it takes its place",
          written.name, other.name);
}

void require_tensor(const char* name, const Tensor& tensor, DType dtype, Device device, std::size_t alignment) {
  const bool aligned = (reinterpret_cast<std::uintptr_t>(tensor.data) & (alignment - 1)) == 0;
  // Names of devices take time to write.
  if (tensor.data != nullptr && tensor.dtype == dtype && tensor.device == device && aligned) return;
  require(tensor.data != nullptr, "{} must not be null", name);
  require(tensor.dtype == dtype, "{} must be {}, not {}", name, to_string(dtype), to_string(tensor.dtype));
  require(tensor.device == device, "{} must be on {}, not {}", name, to_string(device), to_string(tensor.device));
  require(aligned, "{} must begin at a multiple of {} bytes, not {:#x}", name, alignment,
          reinterpret_cast<std::uintptr_t>(tensor.data));
}

void require_gapless(const char* name, const Tensor& tensor, const Index* shape, int rank) {
  const std::span<const Index> wanted(shape, static_cast<std::size_t>(rank));
  require(has_shape(tensor, shape, rank), "{} must be [{}], not [{}]", name, fmt::join(wanted, ", "),
          fmt::join(extents(tensor.shape, tensor.rank), ", "));
  Index stride = 1;
  for (auto axis = static_cast<std::size_t>(rank); axis-- > 0; stride *= shape[axis]) {
    require(shape[axis] == 1 || tensor.strides[axis] == stride,
            "{} must lie in memory without gaps, with a stride of {} along axis {}, not {}", name, stride, axis,
            tensor.strides[axis]);
  }
}

void require_gapless(const char* name, const Tensor& tensor, std::initializer_list<Index> shape) {
  require_gapless(name, tensor, shape.begin(), static_cast<int>(shape.size()));
}

void require_memory(const char* name, const Memory& memory, std::size_t bytes) {
  if (bytes == 0) return;
  require(memory.data != nullptr, "{} must not be null: {} bytes are needed", name, bytes);
  require(memory.bytes >= bytes, "{} must have at least {} bytes, not {}", name, bytes, memory.bytes);
  require(reinterpret_cast<std::uintptr_t>(memory.data) % static_cast<std::uintptr_t>(call_alignment) == 0,
          "{} must be aligned to {} bytes", name, call_alignment);
}

int alignment_of(const Tensor& sequence) {
  auto multiple = static_cast<std::size_t>(16);
  if (!sequence) return static_cast<int>(multiple);
  const std::size_t size = size_of(sequence.dtype);
  std::size_t all = reinterpret_cast<std::uintptr_t>(sequence.data);
  for (std::size_t axis = 0; axis + 1 < static_cast<std::size_t>(sequence.rank); ++axis) {
    if (sequence.shape[axis] > 1) all |= static_cast<std::size_t>(std::abs(sequence.strides[axis])) * size;
  }
  while (multiple > size && all % multiple != 0) multiple /= 2;
  return static_cast<int>(multiple);
}

}  // namespace penstock::ops
