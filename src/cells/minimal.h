// minGRU and minLSTM (Feng et al. 2024): gates see the input alone, so h_t = a_t h_{t-1} + b_t with a, b known for all
// t at once. The candidate is linear (h~ = W x), or positive (h~ = g(W x)), the log-space variant: with h0 >= 0 all
// terms of the recurrence are then positive. a and b are formed from sigmoids of either sign of a logit, never as
// 1 - sigmoid, so that neither loses digits near 0 or 1.

struct LinearCandidate {
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
  static constexpr int states = 1;
  static constexpr int keep_gate = -1;
  static constexpr int overwrite_gate = 0;
  static constexpr bool spread_memory = true;
  static constexpr bool scan = true;

  template <class V>
  static PENSTOCK_CELL void affine(const V (&wx)[2], V& a, V& b) {
    a = Sigmoid(V(0.0f) - wx[0]);
    b = Sigmoid(wx[0]) * Candidate::value(wx[1]);
  }

  template <class V>
  static PENSTOCK_CELL void affine_backward(const V (&wx)[2], V da, V db, V (&dwx)[2]) {
    const V z = Sigmoid(wx[0]);
    const V slope = z * Sigmoid(V(0.0f) - wx[0]);
    dwx[0] = slope * (db * Candidate::value(wx[1]) - da);
    dwx[1] = db * z * Candidate::derivative(wx[1]);
  }
};

/// h = f' h + i' h~ with f' = f / (f + i), i' = i / (f + i). Gates f, i, h~. In logits: f' = sigmoid(d) with
/// d = log f - log i, which holds where f and i both underflow.
template <class Candidate>
struct MinLstmOf {
  static constexpr int gates = 3;
  static constexpr int states = 1;
  static constexpr int keep_gate = 0;
  static constexpr int overwrite_gate = 1;
  static constexpr bool spread_memory = true;
  static constexpr bool scan = true;

  template <class V>
  static PENSTOCK_CELL V difference(const V (&wx)[3]) {
    return Softplus(V(0.0f) - wx[1]) - Softplus(V(0.0f) - wx[0]);
  }

  template <class V>
  static PENSTOCK_CELL void affine(const V (&wx)[3], V& a, V& b) {
    const V d = difference(wx);
    a = Sigmoid(d);
    b = Sigmoid(V(0.0f) - d) * Candidate::value(wx[2]);
  }

  template <class V>
  static PENSTOCK_CELL void affine_backward(const V (&wx)[3], V da, V db, V (&dwx)[3]) {
    const V d = difference(wx);
    const V input = Sigmoid(V(0.0f) - d);
    const V dd = Sigmoid(d) * input * (da - db * Candidate::value(wx[2]));
    dwx[0] = dd * Sigmoid(V(0.0f) - wx[0]);
    dwx[1] = V(0.0f) - dd * Sigmoid(V(0.0f) - wx[1]);
    dwx[2] = db * input * Candidate::derivative(wx[2]);
  }
};

struct MinGru : MinGruOf<LinearCandidate> {
  static constexpr const char* name = "mingru";
  static constexpr const char* description = "minimal GRU, linear candidate";
};

struct MinGruLog : MinGruOf<PositiveCandidate> {
  static constexpr const char* name = "mingru-log";
  static constexpr const char* description = "minimal GRU, positive candidate (log-space variant)";
};

struct MinLstm : MinLstmOf<LinearCandidate> {
  static constexpr const char* name = "minlstm";
  static constexpr const char* description = "minimal LSTM, linear candidate";
};

struct MinLstmLog : MinLstmOf<PositiveCandidate> {
  static constexpr const char* name = "minlstm-log";
  static constexpr const char* description = "minimal LSTM, positive candidate (log-space variant)";
};
