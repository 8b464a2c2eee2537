// The tile of sums over rows that gradients of weights are made of.

/// Adds a^T b to a tile of c [columns of a, 2L], of which `m_left` rows and `n_left` columns exist: a [rows, columns]
/// with rows `a_stride` apart, b [rows, 2L].
template <class Real, int columns>
HWY_INLINE void TransposedTile(Index rows, Index m_left, Index n_left, const Real* a, Index a_stride, const Real* b,
                               Real* c, Index c_stride) {
  using L = Lanes<Real>;
  using V = typename L::V;
  V acc[columns][2];
  for (int m = 0; m < columns; ++m) {
    acc[m][0] = acc[m][1] = V(0);
    __builtin_prefetch(c + m * c_stride, 1);
    __builtin_prefetch(c + m * c_stride + L::lanes, 1);
  }
  for (Index k = 0; k < rows; ++k, a += a_stride, b += 2 * L::lanes) {
    const V b0 = L::load(b), b1 = L::load(b + L::lanes);
    for (int m = 0; m < columns; ++m) {
      const V x(a[m]);
      acc[m][0] = MulAdd(x, b0, acc[m][0]);
      acc[m][1] = MulAdd(x, b1, acc[m][1]);
    }
  }
  for (int m = 0; m < std::min<Index>(columns, m_left); ++m) {
    for (int w = 0; w < 2; ++w) {
      const Index count = std::min<Index>(L::lanes, n_left - w * L::lanes);
      if (count <= 0) break;
      Real* to = c + m * c_stride + w * L::lanes;
      L::store(L::load(to, count) + acc[m][w], to, count);
    }
  }
}
