// Evaluates the program of a custom cell over a tile of vectors of units: operation after operation, each for all
// vectors, so that choosing an operation costs little and latencies overlap.

using custom::Operation;
using custom::Program;

/// Dense cells with so many gates; their equations are in the job.
template <int gate_count>
struct CustomDense {
  static constexpr int gates = gate_count;
  static constexpr int phases = 1;
  static constexpr bool scan = false;
  static constexpr bool custom = true;
};

/// body(std::type_identity<CustomDense<gates>>()).
template <class Body>
void WithCustomGates(int gates, const Body& body) {
  static_assert(custom::kMostGates == 5);
  if (gates == 1) return body(std::type_identity<CustomDense<1>>());
  if (gates == 2) return body(std::type_identity<CustomDense<2>>());
  if (gates == 3) return body(std::type_identity<CustomDense<3>>());
  if (gates == 4) return body(std::type_identity<CustomDense<4>>());
  if (gates == 5) return body(std::type_identity<CustomDense<5>>());
}

/// Vectors of a tile.
constexpr int kTileVectors = 8;

/// The slots of a program, each a tile. Fewer vectors share the memory of programs with many slots.
template <class V>
struct TileSlots {
  explicit TileSlots(const Program& program)
      : together(std::clamp(custom::kMostSlots / std::max(program.slots, 1), 1, kTileVectors)) {}

  HWY_INLINE V* at(Program::Slot slot) { return memory + slot * together; }

  int together;
  V memory[custom::kMostSlots];
};

/// The slots of a program for all units of a head at a time, which means read.
template <class V>
struct HeadSlots {
  template <class Real>
  HeadSlots(Real* room, Index units_of_head)
      : units(units_of_head), together((units + Lanes<Real>::lanes - 1) / Lanes<Real>::lanes) {
    constexpr std::uintptr_t line = 64;
    const std::uintptr_t beyond = reinterpret_cast<std::uintptr_t>(room) % line;
    memory = reinterpret_cast<V*>(room + (line - beyond) % line / sizeof(Real));
  }

  HWY_INLINE V* at(Program::Slot slot) { return memory + slot * together; }

  Index units, together;
  V* memory;
};

template <class V>
using RealOfVector = std::conditional_t<std::is_same_v<V, double>, double, float>;

HWY_INLINE double OneIf(bool condition) { return condition ? 1 : 0; }
HWY_INLINE double Less(double a, double b) { return OneIf(a < b); }
HWY_INLINE double LessEqual(double a, double b) { return OneIf(a <= b); }
HWY_INLINE double Equal(double a, double b) { return OneIf(a == b); }
HWY_INLINE double Least(double a, double b) { return b < a || b != b ? b : a; }
HWY_INLINE double Most(double a, double b) { return a < b || b != b ? b : a; }
HWY_INLINE double Root(double x) { return std::sqrt(x); }
HWY_INLINE double Log(double x) { return std::log(x); }
HWY_INLINE double Sine(double x) { return std::sin(x); }
HWY_INLINE double Cosine(double x) { return std::cos(x); }
HWY_INLINE double ErrorFunction(double x) { return std::erf(x); }
HWY_INLINE double Magnitude(double x) { return std::fabs(x); }

template <class Tag>
HWY_INLINE SimdOf<Tag> Less(SimdOf<Tag> a, SimdOf<Tag> b) {
  return hn::IfThenElseZero(hn::Lt(a.raw, b.raw), hn::Set(Tag(), 1.0f));
}
template <class Tag>
HWY_INLINE SimdOf<Tag> LessEqual(SimdOf<Tag> a, SimdOf<Tag> b) {
  return hn::IfThenElseZero(hn::Le(a.raw, b.raw), hn::Set(Tag(), 1.0f));
}
template <class Tag>
HWY_INLINE SimdOf<Tag> Equal(SimdOf<Tag> a, SimdOf<Tag> b) {
  return hn::IfThenElseZero(hn::Eq(a.raw, b.raw), hn::Set(Tag(), 1.0f));
}
template <class Tag>
HWY_INLINE SimdOf<Tag> Least(SimdOf<Tag> a, SimdOf<Tag> b) {
  return hn::IfThenElse(hn::Or(hn::Lt(b.raw, a.raw), hn::Not(hn::Eq(b.raw, b.raw))), b.raw, a.raw);
}
template <class Tag>
HWY_INLINE SimdOf<Tag> Most(SimdOf<Tag> a, SimdOf<Tag> b) {
  return hn::IfThenElse(hn::Or(hn::Lt(a.raw, b.raw), hn::Not(hn::Eq(b.raw, b.raw))), b.raw, a.raw);
}
template <class Tag>
HWY_INLINE SimdOf<Tag> Root(SimdOf<Tag> x) {
  return Sqrt(x);
}
template <class Tag>
HWY_INLINE SimdOf<Tag> Magnitude(SimdOf<Tag> x) {
  return Abs(x);
}

