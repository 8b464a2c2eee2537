// Steps of h_t = a_t h_{t-1} + b_t over a value type V. What they need of a rule (a scan cell, or the given terms of
// given.h): splits_gain, and where that is true, affine(term, whole, part, b), which gives a as a sum, and
// log_gain(term), the logarithm of a. Near 1 the decay 1 - a is all that counts, and a float a holds a few bits of it.

/// What a step does to a state.
template <class V, bool splits>
struct AffineStep {
  V a, b;

  PENSTOCK_CELL V gain() const { return a; }
  PENSTOCK_CELL V advance(V h) const { return MulAdd(a, h, b); }
};

/// The same, of a = whole + part.
template <class V>
struct AffineStep<V, true> {
  V whole, part, b;

  PENSTOCK_CELL V gain() const { return whole + part; }
  /// Of a finite result: infinity times a negative part takes it from infinity.
  PENSTOCK_CELL V advance(V h) const { return MulAdd(whole, h, MulAdd(part, h, b)); }
  /// The same, and infinite results.
  PENSTOCK_CELL V advance_all(V h) const { return FiniteOr(advance(h), MulAdd(gain(), h, b)); }
};

template <class Rule, class V, int G>
PENSTOCK_CELL AffineStep<V, Rule::splits_gain> StepOf(const V (&term)[G]) {
  // Filled when made: a constructor that a compiler writes by itself lacks the target of Highway's region.
  if constexpr (Rule::splits_gain) {
    V whole, part, b;
    Rule::affine(term, whole, part, b);
    return {whole, part, b};
  } else {
    V a, b;
    Rule::affine(term, a, b);
    return {a, b};
  }
}
