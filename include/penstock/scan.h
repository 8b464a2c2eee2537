#pragma once

#include <memory>

#include "penstock/recurrent.h"

namespace penstock {

/// In which form the terms of a scan are given.
enum class ScanForm {
  linear,       ///< h_t = a_t h_{t-1} + b_t.
  logarithmic,  ///< h_t = e^la_t h_{t-1} + s_t e^lb_t; s_t = 1 where no factors are given.
};

/// The linear recurrence by itself: what lies inside minGRU, minLSTM, and diagonal state space models.
///
/// All tensors are [B, T, C] with free strides of B and T; states are [B, C]. h0 and the terms may have either sign in
/// both forms. The arithmetic is linear in both: nothing overflows that would not overflow step after step (a chunk
/// that overflows from a state of zero waits for the state that enters it), and no logarithm of a state is ever taken
/// (docs/results/scan_precision.md compares). In the logarithmic form exponents saturate at +-87.3, in double at +-707,
/// so la = -inf gives a = 1.2e-38 or 9.0e-308.
///
/// A scan lives on one device, as a Recurrent does: on the CPU, or on that of a stream, into which every call is then
/// put. Calls with memory of the host work on every device; for a GPU they copy what goes in and out, and wait. On a
/// GPU chunks are summed up before the state that enters them is known: what overflows in a chunk that starts from a
/// state of zero is infinite or NaN from there on, unless Execution::algorithm is sequential, which has no chunks.
///
/// Any number of threads may call one object at once: each has memory of its own, which is reused from call to call and
/// grows only when a batch is larger than any before. Every call throws Error(invalid_argument) for an impossible batch
/// or a missing tensor.
template <class Real>
class Scan {
 public:
  /// C channels; `reverse` walks every row from its last step.
  explicit Scan(Index channels, ScanForm form = ScanForm::linear, bool reverse = false);
  /// On the device of a stream. Throws Error(unsupported) for doubles on a GPU.
  Scan(Index channels, Stream& stream, ScanForm form = ScanForm::linear, bool reverse = false);
  ~Scan();
  Scan(Scan&&) noexcept;
  Scan& operator=(Scan&&) noexcept;

  Device device() const;

  /// The terms: a and b, or their logarithms and the factor s in {-1, 0, 1} (any real, in fact) or nothing.
  struct Terms {
    SequenceView<const Real> a;
    SequenceView<const Real> b;
    SequenceView<const Real> factor;
  };

  /// Gradients of the terms, of the same shapes; `factor` is that of the forward call's factor, or nothing.
  struct TermGradients {
    SequenceView<Real> a;
    SequenceView<Real> b;
    SequenceView<Real> factor;
  };

  /// Terms, or their gradients, as tensors of the scan's device.
  struct TensorTerms {
    Tensor a, b, factor;
  };

  /// h from the terms, of one of which it may take the place, but which it overlaps in no other way; h0 null means
  /// zeros, hT null not wanted; hT may be h0. Execution::precision must be full: there are no weights to round.
  void forward(const Batch& batch, const Terms& terms, SequenceView<Real> h, const Real* h0 = nullptr,
               Real* hT = nullptr, const Execution& execution = {}) const;
  /// The same for tensors of the scan's device: terms and h [B, T, C], of packed rows [positions, C], in the scan's
  /// type, on a GPU in bf16 or f16 too; states are floats there. The batch's arrays lie on the device as well.
  void forward(const Batch& batch, const TensorTerms& terms, const Tensor& h, const Tensor& h0 = {},
               const Tensor& hT = {}, const Execution& execution = {}) const;

  /// Writes the gradients of the terms (of their logarithms in the logarithmic form) and of h0 from those of h and hT.
  /// h and h0 are those of the forward call. Gradients beyond a row's length are written as zeros; they overlap neither
  /// each other nor what is read, but dh0 may be dhT.
  void backward(const Batch& batch, const Terms& terms, SequenceView<const Real> h, const Real* h0,
                SequenceView<const Real> dh, const Real* dhT, const TermGradients& gradients, Real* dh0 = nullptr,
                const Execution& execution = {}) const;
  /// The same for tensors of the scan's device.
  void backward(const Batch& batch, const TensorTerms& terms, const Tensor& h, const Tensor& h0, const Tensor& dh,
                const Tensor& dhT, const TensorTerms& gradients, const Tensor& dh0 = {},
                const Execution& execution = {}) const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

extern template class Scan<float>;
extern template class Scan<double>;

}  // namespace penstock
