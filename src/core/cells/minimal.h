// minGRU and minLSTM (Feng et al. 2024, arXiv:2410.01201): gates depend on the input only, and h_t = a_t h_{t-1} + b_t
// with a and b known for all t in advance. The candidate is linear (h~ = W x), or positive (h~ = g(W x), appendix B of
// the paper): with h0 >= 0 all terms of the recurrence are positive. a and b are computed from sigmoids of a logit and
// of its negative, never as 1 - sigmoid, which would lose digits near 0 and 1.

struct LinearCandidate {
  static constexpr bool has_kink = false;

  template <class V>
  static PENSTOCK_CELL V value(V x) {
    return x;
  }
  template <class V>
  static PENSTOCK_CELL V derivative(V) {
    return V(1.0f);
  }
};

/// g(x) = x + 0.5 for x >= 0, sigmoid(x) below.
struct PositiveCandidate {
  static constexpr bool has_kink = true;  // the slope jumps from 1/4 to 1

  template <class V>
  static PENSTOCK_CELL V value(V x) {
    return SelectPositive(x, x + V(0.5f), Sigmoid(x));
  }
  template <class V>
  static PENSTOCK_CELL V derivative(V x) {
    const V s = Sigmoid(x);
    return SelectPositive(x, V(1.0f), s * (V(1.0f) - s));
  }
};

/// h = (1 - z) h + z h~ with z = sigmoid(k). Gates k, h~.
template <class Candidate>
struct MinGruOf {
  static constexpr int gates = 2;
  static constexpr bool splits_gain = false;
  static constexpr int states = 1;
  static constexpr int keep_gate = -1;
  static constexpr int overwrite_gate = 0;
  static constexpr bool spread_memory = true;
  static constexpr bool has_kink = Candidate::has_kink;
  static constexpr bool scan = true;

  template <class V>
  static PENSTOCK_CELL void affine(const V (&wx)[2], V& a, V& b) {
    V z;
    Sigmoids(wx[0], z, a);
    b = z * Candidate::value(wx[1]);
  }

  template <class V>
  static PENSTOCK_CELL void affine_backward(const V (&wx)[2], V da, V db, V (&dwx)[2]) {
    V z, a;
    Sigmoids(wx[0], z, a);
    dwx[0] = z * a * (db * Candidate::value(wx[1]) - da);
    dwx[1] = db * z * Candidate::derivative(wx[1]);
  }
};

/// h = f' h + i' h~ with f' = f / (f + i), i' = i / (f + i). Gates f, i, h~. With u = e^-i and v = e^-f (of the
/// logits), f' = (1 + u) / (2 + u + v), i' = (1 + v) / (2 + u + v). If both logits are so far below 0 that the ones are
/// negligible, only their difference matters. Both are then shifted up by the same amount: no exponential saturates
/// before one share is negligible. Logits below -1e30 are treated as -1e30.
template <class Candidate>
struct MinLstmOf {
  static constexpr int gates = 3;
  static constexpr bool splits_gain = false;
  static constexpr int states = 1;
  static constexpr int keep_gate = 0;
  static constexpr int overwrite_gate = 1;
  static constexpr bool spread_memory = true;
  static constexpr bool has_kink = Candidate::has_kink;
  static constexpr bool scan = true;

  template <class V>
  struct Shares {
    V keep, take;              // f', i'
    V keep_slope, take_slope;  // sigmoid(-f), sigmoid(-i) of the logits
  };

  /// Sums of exponentials are multiplied by 1/4 here, to stay in the range of Quotient().
  template <class V>
  static PENSTOCK_CELL Shares<V> shares(const V (&wx)[3]) {
    const V quarter(0.25f);
    const V higher = Max(wx[0], wx[1]) + OneVanishesFrom(wx[0]);
    const V excess = Clamp(higher, V(-1e30f), V(0.0f));
    const V u = Exp(excess - wx[1]), v = Exp(excess - wx[0]);
    const V of_take = MulAdd(u, quarter, quarter), of_keep = MulAdd(v, quarter, quarter);
    const V inverse = Quotient(V(1.0f), of_take + of_keep);
    return {of_take * inverse, of_keep * inverse, Quotient(v * quarter, of_keep), Quotient(u * quarter, of_take)};
  }

  template <class V>
  static PENSTOCK_CELL void affine(const V (&wx)[3], V& a, V& b) {
    const Shares<V> share = shares(wx);
    a = share.keep;
    b = share.take * Candidate::value(wx[2]);
  }

  template <class V>
  static PENSTOCK_CELL void affine_backward(const V (&wx)[3], V da, V db, V (&dwx)[3]) {
    const Shares<V> share = shares(wx);
    const V dd = share.keep * share.take * (da - db * Candidate::value(wx[2]));
    dwx[0] = dd * share.keep_slope;
    dwx[1] = V(0.0f) - dd * share.take_slope;
    dwx[2] = db * share.take * Candidate::derivative(wx[2]);
  }
};

struct MinGru : MinGruOf<LinearCandidate> {
  static constexpr const char* name = "mingru";
  static constexpr const char* description = "minimal GRU, linear candidate";
};

struct MinGruLog : MinGruOf<PositiveCandidate> {
  static constexpr const char* name = "mingru-log";
  static constexpr const char* description = "minimal GRU, positive candidate";
};

struct MinLstm : MinLstmOf<LinearCandidate> {
  static constexpr const char* name = "minlstm";
  static constexpr const char* description = "minimal LSTM, linear candidate";
};

struct MinLstmLog : MinLstmOf<PositiveCandidate> {
  static constexpr const char* name = "minlstm-log";
  static constexpr const char* description = "minimal LSTM, positive candidate";
};
