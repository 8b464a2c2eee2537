// Scans without a cell: terms of h_t = a_t h_{t-1} + b_t, given directly or as logarithms (Heinsen, arXiv:2311.06281).

/// Terms a, b.
struct GivenTerms {
  static constexpr int gates = 2;
  static constexpr bool splits_gain = false;

  template <class V>
  static PENSTOCK_CELL void affine(const V (&term)[2], V& a, V& b) {
    a = term[0];
    b = term[1];
  }

  template <class V>
  static PENSTOCK_CELL void affine_backward(const V (&)[2], V da, V db, V (&dterm)[2]) {
    dterm[0] = da;
    dterm[1] = db;
  }
};

/// Returns Exp(x) as whole + part. For x close to 0, whole is 1, and the pair has more digits than the sum. Otherwise
/// whole is a power of two; in double it is the whole value.
template <class V>
PENSTOCK_CELL void SplitExp(V x, V& whole, V& part) {
  V n;
  const V clamped = Clamp(x, V(-87.33f), V(87.3f));
  PowerOfTwo<1>(clamped, n, whole);
  part = whole * SmallExpm1(MinusLogs(clamped, n));
}
PENSTOCK_CELL void SplitExp(double x, double& whole, double& part) {
  const bool near_one = std::fabs(x) < 0.34;
  whole = near_one ? 1 : Exp(x);
  part = near_one ? std::expm1(x) : 0;
}

/// Base of rules with log a as first term.
struct GivenLogGain {
  static constexpr bool splits_gain = true;

  /// Returns Exp(log a) by the same operations as affine(); the compiler can then compute them once per step.
  template <class V>
  static PENSTOCK_CELL V gain_of(V log_a) {
    V whole, part;
    SplitExp(log_a, whole, part);
    return whole + part;
  }

  /// Returns log a, saturated as in Exp().
  template <class V, int terms>
  static PENSTOCK_CELL V log_gain(const V (&term)[terms]) {
    return Clamp(term[0], V(-87.33f), V(87.3f));
  }
};

/// Terms log a, log b; both are positive.
struct GivenLogs : GivenLogGain {
  static constexpr int gates = 2;

  template <class V>
  static PENSTOCK_CELL void affine(const V (&term)[2], V& a, V& b) {
    a = Exp(term[0]);
    b = Exp(term[1]);
  }
  template <class V>
  static PENSTOCK_CELL void affine(const V (&term)[2], V& whole, V& part, V& b) {
    SplitExp(term[0], whole, part);
    b = Exp(term[1]);
  }

  template <class V>
  static PENSTOCK_CELL void affine_backward(const V (&term)[2], V da, V db, V (&dterm)[2]) {
    dterm[0] = da * gain_of(term[0]);
    dterm[1] = db * Exp(term[1]);
  }
};

/// Terms log a, log |b| and a factor of b, its sign.
struct GivenSignedLogs : GivenLogGain {
  static constexpr int gates = 3;

  template <class V>
  static PENSTOCK_CELL void affine(const V (&term)[3], V& a, V& b) {
    a = Exp(term[0]);
    b = term[2] * Exp(term[1]);
  }
  template <class V>
  static PENSTOCK_CELL void affine(const V (&term)[3], V& whole, V& part, V& b) {
    SplitExp(term[0], whole, part);
    b = term[2] * Exp(term[1]);
  }

  template <class V>
  static PENSTOCK_CELL void affine_backward(const V (&term)[3], V da, V db, V (&dterm)[3]) {
    const V size = Exp(term[1]);
    dterm[0] = da * gain_of(term[0]);
    dterm[1] = db * term[2] * size;
    dterm[2] = db * size;
  }
};
