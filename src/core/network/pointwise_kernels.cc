// Functions of one or two floats for every instruction set.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "network/pointwise_kernels.cc"

#include "network/kernels.h"

#include "backend/cpu/every_target.inl"

#include "backend/cpu/dispatch_target.h"

#include <hwy/contrib/math/math-inl.h>

HWY_BEFORE_NAMESPACE();
namespace penstock::network::HWY_NAMESPACE {
namespace {

#include "backend/cpu/target.inl"

using V = Simd;
using L = Lanes<float>;

HWY_INLINE V Select(hn::Mask<V::Tag> mask, V yes, V no) { return hn::IfThenElse(mask, yes.raw, no.raw); }

/// e^x over all floats: 0 for -inf, inf beyond 88.7, NaN for NaN. Exp() of cells never reaches either end.
HWY_INLINE V FullExp(V x) {
  const V power = hn::Exp(V::Tag(), Clamp(x, V(-110.0f), V(104.0f)).raw);
  return Select(hn::IsNaN(x.raw), x, power);
}

HWY_INLINE V FullLog(V x) {
  const V zero(0.0f), one(1.0f), infinity(HUGE_VALF);
  const V usual = hn::Log(V::Tag(), Select(hn::Gt(x.raw, zero.raw), x, one).raw);
  const V ends = Select(hn::Eq(x.raw, zero.raw), zero - infinity, Select(hn::Lt(x.raw, zero.raw), zero / zero, x));
  return Select(hn::And(hn::Gt(x.raw, zero.raw), hn::IsFinite(x.raw)), usual, ends);
}

/// Within 4e-7; a quotient of polynomials on [-4, 4].
HWY_INLINE V Erf(V x) {
  const V c = Clamp(x, V(-4.0f), V(4.0f)), s = c * c;
  V p = MulAdd(s, V(-2.72614225801306e-10f), V(2.77068142495902e-08f));
  for (const float a : {-2.10102402082508e-06f, -5.69250639462346e-05f, -7.34990630326855e-04f, -2.95459980854025e-03f,
                        -1.60960333262415e-02f}) {
    p = MulAdd(s, p, V(a));
  }
  V q = MulAdd(s, V(-1.45660718464996e-05f), V(-2.13374055278905e-04f));
  for (const float b : {-1.68282697438203e-03f, -7.37332916720468e-03f, -1.42647390514189e-02f}) {
    q = MulAdd(s, q, V(b));
  }
  return c * p / q;
}

/// e^x - 1 for x <= 0, exact near 0.
HWY_INLINE V NegativeExpm1(V x) {
  const V bounded = Select(hn::Gt(x.raw, V(0.0f).raw), V(0.0f), x), e = Exp(bounded);
  return Select(hn::Gt(bounded.raw, V(-0.3f).raw), SmallExpm1(bounded), e - V(1.0f));
}

/// x * logistic(x), whose limit for -inf is 0.
HWY_INLINE V Weighed(V x, V share) { return Select(hn::Eq(share.raw, V(0.0f).raw), V(0.0f), x * share); }

/// NaN of either gets through.
HWY_INLINE V Larger(V a, V b) { return Select(hn::IsNaN(b.raw), b, Max(a, b)); }
HWY_INLINE V Smaller(V a, V b) { return Select(hn::IsNaN(b.raw), b, V(V::AtMost(a.raw, b.raw))); }

template <class Function>
HWY_INLINE void Map(Index n, const float* x, float* y, const Function& function) {
  Index i = 0;
  for (; i + V::lanes <= n; i += V::lanes) L::store(function(L::load(x + i)), y + i);
  if (i < n) L::store(function(L::load(x + i, n - i)), y + i, n - i);
}

void RunUnary(Unary op, Index n, const float* x, float* y, float first, float second) {
  const V alpha(first), beta(second), zero(0.0f), half(0.5f), one(1.0f);
  const auto positive = [](V v) HWY_ATTR { return hn::Gt(v.raw, V(0.0f).raw); };
  switch (op) {
    case Unary::none:
      return Map(n, x, y, [](V v) HWY_ATTR { return v; });
    case Unary::negate:
      return Map(n, x, y, [](V v) HWY_ATTR { return V(hn::Neg(v.raw)); });
    case Unary::absolute:
      return Map(n, x, y, [](V v) HWY_ATTR { return Abs(v); });
    case Unary::square:
      return Map(n, x, y, [](V v) HWY_ATTR { return v * v; });
    case Unary::square_root:
      return Map(n, x, y, [](V v) HWY_ATTR { return Sqrt(v); });
    case Unary::exponential:
      return Map(n, x, y, [](V v) HWY_ATTR { return FullExp(v); });
    case Unary::logarithm:
      return Map(n, x, y, [](V v) HWY_ATTR { return FullLog(v); });
    case Unary::reciprocal:
      return Map(n, x, y, [&](V v) HWY_ATTR { return one / v; });
    case Unary::floor:
      return Map(n, x, y, [](V v) HWY_ATTR { return V(hn::Floor(v.raw)); });
    case Unary::ceil:
      return Map(n, x, y, [](V v) HWY_ATTR { return V(hn::Ceil(v.raw)); });
    case Unary::round:
      return Map(n, x, y, [](V v) HWY_ATTR { return Round(v); });
    case Unary::sign:
      return Map(n, x, y, [&](V v) HWY_ATTR {
        const V below = Select(hn::Lt(v.raw, zero.raw), zero - one, v);
        return Select(positive(v), one, below);
      });
    case Unary::sine:
      return Map(n, x, y, [](V v) HWY_ATTR { return V(hn::Sin(V::Tag(), v.raw)); });
    case Unary::cosine:
      return Map(n, x, y, [](V v) HWY_ATTR { return V(hn::Cos(V::Tag(), v.raw)); });
    case Unary::erf:
      return Map(n, x, y, [](V v) HWY_ATTR { return Erf(v); });
    case Unary::relu:
      return Map(n, x, y, [&](V v) HWY_ATTR { return Max(v, zero); });
    case Unary::leaky_relu:
      return Map(n, x, y, [&](V v) HWY_ATTR { return SelectPositive(v, v, alpha * v); });
    case Unary::thresholded_relu:
      return Map(n, x, y, [&](V v) HWY_ATTR { return Select(hn::Gt(v.raw, alpha.raw), v, zero); });
    case Unary::elu:
      return Map(n, x, y, [&](V v) HWY_ATTR { return SelectPositive(v, v, alpha * NegativeExpm1(v / beta)); });
    case Unary::selu:
      return Map(n, x, y, [&](V v) HWY_ATTR { return beta * Select(positive(v), v, alpha * NegativeExpm1(v)); });
    case Unary::sigmoid:
      return Map(n, x, y, [](V v) HWY_ATTR { return Sigmoid(v); });
    case Unary::hard_sigmoid:
      return Map(n, x, y, [&](V v) HWY_ATTR { return Clamp(MulAdd(alpha, v, beta), zero, one); });
    case Unary::tanh:
      return Map(n, x, y, [](V v) HWY_ATTR { return Tanh(v); });
    case Unary::softplus:
      return Map(n, x, y, [](V v) HWY_ATTR { return Softplus(v); });
    case Unary::softsign:
      return Map(n, x, y, [&](V v) HWY_ATTR { return v / (one + Abs(v)); });
    case Unary::hard_swish:
      return Map(n, x, y, [&](V v) HWY_ATTR { return Weighed(v, Clamp(MulAdd(v, V(1.0f / 6.0f), half), zero, one)); });
    case Unary::gelu:
      return Map(n, x, y, [&](V v) HWY_ATTR { return Weighed(v, half * (one + Erf(v * V(0.70710678f)))); });
    case Unary::gelu_tanh:
      return Map(n, x, y, [&](V v) HWY_ATTR {
        const V inner = V(0.79788456f) * MulAdd(V(0.044715f) * v * v, v, v);
        return Weighed(v, half * (one + Tanh(inner)));
      });
    case Unary::mish:
      return Map(n, x, y, [](V v) HWY_ATTR { return Weighed(v, Tanh(Softplus(v))); });
    case Unary::swish:
      return Map(n, x, y, [&](V v) HWY_ATTR { return Weighed(v, Sigmoid(alpha * v)); });
    case Unary::clip:
      return Map(n, x, y, [&](V v) HWY_ATTR { return Clamp(v, alpha, beta); });
    case Unary::affine:
      return Map(n, x, y, [&](V v) HWY_ATTR { return MulAdd(alpha, v, beta); });
  }
}

/// Operands that do not move on are a vector of the same number, which is read again and again.
template <class Function>
HWY_INLINE void Zip(Index n, const float* a, Index a_step, const float* b, Index b_step, float* y,
                    const Function& function) {
  alignas(64) float a_same[V::lanes], b_same[V::lanes];
  if (a_step == 0) L::store(V(*a), a_same), a = a_same;
  if (b_step == 0) L::store(V(*b), b_same), b = b_same;
  Index i = 0;
  for (; i + V::lanes <= n; i += V::lanes) {
    L::store(function(L::load(a + i * a_step), L::load(b + i * b_step)), y + i);
  }
  if (i < n) {
    L::store(function(L::load(a + i * a_step, n - i), L::load(b + i * b_step, n - i)), y + i, n - i);
  }
}

/// Without vectors.
template <class Function>
void ZipEach(Index n, const float* a, Index a_step, const float* b, Index b_step, float* y, const Function& function) {
  for (Index i = 0; i < n; ++i) y[i] = function(a[i * a_step], b[i * b_step]);
}

void RunBinary(Binary op, Index n, const float* a, Index a_step, const float* b, Index b_step, float* y) {
  const auto zip = [&](const auto& function) HWY_ATTR { Zip(n, a, a_step, b, b_step, y, function); };
  switch (op) {
    case Binary::add:
      return zip([](V x, V z) HWY_ATTR { return x + z; });
    case Binary::subtract:
      return zip([](V x, V z) HWY_ATTR { return x - z; });
    case Binary::multiply:
      return zip([](V x, V z) HWY_ATTR { return x * z; });
    case Binary::divide:
      return zip([](V x, V z) HWY_ATTR { return x / z; });
    case Binary::maximum:
      return zip([](V x, V z) HWY_ATTR { return Larger(x, z); });
    case Binary::minimum:
      return zip([](V x, V z) HWY_ATTR { return Smaller(x, z); });
    case Binary::prelu:
      return zip([](V x, V z) HWY_ATTR { return SelectPositive(x, x, x * z); });
    case Binary::power:
      return ZipEach(n, a, a_step, b, b_step, y, [](float x, float z) { return std::pow(x, z); });
    case Binary::modulo:
      return ZipEach(n, a, a_step, b, b_step, y, floored_remainder<float>);
    case Binary::remainder:
      return ZipEach(n, a, a_step, b, b_step, y, [](float x, float z) { return std::fmod(x, z); });
  }
}

/// One number from all by `join`, from `function` of each, in an order that depends on n alone.
template <class Function, class Join>
HWY_INLINE float Reduce(Index n, const float* x, float start, const Function& function, const Join& join) {
  V sums[4] = {V(start), V(start), V(start), V(start)};
  Index i = 0;
  for (; i + 4 * V::lanes <= n; i += 4 * V::lanes) {
    for (int k = 0; k < 4; ++k) sums[k] = join(sums[k], function(L::load(x + i + k * V::lanes)));
  }
  for (; i + V::lanes <= n; i += V::lanes) sums[0] = join(sums[0], function(L::load(x + i)));
  alignas(64) float lanes[V::lanes];
  L::store(join(join(sums[0], sums[1]), join(sums[2], sums[3])), lanes);
  V all(lanes[0]);
  for (Index k = 1; k < V::lanes; ++k) all = join(all, V(lanes[k]));
  for (; i < n; ++i) all = join(all, function(V(x[i])));
  L::store(all, lanes);
  return lanes[0];
}

float RunReduce(Reduction op, Index n, const float* x) {
  const auto plain = [](V v) HWY_ATTR { return v; };
  const auto sum = [](V a, V b) HWY_ATTR { return a + b; };
  switch (op) {
    case Reduction::sum:
      return Reduce(n, x, 0, plain, sum);
    case Reduction::absolutes:
      return Reduce(
          n, x, 0, [](V v) HWY_ATTR { return Abs(v); }, sum);
    case Reduction::squares:
      return Reduce(
          n, x, 0, [](V v) HWY_ATTR { return v * v; }, sum);
    case Reduction::product:
      return Reduce(n, x, 1, plain, [](V a, V b) HWY_ATTR { return a * b; });
    case Reduction::maximum:
      return Reduce(n, x, -HUGE_VALF, plain, [](V a, V b) HWY_ATTR { return Larger(a, b); });
    case Reduction::minimum:
      return Reduce(n, x, HUGE_VALF, plain, [](V a, V b) HWY_ATTR { return Smaller(a, b); });
  }
  return 0;
}

float RunExponentials(Index n, float shift, const float* x, float* y) {
  const V offset(shift);
  V sum(0.0f);
  float rest = 0;
  Index i = 0;
  for (; i < n; i += V::lanes) {
    const Index count = std::min<Index>(V::lanes, n - i);
    const V e = FullExp(L::load(x + i, count) - offset);
    if (y != nullptr) L::store(e, y + i, count);
    if (count == V::lanes) {
      sum = sum + e;
      continue;
    }
    alignas(64) float lanes[V::lanes];
    L::store(e, lanes);
    for (Index k = 0; k < count; ++k) rest += lanes[k];
  }
  return L::sum(sum) + rest;
}

void RunNormalise(Index n, bool centred, float epsilon, const float* x, float* y) {
  const auto count = static_cast<float>(n);
  const float mean = centred ? RunReduce(Reduction::sum, n, x) / count : 0;
  const V middle(mean);
  const float squares = Reduce(
      n, x, 0, [&](V v) HWY_ATTR { return (v - middle) * (v - middle); }, [](V a, V b) HWY_ATTR { return a + b; });
  const V factor(1.0f / std::sqrt(squares / count + epsilon));
  Map(n, x, y, [&](V v) HWY_ATTR { return (v - middle) * factor; });
}

}  // namespace

void FillPointwiseKernels(Kernels& kernels) {
  kernels.unary = &RunUnary;
  kernels.binary = &RunBinary;
  kernels.reduce = &RunReduce;
  kernels.exponentials = &RunExponentials;
  kernels.normalise = &RunNormalise;
}

}  // namespace penstock::network::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace penstock::network {

PENSTOCK_EXPORT(FillPointwiseKernels);

void FillPointwise(Kernels& kernels) { PENSTOCK_DISPATCH(FillPointwiseKernels)(kernels); }

}  // namespace penstock::network
#endif  // HWY_ONCE
