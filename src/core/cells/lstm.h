// LSTM (Hochreiter and Schmidhuber 1997; this form: arXiv:1503.04069), gates i, f, g, o. c = f c + i g, h = o tanh(c).

struct Lstm {
  static constexpr const char* name = "lstm";
  static constexpr const char* description = "long short-term memory";
  static constexpr int gates = 4;
  static constexpr int states = 2;  // h, c
  static constexpr int saved = 5;   // i, f, g, o, tanh(c)
  static constexpr int keep_gate = 1;
  static constexpr int overwrite_gate = -1;
  static constexpr bool spread_memory = false;
  static constexpr bool has_kink = false;
  static constexpr int phases = 1;
  static constexpr bool split_gradients = false;
  static constexpr bool bounded = true;
  static constexpr bool scan = false;

  template <class V>
  static PENSTOCK_CELL void forward(const V (&wx)[4], const V (&rh)[4], const V (&prev)[2], V (&next)[2],
                                    V (&save)[5]) {
    const V i = Sigmoid(wx[0] + rh[0]);
    const V f = Sigmoid(wx[1] + rh[1]);
    const V g = Tanh(wx[2] + rh[2]);
    const V o = Sigmoid(wx[3] + rh[3]);
    next[1] = MulAdd(f, prev[1], i * g);
    const V t = Tanh(next[1]);
    next[0] = o * t;
    save[0] = i, save[1] = f, save[2] = g, save[3] = o, save[4] = t;
  }

  template <class V>
  static PENSTOCK_CELL void backward(const V (&save)[5], const V (&prev)[2], const V (&dnext)[2], V (&dwx)[4],
                                     V (&drh)[4], V (&dprev)[2]) {
    const V i = save[0], f = save[1], g = save[2], o = save[3], t = save[4];
    const V one(1.0f);
    const V dc = MulAdd(dnext[0] * o, one - t * t, dnext[1]);
    dwx[0] = drh[0] = dc * g * i * (one - i);
    dwx[1] = drh[1] = dc * prev[1] * f * (one - f);
    dwx[2] = drh[2] = dc * i * (one - g * g);
    dwx[3] = drh[3] = dnext[0] * t * o * (one - o);
    dprev[0] = V(0.0f);
    dprev[1] = dc * f;
  }
};
