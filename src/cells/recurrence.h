// Steps of h_t = a_t h_{t-1} + b_t over a value type V. What they need of a rule (a scan cell, or the given terms of
// given.h): splits_gain, and where that is true, affine(term, a, rest, b), which gives the exact a less the number a,
// too, and log_gain(term), the logarithm of a. Near 1 the decay 1 - a is all that counts, and a float a holds a few
// bits of it.

/// What a step does to a state.
template <class V, bool splits>
struct AffineStep {
  V a, rest, b;  // rest: where the rule splits its gains

  /// a h + b.
  PENSTOCK_CELL V advance(V h) const {
    if constexpr (splits) return MulAdd(a, h, MulAdd(rest, h, b));
    return MulAdd(a, h, b);
  }
};

template <class Rule, class V, int G>
PENSTOCK_CELL AffineStep<V, Rule::splits_gain> StepOf(const V (&term)[G]) {
  AffineStep<V, Rule::splits_gain> step;
  if constexpr (Rule::splits_gain) {
    Rule::affine(term, step.a, step.rest, step.b);
  } else {
    Rule::affine(term, step.a, step.b);
  }
  return step;
}
