#pragma once

#include <array>
#include <span>
#include <vector>

#include "ops/memory/memory.h"
#include "penstock/recurrent.h"
#include "penstock/tensor.h"

namespace penstock::ops {

/// Steps of a batch whose arrays lie on the host: of packed rows all together, otherwise B * T.
Index positions_of(const Batch& batch);

/// Returns a contiguous tensor of a shape of up to four axes.
Tensor tensor_of(void* data, DType dtype, std::span<const Index> shape, Device device);

/// Device memory for copies of a call's tensors. It is reused from call to call and grows only when a tensor is larger
/// than any before. On a CPU it stays empty.
struct HostCopies {
  /// Tensors of a call have slots, which it numbers as it likes.
  static constexpr int slots = 12;

  std::array<Buffer, slots> tensors;
  Buffer lengths, cu_seqlens, reset;
  std::vector<std::byte> gathered;  // what lies on the host in another order
};

/// The tensors of one call with host memory, on a device: where they lie on a CPU, copies on a GPU.
class HostCall {
 public:
  enum class Arrays { copied, kept };

  /// `arrays`: kept if an earlier call with the same copies had the same lengths, row offsets and resets.
  HostCall(HostCopies& copies, Queue& queue, const Batch& host, Arrays arrays = Arrays::copied);

  /// The batch with lengths, row offsets and resets on the device.
  const Batch& batch() const { return batch_; }
  /// A sequence of the batch: [B, T, C], packed [positions, C]. A copy lies steps after steps if the view does,
  /// otherwise rows after rows. No data: a tensor without data.
  template <class Real>
  Tensor in(int slot, const SequenceView<const Real>& view, Index channels);
  /// Returns the tensor of a sequence that an earlier call with the same copies has copied.
  template <class Real>
  Tensor again(int slot, const SequenceView<const Real>& view, Index channels);
  /// Memory for one that the call will write, to be fetched by fetch(). Where it is copied, throws
  /// Error(invalid_argument) that calls it `name` unless every position has a place of its own.
  template <class Real>
  Tensor out(int slot, const char* name, const SequenceView<Real>& view, Index channels);
  /// States of any shape; null: a tensor without data.
  template <class Real>
  Tensor state_in(int slot, const Real* state, std::span<const Index> shape);
  template <class Real>
  Tensor state_out(int slot, Real* state, std::span<const Index> shape);

  /// Copies what the device has written to the host, and waits for it.
  template <class Real>
  void fetch(int slot, const SequenceView<Real>& view, Index channels);
  template <class Real>
  void fetch_state(int slot, Real* state, std::span<const Index> shape);

 private:
  bool copying() const { return queue_.device().is_cuda(); }
  Buffer& of(int slot) { return copies_.tensors[static_cast<std::size_t>(slot)]; }
  void* room(Buffer& buffer, std::size_t bytes);
  void* put(Buffer& buffer, const void* from, std::size_t bytes);

  HostCopies& copies_;
  Queue& queue_;
  const Batch& host_;
  Batch batch_;
};

}  // namespace penstock::ops
