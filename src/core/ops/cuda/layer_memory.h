#pragma once

#include <array>
#include <optional>

#include "backend/cuda/dense/dense.h"
#include "backend/cuda/pointwise/copy.h"
#include "backend/cuda/pointwise/residual.h"
#include "ops/cuda/common.h"
#include "ops/recurrence/recurrence.h"

/// Operands of a recurrent layer, for kernels that allow less than an op does.
namespace penstock::ops {

/// A sequence copied from some strides to others; where there are lengths, zeros beyond them.
class SequenceCopy {
 public:
  SequenceCopy(const Target& target, Index channels, const SequenceStrides& from, const SequenceStrides& to,
               int alignment);
  void run(const Call& call, cuda::DeviceAddress from, cuda::DeviceAddress to) const;

 private:
  cuda::CopyRowsExecutable kernel_;
  bool lengths_;
};

/// x as one matrix of all positions, rows after rows or steps after steps, which products read: itself, or a copy
/// without gaps. And its gradient, which is made in the same places. W x (Recurrence::projected) is never copied, since
/// recurrences read any strides; its gradient has no gaps.
class InputMatrix {
 public:
  /// `clean`: what lies beyond the lengths must not be read.
  InputMatrix(const Recurrence& shape, const Target& target, bool clean, bool wants_dx);

  bool time_first() const { return time_first_; }
  /// Elements from position to position.
  Index stride() const { return time_first_ || steps_ == 1 ? strides_.row : strides_.step; }
  const SequenceStrides& strides() const { return strides_; }
  /// Bytes that the matrix's address, and that of dx, is a multiple of.
  int alignment() const { return alignment_; }
  int dx_alignment() const { return dx_out_ ? call_alignment : alignment_; }
  std::size_t scratch_bytes() const { return x_bytes_ + dx_bytes_; }

  /// The matrix.
  cuda::DeviceSequence enter(const Call& call, cuda::DeviceAddress x, cuda::DeviceAddress scratch) const;
  /// Returns the place of the matrix after enter().
  cuda::DeviceAddress place(cuda::DeviceAddress x, cuda::DeviceAddress scratch) const { return x_in_ ? scratch : x; }
  /// Returns the place of its gradient: written, or added to what is there.
  cuda::DeviceSequence enter_dx(const Call& call, cuda::DeviceAddress dx, cuda::DeviceAddress scratch) const;
  /// Brings the gradient to where it is wanted.
  void leave_dx(const Call& call, cuda::DeviceAddress dx, cuda::DeviceAddress scratch) const;

 private:
  Index steps_ = 1;
  SequenceStrides strides_, dx_strides_;
  bool time_first_ = false;
  int alignment_ = call_alignment;
  std::size_t x_bytes_ = 0, dx_bytes_ = 0;
  std::optional<SequenceCopy> x_in_, dx_in_, dx_out_;
};

/// The four gradients of a layer, for kernels that write them where they shall be added.
class LayerGradients {
 public:
  LayerGradients(const Recurrence& shape, const Target& target);
  std::size_t scratch_bytes() const { return bytes_; }
  /// Returns the address of a gradient for kernels, weight_ih first; 0: there is none.
  cuda::DeviceAddress address(const Operands& memory, int which, cuda::DeviceAddress scratch) const;
  /// Adds what they have written.
  void finish(const Call& call, const Operands& memory, cuda::DeviceAddress scratch) const;

 private:
  std::array<std::size_t, 4> places_ = {};
  std::array<std::optional<cuda::ResidualExecutable>, 4> sums_;
  std::size_t bytes_ = 0;
};

/// States [S, B, H] side by side, from and to where they lie a pitch apart.
class StateBlocks {
 public:
  StateBlocks(const Recurrence& shape, const Target& target);
  /// Returns whether states are copied on the way in and out.
  bool copies() const { return copies_; }
  /// Returns the bytes of scratch memory for one such set of states.
  std::size_t scratch_bytes() const { return copies_ ? padded(static_cast<std::size_t>(states_) * block_) : 0; }
  /// The states side by side: themselves, or a copy.
  cuda::DeviceAddress enter(const Call& call, cuda::DeviceAddress states, cuda::DeviceAddress scratch) const {
    return enter(call, states, pitch_, scratch);
  }
  /// The same for those before the first step, which states of resets may lie between.
  cuda::DeviceAddress enter_first(const Call& call, cuda::DeviceAddress states, cuda::DeviceAddress scratch) const {
    return enter(call, states, first_pitch_, scratch);
  }
  /// Returns the address that states are written to.
  cuda::DeviceAddress place(cuda::DeviceAddress states, cuda::DeviceAddress scratch) const {
    return states != 0 && copies_ ? scratch : states;
  }
  void leave(const Call& call, cuda::DeviceAddress states, cuda::DeviceAddress scratch) const {
    leave(call, states, pitch_, scratch);
  }
  void leave_first(const Call& call, cuda::DeviceAddress states, cuda::DeviceAddress scratch) const {
    leave(call, states, first_pitch_, scratch);
  }
  /// The states of resets behind the first ones, whose address is `states`.
  cuda::RestartStates restarts(cuda::DeviceAddress states) const {
    cuda::RestartStates all = restarts_;
    all.data = states == 0 || !has_restarts_ ? 0 : states + block_;
    return all;
  }
  /// As restarts(), for the state_in of a call. Throws if it is null and rows start again at its states.
  cuda::RestartStates given_restarts(cuda::DeviceAddress state_in) const;

 private:
  cuda::DeviceAddress enter(const Call& call, cuda::DeviceAddress states, std::size_t pitch,
                            cuda::DeviceAddress scratch) const;
  void leave(const Call& call, cuda::DeviceAddress states, std::size_t pitch, cuda::DeviceAddress scratch) const;
  void copy(const Call& call, cuda::DeviceAddress from, std::size_t from_pitch, cuda::DeviceAddress to,
            std::size_t to_pitch) const;

  cuda::Device* device_;
  Index states_;
  std::size_t block_, pitch_, first_pitch_;  // bytes of one state [B, H], and from one to the next
  bool has_restarts_, copies_;
  cuda::RestartStates restarts_;
};

/// Address that stands in for weights and their gradients while a layer is planned.
inline cuda::DeviceAddress planned_weight(const Recurrence& shape, DType type) {
  return shape.parameter_alignment > 0 ? static_cast<cuda::DeviceAddress>(shape.parameter_alignment)
                                       : planned_parameter(type);
}
inline cuda::DeviceAddress planned_sequence(const Recurrence& shape) {
  return static_cast<cuda::DeviceAddress>(shape.alignment);
}

}  // namespace penstock::ops
