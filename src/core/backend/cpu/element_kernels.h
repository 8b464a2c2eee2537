#pragma once

#include <cstdint>

#include "base/counter_random.h"
#include "base/training_step.h"
#include "penstock/types.h"

namespace penstock::cpu {

/// Coefficients of an optimiser (base/training/optimizers.h), with rest = 1 - beta.
struct OptimizerCoefficients {
  float beta1 = 0, rest1 = 1, beta2 = 0, rest2 = 1, epsilon = 0;
};

/// Updates n values and their moments by the gradients, each [n]; `keep` is the fraction that weight decay keeps.
using UpdateKernel = void (*)(const OptimizerCoefficients& args, const StepState& state, float keep, Index n,
                              const float* gradients, float* values, float* first, float* second);

/// Loops over single values, a row at a time.
template <class Real>
struct ElementKernels {
  /// y [n] = x [n], to the nearest, ties to even; of floats only.
  void (*from_bf16)(Index n, const std::uint16_t* x, Real* y) = nullptr;
  void (*to_bf16)(Index n, const Real* x, std::uint16_t* y) = nullptr;
  /// y [F] = silu(g) * v of a row gv [2F] that holds g, then v.
  void (*silu_gate)(Index inner, const Real* gv, Real* y) = nullptr;
  /// dgv [2F] from dy [F] and gv [2F]; dgv may be gv.
  void (*silu_gate_backward)(Index inner, const Real* gv, const Real* dy, Real* dgv) = nullptr;
  /// y [n] = e^(x - shift) unless y is null; returns their sum, whose order depends on n alone.
  Real (*exponentials)(Index n, Real shift, const Real* x, Real* y) = nullptr;
  /// factors [n]: `kept` where dropout keeps the values of indices first, first + 1, ..., 0 where it does not
  /// (base/counter_random.h).
  void (*keep_factors)(counter_random::Word key, unsigned threshold, Index first, Index n, Real kept,
                       Real* factors) = nullptr;
  /// y [width] = gain * x * s with s = 1 / sqrt(mean(x^2) + epsilon), which it returns.
  Real (*rms_norm)(Index width, Real epsilon, const Real* x, const Real* gain, Real* y) = nullptr;
  /// Adds the gradients of a row whose s is `inverse`, with n = x * inverse: dx [width] = dsum + inverse * (gain dy - n
  /// mean(gain dy n)), without dsum if that is null, and dgain [width] += dy n. dx may be dsum.
  void (*rms_norm_backward)(Index width, Real inverse, const Real* x, const Real* gain, const Real* dy,
                            const Real* dsum, Real* dgain, Real* dx) = nullptr;
  /// Returns the update by an optimiser; of floats only.
  UpdateKernel (*update)(OptimizerKind kind) = nullptr;
};

// Each fills in its own members for the instruction set in use; defined by the file of that engine.
void FillElements(ElementKernels<float>& kernels);
void FillElements(ElementKernels<double>& kernels);

/// Returns the kernels of the instruction set in use.
template <class Real>
ElementKernels<Real> element_kernels();

}  // namespace penstock::cpu
