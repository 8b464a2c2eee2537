#pragma once

#include <array>
#include <initializer_list>
#include <span>
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
  std::array<Buffer, 12> tensors;  // of a call, in the order in which HostCall gets them
  Buffer lengths, cu_seqlens, reset;
  std::vector<std::byte> gathered;  // what lies on the host in another order
};

/// Moves a call whose tensors lie on the host to a GPU: replaces them by copies. Copies of sequences have no gaps and
/// lie steps after steps if the tensor does, otherwise rows after rows. Tensors without data stay so.
class HostCall {
 public:
  /// Replaces lengths, row offsets and resets of the batch. `kept`: tensors of an earlier call with the same copies
  /// that stay as they are; if there are any, the batch is that of the earlier call.
  HostCall(HostCopies& copies, Queue& queue, Batch& batch, std::size_t kept = 0);

  /// Copies what the call reads.
  void in(std::initializer_list<Tensor*> tensors);
  /// Replaces what the call writes by memory that fetch() copies back. Positions of a tensor must not overlap.
  void out(std::initializer_list<Tensor*> tensors);
  /// Does both for a tensor that the call updates.
  void update(Tensor& tensor);
  /// Replaces a tensor by the copy that the earlier call made first.
  void again(Tensor& tensor);
  /// Copies what the device has written to the host, and waits for it.
  void fetch();

 private:
  struct Written {
    Buffer* buffer;
    Tensor host;
  };

  void* room(Buffer& buffer, std::size_t bytes);
  void copy(Buffer& buffer, Tensor& tensor);
  void replace(Buffer& buffer, Tensor& tensor);

  HostCopies& copies_;
  Queue& queue_;
  std::size_t next_;
  std::vector<Written> written_;
};

}  // namespace penstock::ops
