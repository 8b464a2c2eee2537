// The value type of the CPU engines: Simd for float, plain double for double. Included once per Highway target, inside
// penstock::cpu::HWY_NAMESPACE.

namespace hn = hwy::HWY_NAMESPACE;

// Elsewhere Highway's masked access touches the whole vector, beyond the end of the row.
#undef PENSTOCK_MASKED_MEMORY
#define PENSTOCK_MASKED_MEMORY (HWY_TARGET == HWY_AVX2 || HWY_TARGET == HWY_AVX3)

/// Vectors of floats, as wide as the tag says. Of `quick` ones, Sigmoid() and Tanh() are as good as networks need that
/// round what they multiply to bfloat16, rather than to the last digits of a float.
template <class VectorTag, bool quick = false>
struct SimdOf {
  using Tag = VectorTag;
  using Raw = hn::Vec<Tag>;
  static constexpr Index lanes = hn::MaxLanes(Tag());

  Raw raw;

  HWY_INLINE SimdOf() = default;
  // Implicit, so that Highway's results are values of ours without further ado.
  HWY_INLINE SimdOf(Raw r) : raw(r) {}  // NOLINT(google-explicit-constructor)
  HWY_INLINE explicit SimdOf(float x) : raw(hn::Set(Tag(), x)) {}
  HWY_INLINE SimdOf(SimdOf<VectorTag, !quick> v) : raw(v.raw) {}  // NOLINT(google-explicit-constructor)

  friend HWY_INLINE SimdOf operator+(SimdOf a, SimdOf b) { return hn::Add(a.raw, b.raw); }
  friend HWY_INLINE SimdOf operator-(SimdOf a, SimdOf b) { return hn::Sub(a.raw, b.raw); }
  friend HWY_INLINE SimdOf operator*(SimdOf a, SimdOf b) { return hn::Mul(a.raw, b.raw); }
  friend HWY_INLINE SimdOf operator/(SimdOf a, SimdOf b) { return hn::Div(a.raw, b.raw); }
  friend HWY_INLINE SimdOf MulAdd(SimdOf a, SimdOf b, SimdOf c) { return hn::MulAdd(a.raw, b.raw, c.raw); }
  friend HWY_INLINE SimdOf Abs(SimdOf x) { return hn::Abs(x.raw); }
  friend HWY_INLINE SimdOf Sqrt(SimdOf x) { return hn::Sqrt(x.raw); }
  friend HWY_INLINE SimdOf Round(SimdOf x) { return hn::Round(x.raw); }
  // NaN must get through, since the trainer finds broken weights by it; Highway leaves open what becomes of it. x86
  // takes the second operand then.
  friend HWY_INLINE SimdOf Max(SimdOf a, SimdOf b) { return AtLeast(a.raw, b.raw); }
  friend HWY_INLINE SimdOf Clamp(SimdOf x, SimdOf low, SimdOf high) {
    return AtMost(AtLeast(x.raw, low.raw), high.raw);
  }
#if HWY_TARGET == HWY_AVX2 || HWY_TARGET == HWY_AVX3
  static HWY_INLINE Raw AtLeast(Raw x, Raw bound) { return hn::Max(bound, x); }
  static HWY_INLINE Raw AtMost(Raw x, Raw bound) { return hn::Min(bound, x); }
#else
  static HWY_INLINE Raw AtLeast(Raw x, Raw bound) { return hn::IfThenElse(hn::Lt(x, bound), bound, x); }
  static HWY_INLINE Raw AtMost(Raw x, Raw bound) { return hn::IfThenElse(hn::Gt(x, bound), bound, x); }
#endif
  friend HWY_INLINE SimdOf Pow2(SimdOf n) {
    const hn::RebindToSigned<Tag> di;
    const auto exponent = hn::Add(hn::ConvertTo(di, n.raw), hn::Set(di, 127));
    return hn::BitCast(Tag(), hn::ShiftLeft<23>(exponent));
  }
  /// Adding 1.5 * 2^23 rounds to an integer, which then stands in the lowest bits.
  template <int times>
  friend HWY_INLINE void PowerOfTwo(SimdOf x, SimdOf& n, SimdOf& scale) {
    const hn::RebindToUnsigned<Tag> du;
    const Raw magic = hn::Set(Tag(), 12582912.0f);
    const Raw sum = hn::MulAdd(x.raw, hn::Set(Tag(), times * 1.44269504f), magic);
    n = hn::Sub(sum, magic);
    scale = hn::BitCast(Tag(), hn::Add(hn::ShiftLeft<23>(hn::BitCast(du, sum)), hn::Set(du, 127u << 23)));
  }
#if HWY_NATIVE_FMA
  friend HWY_INLINE SimdOf NearlyMinusLogs(SimdOf x, SimdOf n) {
    return hn::MulAdd(n.raw, hn::Set(Tag(), -0.693147182f), x.raw);
  }
#endif
#if HWY_TARGET == HWY_AVX3
  // Estimates of 1 / b with 14 bits in vectors of either width, which Highway does not promise.
  static HWY_INLINE auto Reciprocal(hn::Vec512<float> b) { return hn::Vec512<float>{_mm512_rcp14_ps(b.raw)}; }
  static HWY_INLINE auto Reciprocal(hn::Vec256<float> b) { return hn::Vec256<float>{_mm256_rcp14_ps(b.raw)}; }
  /// An estimate of 14 bits and one step of Newton's: a division would hold up the multipliers.
  friend HWY_INLINE SimdOf Quotient(SimdOf a, SimdOf b) {
    const Raw estimate = Reciprocal(b.raw);
    const Raw rest = hn::NegMulAdd(b.raw, estimate, hn::Set(Tag(), 1.0f));
    const Raw quotient = hn::Mul(a.raw, estimate);
    return hn::MulAdd(quotient, rest, quotient);
  }

