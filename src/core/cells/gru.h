// Gated recurrent unit (Cho et al. 2014, arXiv:1406.1078), gates r, z, n as in PyTorch. h = (1 - z) n + z h.

/// Reset after the product, as in PyTorch and cuDNN: n = tanh(W_n x + r (R_n h)).
struct Gru {
  static constexpr const char* name = "gru";
  static constexpr const char* description = "gated recurrent unit, reset after the product (PyTorch, cuDNN)";
  static constexpr int gates = 3;
  static constexpr int states = 1;  // h
  static constexpr int saved = 4;   // r, z, n, R_n h
  static constexpr int keep_gate = 1;
  static constexpr int overwrite_gate = -1;
  static constexpr bool spread_memory = false;
  static constexpr bool has_kink = false;
  static constexpr int phases = 1;
  static constexpr bool split_gradients = true;  // r multiplies R h but not W x: their gradients differ
  static constexpr bool bounded = true;
  static constexpr bool scan = false;

  template <class V>
  static PENSTOCK_CELL void forward(const V (&wx)[3], const V (&rh)[3], const V (&prev)[1], V (&next)[1],
                                    V (&save)[4]) {
    const V r = Sigmoid(wx[0] + rh[0]);
    const V z = Sigmoid(wx[1] + rh[1]);
    const V n = Tanh(MulAdd(r, rh[2], wx[2]));
    next[0] = MulAdd(V(1.0f) - z, n, z * prev[0]);
    save[0] = r, save[1] = z, save[2] = n, save[3] = rh[2];
  }

  template <class V>
  static PENSTOCK_CELL void backward(const V (&save)[4], const V (&prev)[1], const V (&dnext)[1], V (&dwx)[3],
                                     V (&drh)[3], V (&dprev)[1]) {
    const V r = save[0], z = save[1], n = save[2];
    const V one(1.0f);
    const V dn = dnext[0] * (one - z) * (one - n * n);
    dwx[0] = drh[0] = dn * save[3] * r * (one - r);
    dwx[1] = drh[1] = dnext[0] * (prev[0] - n) * z * (one - z);
    dwx[2] = dn;
    drh[2] = dn * r;
    dprev[0] = dnext[0] * z;
  }
};

/// Reset before the product, as first published: n = tanh(W_n x + R_n (r h)). It is a separate cell because its
/// dataflow differs: the product for n needs r, and a step has two phases.
struct GruResetBefore {
  static constexpr const char* name = "gru-before";
  static constexpr const char* description = "gated recurrent unit, reset before the product (as first published)";
  static constexpr int gates = 3;
  static constexpr int states = 1;  // h
  static constexpr int saved = 3;   // r, z, n
  static constexpr int keep_gate = 1;
  static constexpr int overwrite_gate = -1;
  static constexpr bool spread_memory = false;
  static constexpr bool has_kink = false;
  static constexpr int phases = 2;
  static constexpr int first_gates = 2;  // r, z read R h; n reads R operand
  static constexpr bool split_gradients = false;
  static constexpr bool bounded = true;
  static constexpr bool scan = false;

  template <class V>
  static PENSTOCK_CELL void forward_first(const V (&wx)[3], const V (&rh)[3], const V (&prev)[1], V& operand,
                                          V (&save)[3]) {
    save[0] = Sigmoid(wx[0] + rh[0]);
    save[1] = Sigmoid(wx[1] + rh[1]);
    operand = save[0] * prev[0];
  }

  template <class V>
  static PENSTOCK_CELL void forward_second(const V (&wx)[3], const V (&rh)[3], const V (&prev)[1], V (&next)[1],
                                           V (&save)[3]) {
    const V z = save[1];
    const V n = save[2] = Tanh(wx[2] + rh[2]);
    next[0] = MulAdd(V(1.0f) - z, n, z * prev[0]);
  }

  template <class V>
  static PENSTOCK_CELL V operand(const V (&save)[3], const V (&prev)[1]) {
    return save[0] * prev[0];
  }

  /// Computes the gradients of n, which reads the operand r h, and of z.
  template <class V>
  static PENSTOCK_CELL void backward_second(const V (&save)[3], const V (&prev)[1], const V (&dnext)[1], V (&dwx)[3],
                                            V (&drh)[3], V (&dprev)[1]) {
    const V z = save[1], n = save[2];
    const V one(1.0f);
    dwx[1] = drh[1] = dnext[0] * (prev[0] - n) * z * (one - z);
    dwx[2] = drh[2] = dnext[0] * (one - z) * (one - n * n);
    dprev[0] = dnext[0] * z;
  }

  /// Computes the remaining gradients from that of the operand r h.
  template <class V>
  static PENSTOCK_CELL void backward_first(const V (&save)[3], const V (&prev)[1], V doperand, V (&dwx)[3], V (&drh)[3],
                                           V (&dprev)[1]) {
    const V r = save[0];
    dwx[0] = drh[0] = doperand * prev[0] * r * (V(1.0f) - r);
    dprev[0] = MulAdd(doperand, r, dprev[0]);
  }
};
