#pragma once

#include <memory>

#include "penstock/recurrent.h"

/// The linear recurrence h_t = a_t h_{t-1} + b_t on explicit coefficients, parallel over time: results and gradients.
namespace penstock {

/// How the terms of a scan are given.
enum class ScanForm {
  linear,       ///< h_t = a_t h_{t-1} + b_t.
  logarithmic,  ///< h_t = e^la_t h_{t-1} + s_t e^lb_t, with s_t = 1 if no factors are given.
};

/// Computes a linear recurrence, the core of minGRU, minLSTM and diagonal state space models.
///
/// All tensors are [B, T, C] with free strides of B and T; states are [B, C].
///
/// Range: h0 and the terms may have either sign in both forms. Both forms compute in the linear domain and never take
/// the logarithm of a state, so a scan overflows only where a step-by-step computation would
/// (docs/results/scan_precision.md compares). A chunk that overflows from a zero state waits for its real initial
/// state. In the logarithmic form exponents are clamped to +-87.3, in double to +-707, so la = -inf gives a = 1.2e-38
/// or 9.0e-308.
///
/// On a GPU, chunks are summed before their initial states are known. A chunk that overflows from a zero state is
/// infinite or NaN from there on. Algorithm::sequential has no chunks and avoids this.
///
/// Devices: a scan lives on one device, the CPU or the device of a Stream, as a Recurrent does. Calls with pointers use
/// host memory and work on every device; on a GPU they copy inputs and outputs and wait. Calls with tensors are queued
/// on the stream.
///
/// Threads: any number of threads may call one object at once. Each has its own scratch memory, which grows only when a
/// batch is larger than all before.
///
/// On every device, all calls throw Error(invalid_argument) for an impossible batch, a missing tensor or an overlap.
template <class Real>
class Scan {
 public:
  /// Makes a scan over C = `channels` channels on the CPU. `reverse`: every row starts at its last step.
  explicit Scan(Index channels, ScanForm form = ScanForm::linear, bool reverse = false);
  /// Makes a scan on the device of `stream`. Throws Error(unsupported) for double on a GPU.
  Scan(Index channels, Stream& stream, ScanForm form = ScanForm::linear, bool reverse = false);
  ~Scan();
  Scan(Scan&&) noexcept;
  Scan& operator=(Scan&&) noexcept;

  Device device() const;

  /// Terms in host memory: a and b, or la and lb and optionally the factor s. s is meant for signs, {-1, 0, 1}, but may
  /// be any real number.
  struct Terms {
    SequenceView<const Real> a;
    SequenceView<const Real> b;
    SequenceView<const Real> factor;
  };

  /// Gradients of the terms, with the shapes of the terms. `factor` has data exactly if the forward call had a factor.
  struct TermGradients {
    SequenceView<Real> a;
    SequenceView<Real> b;
    SequenceView<Real> factor;
  };

  /// Terms, or their gradients, as tensors on the scan's device.
  struct TensorTerms {
    Tensor a, b, factor;
  };

  /// Computes h from the terms.
  ///
  /// h may be the same memory as one of the terms, but must not overlap them otherwise. h0 null: zeros. hT, the last
  /// state, is not written if null; it may be h0. Execution::precision must be full, since a scan has no weights to
  /// round.
  void forward(const Batch& batch, const Terms& terms, SequenceView<Real> h, const Real* h0 = nullptr,
               Real* hT = nullptr, const Execution& execution = {}) const;
  /// Computes h for tensors on the scan's device: terms and h [B, T, C], for packed rows [positions, C]. Their dtype is
  /// that of the scan, on a GPU also bf16 or f16; states are f32 there. The arrays of `batch` are on the device too.
  void forward(const Batch& batch, const TensorTerms& terms, const Tensor& h, const Tensor& h0 = {},
               const Tensor& hT = {}, const Execution& execution = {}) const;

  /// Computes the gradients of the terms and of h0 from dh and dhT, the gradients of h and hT.
  ///
  /// In the logarithmic form the gradients are those of la and lb. h and h0 are those of the forward call. Null dhT
  /// means zeros; dh0 is not written if null. Gradients beyond a row's length are set to zero. Gradients must overlap
  /// neither each other nor any input, except that dh0 may be dhT.
  void backward(const Batch& batch, const Terms& terms, SequenceView<const Real> h, const Real* h0,
                SequenceView<const Real> dh, const Real* dhT, const TermGradients& gradients, Real* dh0 = nullptr,
                const Execution& execution = {}) const;
  /// Computes the gradients for tensors on the scan's device.
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
