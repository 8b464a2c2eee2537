#pragma once

#include <array>
#include <span>
#include <utility>
#include <vector>

#include "base/dtype.h"
#include "ops/memory/memory.h"
#include "penstock/recurrent.h"
#include "penstock/tensor.h"

namespace penstock::ops {

/// Returns the steps of a batch whose arrays lie on the host: of packed rows all together, otherwise B * T.
inline Index positions_of(const Batch& batch) {
  return batch.cu_seqlens != nullptr ? batch.cu_seqlens[batch.rows] : batch.rows * batch.steps;
}

/// Returns a contiguous tensor of a shape of up to four axes.
Tensor tensor_of(void* data, DType dtype, std::span<const Index> shape, Device device);

/// Returns a sequence where it lies on the host: [B, T, C], packed [positions, C]. No data: a tensor without data.
template <class Real>
Tensor sequence_on_host(const Batch& batch, const SequenceView<Real>& view, Index channels) {
  // Calls only read what is const here. NOLINTNEXTLINE(cppcoreguidelines-pro-type-const-cast)
  auto* const data = const_cast<std::remove_const_t<Real>*>(view.data);
  constexpr DType type = dtype_of<std::remove_const_t<Real>>();
  if (batch.cu_seqlens != nullptr) {
    return {data, type, {}, 2, {positions_of(batch), channels}, {view.step_stride, 1}};
  }
  return {data, type, {}, 3, {batch.rows, batch.steps, channels}, {view.row_stride, view.step_stride, 1}};
}

/// Memory of a GPU for copies of a call's tensors. It is reused from call to call and grows only when a tensor is
/// larger than any before.
struct HostCopies {
  /// Tensors of a call have slots, which it numbers as it likes.
  static constexpr int slots = 12;

  std::array<Buffer, slots> tensors;
  Buffer lengths, cu_seqlens, reset;
  std::vector<std::byte> gathered;  // what lies on the host in another order
};

/// Moves a call whose tensors lie on the host to a GPU: replaces them by copies. Copies of sequences have no gaps and
/// lie steps after steps if the tensor does, otherwise rows after rows. Tensors without data stay so.
class HostCall {
 public:
  enum class Arrays { copied, kept };

  /// Replaces lengths, row offsets and resets of the batch. `arrays`: kept if an earlier call with the same copies had
  /// the same ones.
  HostCall(HostCopies& copies, Queue& queue, Batch& batch, Arrays arrays = Arrays::copied);

  /// Copies what the call reads.
  void in(int slot, Tensor& tensor);
  /// Replaces a tensor by the copy that in() of an earlier call made.
  void again(int slot, Tensor& tensor);
  /// Replaces a tensor that the call writes by memory that fetch() copies back. Its positions must not overlap.
  void out(int slot, Tensor& tensor);
  /// Copies what the device has written to the host, and waits for it.
  void fetch();

 private:
  Buffer& of(int slot) { return copies_.tensors[static_cast<std::size_t>(slot)]; }
  void* room(Buffer& buffer, std::size_t bytes);
  void put(Buffer& buffer, const void* from, std::size_t bytes);

  HostCopies& copies_;
  Queue& queue_;
  std::vector<std::pair<int, Tensor>> written_;  // slots, and where their tensors lie on the host
};

}  // namespace penstock::ops
