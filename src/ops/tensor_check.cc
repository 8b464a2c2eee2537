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

/// Elements from the data to the first and behind the last that belong to a sequence.
std::pair<Index, Index> reach(const SequencePlace& place) {
  const Index row = (place.rows - 1) * place.strides.row, step = (place.steps - 1) * place.strides.step;
  return {std::min<Index>(0, row) + std::min<Index>(0, step),
          std::max<Index>(0, row) + std::max<Index>(0, step) + place.channels};
}

}  // namespace

bool share_memory(const SequencePlace& a, const SequencePlace& b) {
  if (a.rows * a.steps == 0 || b.rows * b.steps == 0) return false;
  const auto a_size = static_cast<Index>(a.size), b_size = static_cast<Index>(b.size);
  const auto* const a_data = static_cast<const std::byte*>(a.data);
  const auto* const b_data = static_cast<const std::byte*>(b.data);
  const auto [a_first, a_end] = reach(a);
  const auto [b_first, b_end] = reach(b);
  const std::less_equal<> before;
  if (before(a_data + a_end * a_size, b_data + b_first * b_size) ||
      before(b_data + b_end * b_size, a_data + a_first * a_size)) {
    return false;
  }
  // Channels of one wider tensor, side by side: same strides, and no position of one touches the other's.
  if (a.strides != b.strides || a.rows != b.rows || a.steps != b.steps || a_size != b_size) return true;
  const Index apart = (b_data - a_data) / a_size;
  constexpr Index none = std::numeric_limits<Index>::max();
  const Index smallest =
      std::min(a.rows > 1 ? std::abs(a.strides.row) : none, a.steps > 1 ? std::abs(a.strides.step) : none);
  return apart >= 0 ? !(apart >= a.channels && apart + b.channels <= smallest)
                    : !(-apart >= b.channels && -apart + a.channels <= smallest);
}

void require_no_overlap(const NamedPlace& written, std::initializer_list<NamedPlace> others) {
  if (written.at.data == nullptr) return;
  for (const NamedPlace& other : others) {
    require(other.at.data == nullptr || !share_memory(written.at, other.at), "{} must not overlap {}", written.name,
            other.name);
  }
}

void require_in_place_or_apart(const NamedPlace& written, const NamedPlace& other) {
  if (written.at.data == nullptr || other.at.data == nullptr) return;
  const bool in_place = written.at.data == other.at.data && written.at.strides == other.at.strides;
  require(in_place || !share_memory(written.at, other.at), "{} must not overlap {} unless it takes its place",
          written.name, other.name);
}

void require_apart(const char* name, const SequencePlace& place) {
  require(place.steps <= 1 || std::abs(place.strides.step) >= place.channels,
          "{} must have a step stride of at least its {} channels, not {}: batch_first() and time_first() make views",
          name, place.channels, place.strides.step);
  require(place.rows <= 1 || std::abs(place.strides.row) >= place.channels,
          "{} must have a row stride of at least its {} channels, not {}: batch_first() and time_first() make views",
          name, place.channels, place.strides.row);
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
  require(reinterpret_cast<std::uintptr_t>(memory.data) % 256 == 0, "{} must be aligned to 256 bytes", name);
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