  /// 2^x within 2^-18 of itself, and 1 for 0; never more than 2^126, never negative. The polynomial is 2^r to within
  /// 2^-18.4 of itself for |r| <= 1/2.
  static HWY_INLINE Raw QuickPower(Raw x) {
    const Raw bounded = AtMost(x, hn::Set(Tag(), 126.0f));
    const Raw r{_mm512_reduce_ps(bounded.raw, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC)};
    const Raw r2 = hn::Mul(r, r);
    const Raw low = hn::MulAdd(r, hn::Set(Tag(), 6.9312415e-1f), hn::Set(Tag(), 1.0f));
    const Raw middle = hn::MulAdd(r, hn::Set(Tag(), 5.5906829e-2f), hn::Set(Tag(), 2.4024102e-1f));
    const Raw power = hn::MulAdd(r2, hn::MulAdd(r2, hn::Set(Tag(), 9.5828137e-3f), middle), low);
    return Raw{_mm512_scalef_ps(power.raw, hn::Sub(bounded, r).raw)};
  }
  /// 1 / (1 + 2^x), of which what is wrong with the power takes no more than 2^-20. It never reaches 0.
  static HWY_INLINE Raw QuickShare(Raw x) {
    const Raw one = hn::Set(Tag(), 1.0f), sum = hn::Add(QuickPower(x), one), estimate = Reciprocal(sum);
    return hn::MulAdd(estimate, hn::NegMulAdd(sum, estimate, one), estimate);
  }
  /// Within 2^-20, and sigmoid(x) and 1 - sigmoid(x) within 2^-17 of themselves (the latter while floats can tell).
  friend HWY_INLINE SimdOf Sigmoid(SimdOf x) requires quick {
    return QuickShare(hn::Mul(x.raw, hn::Set(Tag(), -1.44269504f)));
  }
  /// Within 2^-19; 0 for 0.
  friend HWY_INLINE SimdOf Tanh(SimdOf x) requires quick {
    const Raw share = QuickShare(hn::Mul(x.raw, hn::Set(Tag(), 2.88539008f)));
    return hn::MulAdd(share, hn::Set(Tag(), -2.0f), hn::Set(Tag(), 1.0f));
  }
#endif
  friend HWY_INLINE SimdOf SelectPositive(SimdOf x, SimdOf a, SimdOf b) {
    return hn::IfThenElse(hn::Ge(x.raw, hn::Zero(Tag())), a.raw, b.raw);
  }
  friend HWY_INLINE SimdOf FiniteOr(SimdOf x, SimdOf otherwise) {
    return hn::IfThenElse(hn::IsFinite(x.raw), x.raw, otherwise.raw);
  }
  friend HWY_INLINE SimdOf SelectZero(SimdOf x, SimdOf a, SimdOf b) {
    return hn::IfThenElse(hn::Eq(x.raw, hn::Zero(Tag())), a.raw, b.raw);
  }
};

/// Returns the rounding error of a product of a and b: a b - product, exactly.
template <class Tag, bool quick>
HWY_INLINE SimdOf<Tag, quick> ProductRest(SimdOf<Tag, quick> a, SimdOf<Tag, quick> b, SimdOf<Tag, quick> product) {
#if HWY_NATIVE_FMA
  return hn::MulSub(a.raw, b.raw, product.raw);
#else
  // Dekker's: halves of twelve bits, whose products are exact.
  const auto upper = [](SimdOf<Tag, quick> x) HWY_ATTR {
    const SimdOf<Tag, quick> large = x * SimdOf<Tag, quick>(4097.0f);
    return large - (large - x);
  };
  const SimdOf<Tag, quick> a1 = upper(a), b1 = upper(b), a2 = a - a1, b2 = b - b1;
  return ((a1 * b1 - product) + a1 * b2 + a2 * b1) + a2 * b2;
#endif
}
HWY_INLINE double FiniteOr(double x, double otherwise) { return std::isfinite(x) ? x : otherwise; }
HWY_INLINE double ProductRest(double a, double b, double product) { return std::fma(a, b, -product); }

