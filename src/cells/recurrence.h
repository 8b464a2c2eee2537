// Steps of h_t = a_t h_{t-1} + b_t over a value type V. What they need of a rule (a scan cell, or the given terms of
// given.h): splits_gain, and where that is true, rest_of_gain(term, a), the exact a less the number a, and
// log_gain(term), the logarithm of a. Near 1 the decay 1 - a is all that counts, and a float a holds a few bits of it.

/// a h + b.
template <class Rule, class V, int G>
PENSTOCK_CELL V Advance(const V (&term)[G], V a, V h, V b) {
  if constexpr (Rule::splits_gain) b = MulAdd(Rule::rest_of_gain(term, a), h, b);
  return MulAdd(a, h, b);
}
