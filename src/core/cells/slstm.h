// sLSTM of xLSTM (Beck et al. 2024, arXiv:2405.04517): exponential input gate, normaliser n, stabiliser m; i, f, z, o.
//   m' = max(i, log sigmoid(f) + m);  i' = e^(i - m');  f' = e^(log sigmoid(f) + m - m')
//   c' = f' c + i' tanh(z);  n' = f' n + i';  h = sigmoid(o) c' / n'
// One of i' and f' is 1: starting from n = 0, n is never below 1 afterwards. n = 0 marks an empty state. Then m' = i
// and f' = 0, and nothing else of the previous state is read; the gradients of c, n and m before such a step are 0.
// (The code of xLSTM computes the same output, but keeps f' above 0 there. This gives c and n of the first state a
// gradient although no output depends on them. A learnt initial state must have n > 0.)

struct Slstm {
  static constexpr const char* name = "slstm";
  static constexpr const char* description = "sLSTM of xLSTM: exponential gating with normaliser and stabiliser";
  static constexpr int gates = 4;
  static constexpr int states = 4;  // h, c, n, m
  static constexpr int saved = 5;   // i', f', tanh(z), sigmoid(o), sigmoid(-f)
  static constexpr int keep_gate = 1;
  static constexpr int overwrite_gate = -1;
  static constexpr bool spread_memory = true;
  static constexpr bool has_kink = false;
  static constexpr int phases = 1;
  static constexpr bool split_gradients = false;
  static constexpr bool bounded = true;
  static constexpr bool scan = false;

  template <class V>
  static PENSTOCK_CELL void forward(const V (&wx)[4], const V (&rh)[4], const V (&prev)[4], V (&next)[4],
                                    V (&save)[5]) {
    const V input = wx[0] + rh[0];
    const V forget = wx[1] + rh[1];
    const V carried = prev[3] - Softplus(V(0.0f) - forget);
    const V m = SelectZero(prev[2], input, Max(input, carried));
    const V i = Exp(input - m);
    const V f = SelectZero(prev[2], V(0.0f), Exp(carried - m));
    const V z = Tanh(wx[2] + rh[2]);
    const V o = Sigmoid(wx[3] + rh[3]);
    next[1] = MulAdd(f, prev[1], i * z);
    next[2] = MulAdd(f, prev[2], i);
    next[3] = m;
    next[0] = o * next[1] / next[2];
    save[0] = i, save[1] = f, save[2] = z, save[3] = o, save[4] = Sigmoid(V(0.0f) - forget);
  }

  /// m is a state like the others and has a gradient. It flows through max to the larger side, in a tie to the input
  /// (then i' = 1 exactly).
  template <class V>
  static PENSTOCK_CELL void backward(const V (&save)[5], const V (&prev)[4], const V (&dnext)[4], V (&dwx)[4],
                                     V (&drh)[4], V (&dprev)[4]) {
    const V i = save[0], f = save[1], z = save[2], o = save[3];
    const V one(1.0f), zero(0.0f);
    const V c = MulAdd(f, prev[1], i * z);
    const V inverse = one / MulAdd(f, prev[2], i);
    const V ratio = c * inverse;
    const V dratio = dnext[0] * o;
    const V dc = MulAdd(dratio, inverse, dnext[1]);
    const V dn = dnext[2] - dratio * ratio * inverse;
    const V dinput = MulAdd(dc, z, dn) * i;
    const V dcarried = MulAdd(dc, prev[1], dn * prev[2]) * f;
    const V dm = dnext[3] - dinput - dcarried;
    const V input_won = i - one;
    const V dcarried_all = dcarried + SelectPositive(input_won, zero, dm);
    dwx[0] = drh[0] = dinput + SelectPositive(input_won, dm, zero);
    dwx[1] = drh[1] = dcarried_all * save[4];
    dwx[2] = drh[2] = dc * i * (one - z * z);
    dwx[3] = drh[3] = dnext[0] * ratio * o * (one - o);
    dprev[0] = zero;
    dprev[1] = dc * f;
    dprev[2] = dn * f;
    dprev[3] = dcarried_all;
  }
};