using Simd = SimdOf<hn::ScalableTag<float>>;
using QuickSimd = SimdOf<hn::ScalableTag<float>, true>;

// Vectors of half as many lanes, for what has no more than so many units: a masked store of the other half cannot be
// read again before it has reached the cache, and some processors take a wide vector in two turns.
#undef PENSTOCK_NARROW_VECTORS
#define PENSTOCK_NARROW_VECTORS (HWY_TARGET == HWY_AVX2 || HWY_TARGET == HWY_AVX3)
#if PENSTOCK_NARROW_VECTORS
using NarrowSimd = SimdOf<hn::Half<hn::ScalableTag<float>>>;
#endif

/// Memory access of a value type; `n` counts the lanes that exist, full groups have n == lanes.
template <class Real>
struct Lanes;

/// Memory access of vectors of floats.
template <class Vector>
struct SimdLanes {
  using V = Vector;
  using Tag = typename V::Tag;
  static constexpr Index lanes = V::lanes;
  static HWY_INLINE V load(const float* p) { return hn::LoadU(Tag(), p); }
  static HWY_INLINE void store(V v, float* p) { hn::StoreU(v.raw, Tag(), p); }
  /// Stores past the caches; p is aligned to the vector.
  static HWY_INLINE void stream(V v, float* p) { hn::Stream(v.raw, Tag(), p); }
  static HWY_INLINE V load(const float* p, Index n) {
    if (n == lanes) return load(p);
#if PENSTOCK_MASKED_MEMORY
    return hn::MaskedLoad(hn::FirstN(Tag(), static_cast<size_t>(n)), Tag(), p);
#else
    float padded[lanes] = {};
    for (Index i = 0; i < n; ++i) padded[i] = p[i];
    return load(padded);
#endif
  }
  static HWY_INLINE void store(V v, float* p, Index n) {
    if (n == lanes) return store(v, p);
#if PENSTOCK_MASKED_MEMORY
    hn::BlendedStore(v.raw, hn::FirstN(Tag(), static_cast<size_t>(n)), Tag(), p);
#else
    float padded[lanes];
    store(v, padded);
    for (Index i = 0; i < n; ++i) p[i] = padded[i];
#endif
  }
  static HWY_INLINE float sum(V v) { return hn::GetLane(hn::SumOfLanes(Tag(), v.raw)); }
};

template <>
struct Lanes<float> : SimdLanes<Simd> {};

template <>
struct Lanes<double> {
  using V = double;
  static constexpr Index lanes = 1;
  static HWY_INLINE V load(const double* p, Index = 1) { return *p; }
  static HWY_INLINE void store(V v, double* p, Index = 1) { *p = v; }
  static HWY_INLINE double sum(V v) { return v; }
};

/// Rounds to the nearest bfloat16, ties to even; NaN stays NaN.
inline std::uint16_t RoundToBf16(float x) {
  const auto bits = std::bit_cast<std::uint32_t>(x);
  if (x != x) return static_cast<std::uint16_t>((bits >> 16) | 0x40u);
  return static_cast<std::uint16_t>((bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16);
}

/// The nearest bfloat16 in the lower half of each lane, as RoundToBf16() has it.
HWY_INLINE auto RoundedBits(Simd x) {
  const hn::RebindToUnsigned<Simd::Tag> du;
  const auto bits = hn::BitCast(du, x.raw), upper = hn::ShiftRight<16>(bits);
  const auto odd = hn::And(upper, hn::Set(du, 1u));
  const auto nearest = hn::ShiftRight<16>(hn::Add(bits, hn::Add(odd, hn::Set(du, 0x7fffu))));
  const auto is_nan = hn::RebindMask(du, hn::Not(hn::Eq(x.raw, x.raw)));  // hn::Ne() of two NaN is false
  return hn::IfThenElse(is_nan, hn::Or(upper, hn::Set(du, 0x40u)), nearest);
}

/// The first n lanes, to the nearest.
HWY_INLINE void StoreBf16(Simd x, std::uint16_t* p, Index n = Simd::lanes) {
  const hn::Rebind<std::uint16_t, Simd::Tag> halves;
  const auto rounded = hn::TruncateTo(halves, RoundedBits(x));
  if (n >= Simd::lanes) return hn::StoreU(rounded, halves, p);
  std::uint16_t all[Simd::lanes];
  hn::StoreU(rounded, halves, all);
  std::copy_n(all, n, p);
}