/// Lane after lane, for arguments beyond the range of the vector's function.
template <class Tag, class Function>
HWY_NOINLINE SimdOf<Tag> EachLane(SimdOf<Tag> x, const Function& function) {
  float values[SimdOf<Tag>::lanes];
  hn::StoreU(x.raw, Tag(), values);
  for (float& value : values) value = function(value);
  return hn::LoadU(Tag(), values);
}

/// Within 4 ULP.
template <class Tag>
HWY_INLINE SimdOf<Tag> Log(SimdOf<Tag> x) {
  const Tag d;
  const auto inside = hn::And(hn::Ge(x.raw, hn::Set(d, 1.17549435e-38f)), hn::Le(x.raw, hn::Set(d, 3.4e38f)));
  if (HWY_LIKELY(hn::AllTrue(d, inside))) return hn::Log(d, x.raw);
  return EachLane(x, [](float value) { return std::log(value); });
}

/// Returns whether all values are near enough to zero that a sine of floats is within 3 ULP.
template <class Tag>
HWY_INLINE bool IsNearZero(SimdOf<Tag> x) {
  return hn::AllTrue(Tag(), hn::Le(hn::Abs(x.raw), hn::Set(Tag(), 30000.0f)));
}
template <class Tag>
HWY_INLINE SimdOf<Tag> Sine(SimdOf<Tag> x) {
  if (HWY_LIKELY(IsNearZero(x))) return hn::Sin(Tag(), x.raw);
  return EachLane(x, [](float value) { return std::sin(value); });
}
template <class Tag>
HWY_INLINE SimdOf<Tag> Cosine(SimdOf<Tag> x) {
  if (HWY_LIKELY(IsNearZero(x))) return hn::Cos(Tag(), x.raw);
  return EachLane(x, [](float value) { return std::cos(value); });
}

/// Within 3e-7: a Taylor series below 0.75, formula 7.1.26 of Abramowitz and Stegun above.
template <class Tag>
HWY_INLINE SimdOf<Tag> ErrorFunction(SimdOf<Tag> x) {
  using V = SimdOf<Tag>;
  const V square = x * x;
  V series(-1.492565035840625e-5f);
  for (const float c : {1.2055332981789664e-4f, -8.548327023450852e-4f, 5.223977625442188e-3f, -2.686617064513125e-2f,
                        1.128379167095513e-1f, -3.761263890318375e-1f, 1.1283791670955126f}) {
    series = MulAdd(series, square, V(c));
  }
  const V size = Abs(x), t = V(1.0f) / MulAdd(size, V(0.3275911f), V(1.0f));
  V rest(1.061405429f);
  for (const float c : {-1.453152027f, 1.421413741f, -0.284496736f, 0.254829592f}) rest = MulAdd(rest, t, V(c));
  const V above = V(1.0f) - rest * t * Exp(V(0.0f) - square);
  const V signed_above = SelectPositive(x, above, V(0.0f) - above);
  return SelectPositive(size - V(0.75f), signed_above, x * series);
}

/// Scan cells with so many gates.
template <int gate_count>
struct CustomScan {
  static constexpr int gates = gate_count;
  static constexpr bool splits_gain = false;
  static constexpr bool scan = true;
  static constexpr bool custom = true;
};

