// Scans without a cell: the terms of h_t = a_t h_{t-1} + b_t are given, as they are or as logarithms.

/// Terms a, b.
struct GivenTerms {
  static constexpr int gates = 2;

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

/// Terms log a, log b; both are positive.
struct GivenLogs {
  static constexpr int gates = 2;

  template <class V>
  static PENSTOCK_CELL void affine(const V (&term)[2], V& a, V& b) {
    a = Exp(term[0]);
    b = Exp(term[1]);
  }

  template <class V>
  static PENSTOCK_CELL void affine_backward(const V (&term)[2], V da, V db, V (&dterm)[2]) {
    dterm[0] = da * Exp(term[0]);
    dterm[1] = db * Exp(term[1]);
  }
};

/// Terms log a, log |b| and a factor of b, its sign.
struct GivenSignedLogs {
  static constexpr int gates = 3;

  template <class V>
  static PENSTOCK_CELL void affine(const V (&term)[3], V& a, V& b) {
    a = Exp(term[0]);
    b = term[2] * Exp(term[1]);
  }

  template <class V>
  static PENSTOCK_CELL void affine_backward(const V (&term)[3], V da, V db, V (&dterm)[3]) {
    const V size = Exp(term[1]);
    dterm[0] = da * Exp(term[0]);
    dterm[1] = db * term[2] * size;
    dterm[2] = db * size;
  }
};
