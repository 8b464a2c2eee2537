// Loops between the matrix products.

/// y [n] = x [n].
inline void FromBf16(Index n, const std::uint16_t* x, float* y) {
  const hn::RebindToUnsigned<Simd::Tag> du;
  const hn::Rebind<std::uint16_t, Simd::Tag> halves;
  Index i = 0;
  for (; i + Simd::lanes <= n; i += Simd::lanes) {
    const auto bits = hn::ShiftLeft<16>(hn::PromoteTo(du, hn::LoadU(halves, x + i)));
    Lanes<float>::store(hn::BitCast(Simd::Tag(), bits), y + i);
  }
  for (; i < n; ++i) y[i] = std::bit_cast<float>(std::uint32_t{x[i]} << 16);
}

/// y [n] = x [n], to the nearest, ties to even.
inline void ToBf16(Index n, const float* x, std::uint16_t* y) {
  for (Index i = 0; i < n; i += Simd::lanes) {
    const Index count = std::min<Index>(Simd::lanes, n - i);
    StoreBf16(Lanes<float>::load(x + i, count), y + i, count);
  }
}

/// y [F] = silu(g) * v of a row gv [2F] that holds g, then v. silu(x) = x sigmoid(x).
template <class Real>
void SiluGate(Index inner, const Real* gv, Real* y) {
  using L = Lanes<Real>;
  for (Index i = 0; i < inner; i += L::lanes) {
    const Index count = std::min<Index>(L::lanes, inner - i);
    const auto g = L::load(gv + i, count);
    L::store(g * Sigmoid(g) * L::load(gv + inner + i, count), y + i, count);
  }
}

/// dgv [2F] from dy [F] and gv [2F]; dgv may be gv.
template <class Real>
void SiluGateBackward(Index inner, const Real* gv, const Real* dy, Real* dgv) {
  using L = Lanes<Real>;
  using V = typename L::V;
  for (Index i = 0; i < inner; i += L::lanes) {
    const Index count = std::min<Index>(L::lanes, inner - i);
    const V g = L::load(gv + i, count), v = L::load(gv + inner + i, count), d = L::load(dy + i, count);
    const V s = Sigmoid(g);
    const V silu = g * s;
    L::store(d * v * MulAdd(silu, V(1) - s, s), dgv + i, count);
    L::store(d * silu, dgv + inner + i, count);
  }
}

/// y [n] = e^(x - shift) unless y is null; returns their sum, whose order depends on n alone.
template <class Real>
Real Exponentials(Index n, Real shift, const Real* x, Real* y) {
  using L = Lanes<Real>;
  using V = typename L::V;
  V sum(0);
  Real tail = 0;
  for (Index i = 0; i < n; i += L::lanes) {
    const Index count = std::min<Index>(L::lanes, n - i);
    const V e = Exp(L::load(x + i, count) - V(shift));
    if (y != nullptr) L::store(e, y + i, count);
    if (count == L::lanes) {
      sum = sum + e;
    } else {
      Real values[L::lanes];
      L::store(e, values);
      for (Index lane = 0; lane < count; ++lane) tail += values[lane];
    }
  }
  return L::sum(sum) + tail;
}

/// `kept` where dropout keeps the value of an index, 0 where it does not. The compiler makes vectors of this loop.
template <class Real>
void KeepFactors(counter_random::Word key, unsigned threshold, Index first, Index n, Real kept, Real* factors) {
  const auto begin = static_cast<counter_random::Word>(first);
  for (Index i = 0; i < n; ++i) {
    factors[i] = counter_random::keeps(key, begin + static_cast<counter_random::Word>(i), threshold) ? kept : Real(0);
  }
}

/// y [width] = gain * x * s with s = 1 / sqrt(mean(x^2) + epsilon), which it returns.
template <class Real>
Real RmsNorm(Index width, Real epsilon, const Real* x, const Real* gain, Real* y) {
  using L = Lanes<Real>;
  using V = typename L::V;
  V squares(0);
  for (Index c = 0; c < width; c += L::lanes) {
    const V row = L::load(x + c, std::min<Index>(L::lanes, width - c));
    squares = MulAdd(row, row, squares);
  }
  const Real scale = Real(1) / std::sqrt(L::sum(squares) / static_cast<Real>(width) + epsilon);
  for (Index c = 0; c < width; c += L::lanes) {
    const Index count = std::min<Index>(L::lanes, width - c);
    L::store(L::load(gain + c, count) * (L::load(x + c, count) * V(scale)), y + c, count);
  }
  return scale;
}

/// Computes, with n = x * inverse: dx [width] = dsum + inverse * (gain dy - n mean(gain dy n)), dgain [width] += dy n.
template <class Real>
void RmsNormBackward(Index width, Real inverse, const Real* x, const Real* gain, const Real* dy, const Real* dsum,
                     Real* dgain, Real* dx) {
  using L = Lanes<Real>;
  using V = typename L::V;
  V dots(0);
  for (Index c = 0; c < width; c += L::lanes) {
    const Index count = std::min<Index>(L::lanes, width - c);
    const V slope = L::load(dy + c, count), row = L::load(x + c, count);
    dots = MulAdd(L::load(gain + c, count) * slope, row, dots);
    L::store(MulAdd(slope * row, V(inverse), L::load(dgain + c, count)), dgain + c, count);
  }
  const Real pull = L::sum(dots) * inverse * inverse * inverse / static_cast<Real>(width);
  for (Index c = 0; c < width; c += L::lanes) {
    const Index count = std::min<Index>(L::lanes, width - c);
    const V direct = V(inverse) * L::load(gain + c, count) * L::load(dy + c, count);
    const V slope = direct - V(pull) * L::load(x + c, count);
    L::store(dsum != nullptr ? L::load(dsum + c, count) + slope : slope, dx + c, count);
  }
}

HWY_INLINE auto StepSqrt(auto x) { return Sqrt(x); }
HWY_INLINE auto StepDivide(auto a, auto b) { return a / b; }
template <class V>
HWY_INLINE V StepSign(V x) {
  return SelectPositive(x, V(1.0f), SelectZero(x, V(0.0f), V(-1.0f)));
}

#define PENSTOCK_STEP static HWY_INLINE
#include "base/training/optimizers.h"
#undef PENSTOCK_STEP

template <class Rule>
void Update(const OptimizerCoefficients& args, const StepState& state, float keep, Index n, const float* gradients,
            float* values, float* first, float* second) {
  using L = Lanes<float>;
  using V = typename L::V;
  for (Index i = 0; i < n; i += L::lanes) {
    const Index count = std::min<Index>(L::lanes, n - i);
    V value = L::load(values + i, count), m = L::load(first + i, count), v(0);
    if constexpr (Rule::kMoments > 1) v = L::load(second + i, count);
    Rule::Update(args, state, V(keep), L::load(gradients + i, count), value, m, v);
    if constexpr (Rule::kMoments > 1) L::store(v, second + i, count);
    L::store(m, first + i, count);
    L::store(value, values + i, count);
  }
}

inline UpdateKernel UpdateOf(OptimizerKind kind) {
#define PENSTOCK_UPDATE(name, Rule, ...) \
  if (kind == OptimizerKind::name) return &Update<Rule>;
  PENSTOCK_OPTIMIZERS(PENSTOCK_UPDATE)
  PENSTOCK_UPDATE(average, WeightAverage)
#undef PENSTOCK_UPDATE
  return nullptr;
}
