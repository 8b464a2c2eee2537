#pragma once

#include <array>
#include <vector>

#include "ops/memory/memory.h"
#include "penstock/recurrent.h"
#include "penstock/tensor.h"

namespace penstock::ops {

/// A call's tensors, copied between the host's memory and a device. Memory there is reused from call to call and grows
/// only when a tensor is larger than any before.
class HostCopies {
 public:
  /// Tensors of a call have slots, which it numbers as it likes.
  static constexpr int slots = 12;

  /// The batch with lengths, packed rows and resets on the device.
  Batch upload(Queue& queue, const Batch& batch);
  /// A sequence of that batch: [B, T, C], packed [positions, C], steps after steps if the view lies so, otherwise rows
  /// after rows.
  template <class Real>
  Tensor upload(Queue& queue, int slot, const Batch& batch, SequenceView<const Real> view, Index channels);
  /// Memory for one that a call will write, to be fetched by download().
  template <class Real>
  Tensor room(Queue& queue, int slot, const Batch& batch, SequenceView<const Real> view, Index channels);
  /// States of any shape; null: a tensor without data.
  template <class Real>
  Tensor upload_state(Queue& queue, int slot, const Real* state, const std::vector<Index>& shape);
  template <class Real>
  Tensor state_room(Queue& queue, int slot, bool wanted, const std::vector<Index>& shape);

  /// Copies what the device has written, and waits for it.
  template <class Real>
  void download(int slot, const Batch& batch, SequenceView<Real> view, Index channels);
  template <class Real>
  void download_state(int slot, Real* state, const std::vector<Index>& shape);

 private:
  Buffer& of(int slot) { return tensors_[static_cast<std::size_t>(slot)]; }
  void* memory(Queue& queue, Buffer& buffer, std::size_t bytes);
  void* put(Queue& queue, Buffer& buffer, const void* from, std::size_t bytes);

  std::array<Buffer, slots> tensors_;
  Buffer lengths_, cu_seqlens_, reset_;
  std::vector<std::byte> gathered_;  // what lies on the host in another order
};

/// Steps of a batch whose arrays lie on the host: of packed rows all together, otherwise B * T.
Index positions_of(const Batch& batch);

}  // namespace penstock::ops