template <class V>
HWY_INLINE V Constant(double value) {
  return V(static_cast<RealOfVector<V>>(value));
}

/// One instruction for `n` vectors.
template <class V>
HWY_INLINE void RunInstruction(Operation operation, int n, const V* a, const V* b, const V* c, V* to) {
  const V zero(0);
  switch (operation) {
#define PENSTOCK_CASE(name, expression)               \
  case Operation::name:                               \
    for (int j = 0; j < n; ++j) to[j] = (expression); \
    return;
    PENSTOCK_CASE(add, a[j] + b[j])
    PENSTOCK_CASE(subtract, a[j] - b[j])
    PENSTOCK_CASE(multiply, a[j] * b[j])
    PENSTOCK_CASE(divide, a[j] / b[j])
    PENSTOCK_CASE(multiply_add, MulAdd(a[j], b[j], c[j]))
    PENSTOCK_CASE(subtract_product, MulAdd(zero - a[j], b[j], c[j]))
    PENSTOCK_CASE(exp, Exp(a[j]))
    PENSTOCK_CASE(log, Log(a[j]))
    PENSTOCK_CASE(tanh, Tanh(a[j]))
    PENSTOCK_CASE(sigmoid, Sigmoid(a[j]))
    PENSTOCK_CASE(softplus, Softplus(a[j]))
    PENSTOCK_CASE(relu, Max(a[j], zero))
    PENSTOCK_CASE(erf, ErrorFunction(a[j]))
    PENSTOCK_CASE(sin, Sine(a[j]))
    PENSTOCK_CASE(cos, Cosine(a[j]))
    PENSTOCK_CASE(sqrt, Root(a[j]))
    PENSTOCK_CASE(abs, Magnitude(a[j]))
    PENSTOCK_CASE(min, Least(a[j], b[j]))
    PENSTOCK_CASE(max, Most(a[j], b[j]))
    PENSTOCK_CASE(clamp, Clamp(a[j], b[j], c[j]))
    PENSTOCK_CASE(less, Less(a[j], b[j]))
    PENSTOCK_CASE(less_equal, LessEqual(a[j], b[j]))
    PENSTOCK_CASE(equal, Equal(a[j], b[j]))
    PENSTOCK_CASE(where, SelectZero(a[j], c[j], b[j]))
#undef PENSTOCK_CASE
    default:
      return;  // leaves, which are loaded
  }
}

/// to[...] = the mean of some units, which fill the vectors of x but for some lanes of the last one.
template <class V>
HWY_NOINLINE void FillMean(const V* x, Index units, V* to) {
  using Real = RealOfVector<V>;
  using L = Lanes<Real>;
  Real lanes[L::lanes];
  V sums(0);
  Index i = 0;
  for (; (i + 1) * L::lanes <= units; ++i) sums = sums + x[i];
  L::store(sums, lanes, L::lanes);
  Real sum = 0;
  for (const Real lane : lanes) sum += lane;
  const Index rest = units - i * L::lanes;
  if (rest > 0) L::store(x[i], lanes, rest);
  for (Index lane = 0; lane < rest; ++lane) sum += lanes[lane];
  const V mean(sum / static_cast<Real>(units));
  for (Index j = 0; j < i + (rest > 0 ? 1 : 0); ++j) to[j] = mean;
}

/// Runs a program whose leaves are loaded, on the first n vectors of each slot.
template <class V, template <class> class Slots>
HWY_NOINLINE void RunProgram(const Program& program, int n, Slots<V>& slots) {
  for (const Program::Constant& constant : program.constants) {
    const V value = Constant<V>(constant.value);
    V* const to = slots.at(constant.slot);
    for (int j = 0; j < n; ++j) to[j] = value;
  }
  for (const Program::Instruction& step : program.instructions) {
    if constexpr (std::is_same_v<Slots<V>, HeadSlots<V>>) {
      if (step.operation == Operation::mean) {
        FillMean(slots.at(step.of[0]), slots.units, slots.at(step.to));
        continue;
      }
    }
    RunInstruction(step.operation, n, slots.at(step.of[0]), slots.at(step.of[1]), slots.at(step.of[2]),
                   slots.at(step.to));
  }
}
