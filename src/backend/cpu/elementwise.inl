// Loops between the matrix products.

/// y [n] = x [n].
inline void FromBf16(Index n, const std::uint16_t* x, float* y) {
  const hn::RebindToUnsigned<Simd::Tag> du;
  const hn::Rebind<std::uint16_t, Simd::Tag> halves;
  Index i = 0;
  for (; i + Simd::lanes <= n; i += Simd::lanes) {
    const auto bits = hn::ShiftLeft<16>(hn::PromoteTo(du, hn::LoadU(halves, x + i)));
    Lanes<float>::store(hn::BitCast(Simd::Tag(), bits), y + i);
  }
  for (; i < n; ++i) y[i] = std::bit_cast<float>(std::uint32_t{x[i]} << 16);
}

/// y [n] = x [n], to the nearest, ties to even.
inline void ToBf16(Index n, const float* x, std::uint16_t* y) {
  for (Index i = 0; i < n; i += Simd::lanes) {
    const Index count = std::min<Index>(Simd::lanes, n - i);
    StoreBf16(Lanes<float>::load(x + i, count), y + i, count);
  }
}

/// y [F] = silu(g) * v of a row gv [2F] that holds g, then v. silu(x) = x sigmoid(x).
template <class Real>
void SiluGate(Index inner, const Real* gv, Real* y) {
  using L = Lanes<Real>;
  for (Index i = 0; i < inner; i += L::lanes) {
    const Index count = std::min<Index>(L::lanes, inner - i);
    const auto g = L::load(gv + i, count);
    L::store(g * Sigmoid(g) * L::load(gv + inner + i, count), y + i, count);
  }
}

/// dgv [2F] from dy [F] and gv [2F]; dgv may be gv.
template <class Real>
void SiluGateBackward(Index inner, const Real* gv, const Real* dy, Real* dgv) {
  using L = Lanes<Real>;
  using V = typename L::V;
  for (Index i = 0; i < inner; i += L::lanes) {
    const Index count = std::min<Index>(L::lanes, inner - i);
    const V g = L::load(gv + i, count), v = L::load(gv + inner + i, count), d = L::load(dy + i, count);
    const V s = Sigmoid(g);
    const V silu = g * s;
    L::store(d * v * MulAdd(silu, V(1) - s, s), dgv + i, count);
    L::store(d * silu, dgv + inner + i, count);
  }
}

/// y [n] = e^(x - shift) unless y is null; returns their sum, whose order depends on n alone.
template <class Real>
Real Exponentials(Index n, Real shift, const Real* x, Real* y) {
  using L = Lanes<Real>;
  using V = typename L::V;
  V sum(0);
  Real tail = 0;
  for (Index i = 0; i < n; i += L::lanes) {
    const Index count = std::min<Index>(L::lanes, n - i);
    const V e = Exp(L::load(x + i, count) - V(shift));
    if (y != nullptr) L::store(e, y + i, count);
    if (count == L::lanes) {
      sum = sum + e;
    } else {
      Real values[L::lanes];
      L::store(e, values);
      for (Index lane = 0; lane < count; ++lane) tail += values[lane];
    }
  }
  return L::sum(sum) + tail;
}
