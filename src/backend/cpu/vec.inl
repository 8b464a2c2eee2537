// The value type of the CPU engines: Simd for float, plain double for double. Included once per Highway target, inside
// penstock::cpu::HWY_NAMESPACE.

namespace hn = hwy::HWY_NAMESPACE;

// Elsewhere Highway's masked access touches the whole vector, beyond the end of the row.
#undef PENSTOCK_MASKED_MEMORY
#define PENSTOCK_MASKED_MEMORY (HWY_TARGET == HWY_AVX2 || HWY_TARGET == HWY_AVX3)

struct Simd {
  using Tag = hn::ScalableTag<float>;
  using Raw = hn::Vec<Tag>;
  static constexpr Index lanes = HWY_LANES(float);

  Raw raw;

  HWY_INLINE Simd() = default;
  // Implicit, so that Highway's results are values of ours without further ado.
  HWY_INLINE Simd(Raw r) : raw(r) {}  // NOLINT(google-explicit-constructor)
  HWY_INLINE explicit Simd(float x) : raw(hn::Set(Tag(), x)) {}

  friend HWY_INLINE Simd operator+(Simd a, Simd b) { return hn::Add(a.raw, b.raw); }
  friend HWY_INLINE Simd operator-(Simd a, Simd b) { return hn::Sub(a.raw, b.raw); }
  friend HWY_INLINE Simd operator*(Simd a, Simd b) { return hn::Mul(a.raw, b.raw); }
  friend HWY_INLINE Simd operator/(Simd a, Simd b) { return hn::Div(a.raw, b.raw); }
  friend HWY_INLINE Simd MulAdd(Simd a, Simd b, Simd c) { return hn::MulAdd(a.raw, b.raw, c.raw); }
  friend HWY_INLINE Simd Abs(Simd x) { return hn::Abs(x.raw); }
  friend HWY_INLINE Simd Round(Simd x) { return hn::Round(x.raw); }
  // NaN must get through, since the trainer finds broken weights by it; Highway leaves open what becomes of it. x86
  // takes the second operand then.
  friend HWY_INLINE Simd Max(Simd a, Simd b) { return AtLeast(a.raw, b.raw); }
  friend HWY_INLINE Simd Clamp(Simd x, Simd low, Simd high) { return AtMost(AtLeast(x.raw, low.raw), high.raw); }
#if HWY_TARGET == HWY_AVX2 || HWY_TARGET == HWY_AVX3
  static HWY_INLINE Raw AtLeast(Raw x, Raw bound) { return hn::Max(bound, x); }
  static HWY_INLINE Raw AtMost(Raw x, Raw bound) { return hn::Min(bound, x); }
#else
  static HWY_INLINE Raw AtLeast(Raw x, Raw bound) { return hn::IfThenElse(hn::Lt(x, bound), bound, x); }
  static HWY_INLINE Raw AtMost(Raw x, Raw bound) { return hn::IfThenElse(hn::Gt(x, bound), bound, x); }
#endif
  friend HWY_INLINE Simd Pow2(Simd n) {
    const hn::RebindToSigned<Tag> di;
    const auto exponent = hn::Add(hn::ConvertTo(di, n.raw), hn::Set(di, 127));
    return hn::BitCast(Tag(), hn::ShiftLeft<23>(exponent));
  }
  /// Adding 1.5 * 2^23 rounds to an integer, which then stands in the lowest bits.
  template <int times>
  friend HWY_INLINE void PowerOfTwo(Simd x, Simd& n, Simd& scale) {
    const hn::RebindToUnsigned<Tag> du;
    const Raw magic = hn::Set(Tag(), 12582912.0f);
    const Raw sum = hn::MulAdd(x.raw, hn::Set(Tag(), times * 1.44269504f), magic);
    n = hn::Sub(sum, magic);
    scale = hn::BitCast(Tag(), hn::Add(hn::ShiftLeft<23>(hn::BitCast(du, sum)), hn::Set(du, 127u << 23)));
  }
#if HWY_NATIVE_FMA
  friend HWY_INLINE Simd NearlyMinusLogs(Simd x, Simd n) {
    return hn::MulAdd(n.raw, hn::Set(Tag(), -0.693147182f), x.raw);
  }
#endif
#if HWY_TARGET == HWY_AVX3
  /// An estimate of 14 bits and one step of Newton's: a division would hold up the multipliers.
  friend HWY_INLINE Simd Quotient(Simd a, Simd b) {
    const Raw estimate = hn::ApproximateReciprocal(b.raw);
    const Raw rest = hn::NegMulAdd(b.raw, estimate, hn::Set(Tag(), 1.0f));
    const Raw quotient = hn::Mul(a.raw, estimate);
    return hn::MulAdd(quotient, rest, quotient);
  }
#endif
  friend HWY_INLINE Simd SelectPositive(Simd x, Simd a, Simd b) {
    return hn::IfThenElse(hn::Ge(x.raw, hn::Zero(Tag())), a.raw, b.raw);
  }
  friend HWY_INLINE Simd SelectZero(Simd x, Simd a, Simd b) {
    return hn::IfThenElse(hn::Eq(x.raw, hn::Zero(Tag())), a.raw, b.raw);
  }
};

/// Memory access of a value type; `n` counts the lanes that exist, full groups have n == lanes.
template <class Real>
struct Lanes;

template <>
struct Lanes<float> {
  using V = Simd;
  static constexpr Index lanes = Simd::lanes;
  static HWY_INLINE V load(const float* p) { return hn::LoadU(Simd::Tag(), p); }
  static HWY_INLINE void store(V v, float* p) { hn::StoreU(v.raw, Simd::Tag(), p); }
  /// Past the caches; p is aligned to the vector.
  static HWY_INLINE void stream(V v, float* p) { hn::Stream(v.raw, Simd::Tag(), p); }
  static HWY_INLINE V load(const float* p, Index n) {
    if (n == lanes) return load(p);
#if PENSTOCK_MASKED_MEMORY
    return hn::MaskedLoad(hn::FirstN(Simd::Tag(), static_cast<size_t>(n)), Simd::Tag(), p);
#else
    float padded[lanes] = {};
    for (Index i = 0; i < n; ++i) padded[i] = p[i];
    return load(padded);
#endif
  }
  static HWY_INLINE void store(V v, float* p, Index n) {
    if (n == lanes) return store(v, p);
#if PENSTOCK_MASKED_MEMORY
    hn::BlendedStore(v.raw, hn::FirstN(Simd::Tag(), static_cast<size_t>(n)), Simd::Tag(), p);
#else
    float padded[lanes];
    store(v, padded);
    for (Index i = 0; i < n; ++i) p[i] = padded[i];
#endif
  }
  static HWY_INLINE float sum(V v) { return hn::GetLane(hn::SumOfLanes(Simd::Tag(), v.raw)); }
};

template <>
struct Lanes<double> {
  using V = double;
  static constexpr Index lanes = 1;
  static HWY_INLINE V load(const double* p, Index = 1) { return *p; }
  static HWY_INLINE void store(V v, double* p, Index = 1) { *p = v; }
  static HWY_INLINE double sum(V v) { return v; }
};
