// Steps of h_t = a_t h_{t-1} + b_t over a value type V. A rule is a scan cell, or the explicit coefficients of given.h.
// It has splits_gain. If that is true, it also has affine(term, whole, part, b), which returns a as a sum, and
// log_gain(term), the logarithm of a. Near a = 1 only the decay 1 - a matters, and a float a has only a few bits of it.

/// One step of the recurrence as a function of the state.
template <class V, bool splits>
struct AffineStep {
  V a, b;

  PENSTOCK_CELL V gain() const { return a; }
  PENSTOCK_CELL V advance(V h) const { return MulAdd(a, h, b); }
};

/// Step of an affine recurrence with a = whole + part.
template <class V>
struct AffineStep<V, true> {
  V whole, part, b;

  PENSTOCK_CELL V gain() const { return whole + part; }
  /// Returns the next state if it is finite. An infinite h times a negative part would be subtracted from infinity.
  PENSTOCK_CELL V advance(V h) const { return MulAdd(whole, h, MulAdd(part, h, b)); }
  /// Returns the next state, finite or infinite.
  PENSTOCK_CELL V advance_all(V h) const { return FiniteOr(advance(h), MulAdd(gain(), h, b)); }
};

template <class Rule, class V, int G>
PENSTOCK_CELL AffineStep<V, Rule::splits_gain> StepOf(const V (&term)[G]) {
  // Aggregate initialisation: an implicitly generated constructor would lack the target attribute of Highway's region.
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
