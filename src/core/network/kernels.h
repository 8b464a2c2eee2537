#pragma once

#include <cmath>

#include "penstock/types.h"

namespace penstock::network {

/// Functions of one number, with up to two parameters.
enum class Unary : int {
  none,
  negate,
  absolute,
  square,
  square_root,
  exponential,
  logarithm,
  reciprocal,
  floor,
  ceil,
  round,
  sign,
  sine,
  cosine,
  erf,
  relu,
  leaky_relu,
  thresholded_relu,
  elu,  // alpha (e^(x / beta) - 1) below 0, and x above
  selu,
  sigmoid,
  hard_sigmoid,
  tanh,
  softplus,
  softsign,
  hard_swish,
  gelu,
  gelu_tanh,
  mish,
  swish,
  clip,
  affine,  // alpha x + beta
};

enum class Binary : int { add, subtract, multiply, divide, maximum, minimum, prelu, power, modulo, remainder };

/// What is left of a quotient that is rounded down: of the sign of b.
template <class Real>
Real floored_remainder(Real a, Real b) {
  const Real rest = std::fmod(a, b);
  return rest != 0 && (rest < 0) != (b < 0) ? rest + b : rest;
}

/// The loops of float operators for one instruction set.
struct Kernels {
  /// y [n] = f(x [n]); y may be x.
  void (*unary)(Unary op, Index n, const float* x, float* y, float alpha, float beta) = nullptr;
  /// y [n] = f(a, b), each of which moves on by a step of 1 or 0; y may be one of them.
  void (*binary)(Binary op, Index n, const float* a, Index a_step, const float* b, Index b_step, float* y) = nullptr;
};

// Each fills in its own members for the instruction set in use.
void FillPointwise(Kernels& kernels);

inline Kernels kernels_in_use() {
  Kernels kernels;
  FillPointwise(kernels);
  return kernels;
}

}  // namespace penstock::network
