// Elman network (Elman 1990; with relu: Le et al. 2015, arXiv:1504.00941): h = act(W x + R h).

struct TanhActivation {
  static constexpr bool has_kink = false;
  static constexpr bool bounded = true;  // by 1

  template <class V>
  static PENSTOCK_CELL V value(V x) {
    return Tanh(x);
  }
  /// Returns the derivative as a function of the output y, not of the input.
  template <class V>
  static PENSTOCK_CELL V derivative(V y) {
    return V(1.0f) - y * y;
  }
};

struct ReluActivation {
  static constexpr bool has_kink = true;
  static constexpr bool bounded = false;

  template <class V>
  static PENSTOCK_CELL V value(V x) {
    return Max(x, V(0.0f));
  }
  template <class V>
  static PENSTOCK_CELL V derivative(V y) {
    return SelectPositive(V(0.0f) - y, V(0.0f), V(1.0f));
  }
};

template <class Activation>
struct Elman {
  static constexpr int gates = 1;
  static constexpr int states = 1;  // h
  static constexpr int saved = 1;   // h
  static constexpr int keep_gate = -1;
  static constexpr int overwrite_gate = -1;
  static constexpr bool spread_memory = false;
  static constexpr bool has_kink = Activation::has_kink;
  static constexpr int phases = 1;
  static constexpr bool split_gradients = false;
  static constexpr bool bounded = Activation::bounded;
  static constexpr bool scan = false;

  template <class V>
  static PENSTOCK_CELL void forward(const V (&wx)[1], const V (&rh)[1], const V (&)[1], V (&next)[1], V (&save)[1]) {
    next[0] = save[0] = Activation::value(wx[0] + rh[0]);
  }

  template <class V>
  static PENSTOCK_CELL void backward(const V (&save)[1], const V (&)[1], const V (&dnext)[1], V (&dwx)[1], V (&drh)[1],
                                     V (&dprev)[1]) {
    dwx[0] = drh[0] = dnext[0] * Activation::derivative(save[0]);
    dprev[0] = V(0.0f);
  }
};

struct ElmanTanh : Elman<TanhActivation> {
  static constexpr const char* name = "elman";
  static constexpr const char* description = "Elman network with tanh";
};

struct ElmanRelu : Elman<ReluActivation> {
  static constexpr const char* name = "elman-relu";
  static constexpr const char* description = "Elman network with rectified linear units";
};
