// Matrix products whose order of summation is fixed by K alone. Used in exact mode, for a handful of rows (a stream),
// and for double.

/// One tile of a * b^T: lanes run over k, and the lane sums are added up at the end.
template <class Real, int rows, int columns>
HWY_INLINE void RowsTile(Index k_count, const Real* a, Index a_stride, const Real* b, Index b_stride, Real beta,
                         Real* c, Index c_stride) {
  using L = Lanes<Real>;
  using V = typename L::V;
  V acc[rows][columns];
  for (int m = 0; m < rows; ++m) {
    for (int n = 0; n < columns; ++n) acc[m][n] = V(0);
  }
  const auto add = [&](Index k, Index count) HWY_ATTR {
    V bv[columns];
    for (int n = 0; n < columns; ++n) bv[n] = L::load(b + n * b_stride + k, count);
    for (int m = 0; m < rows; ++m) {
      const V av = L::load(a + m * a_stride + k, count);
      for (int n = 0; n < columns; ++n) acc[m][n] = MulAdd(av, bv[n], acc[m][n]);
    }
  };
  Index k = 0;
  for (; k + L::lanes <= k_count; k += L::lanes) add(k, L::lanes);
  if (k < k_count) add(k, k_count - k);
  for (int m = 0; m < rows; ++m) {
    for (int n = 0; n < columns; ++n) {
      Real& out = c[m * c_stride + n];
      out = L::sum(acc[m][n]) + (beta != 0 ? beta * out : Real(0));
    }
  }
}

template <class Real>
void RowsTimesRows(Index begin, Index end, Index n_count, Index k, const Real* a, Index a_stride, const Real* b,
                   Index b_stride, Real beta, Real* c, Index c_stride) {
  constexpr int tile = HWY_TARGET == HWY_AVX3 ? 4 : 2;
  const auto columns = [&](auto rows, Index m) HWY_ATTR {
    constexpr int r = decltype(rows)::value;
    Index n = 0;
    for (; n + tile <= n_count; n += tile) {
      RowsTile<Real, r, tile>(k, a + m * a_stride, a_stride, b + n * b_stride, b_stride, beta, c + m * c_stride + n,
                              c_stride);
    }
    for (; n < n_count; ++n) {
      RowsTile<Real, r, 1>(k, a + m * a_stride, a_stride, b + n * b_stride, b_stride, beta, c + m * c_stride + n,
                           c_stride);
    }
  };
  Index m = begin;
  for (; m + tile <= end; m += tile) columns(std::integral_constant<int, tile>(), m);
  for (; m < end; ++m) columns(std::integral_constant<int, 1>(), m);
}

/// One tile of op(a) * b: lanes run over the columns of b, k one after the other.
template <class Real, int rows, int vectors>
HWY_INLINE void ColumnsTile(Index k_count, Index n_left, const Real* a, Index a_row, Index a_col, const Real* b,
                            Index b_stride, Real beta, Real* c, Index c_stride) {
  using L = Lanes<Real>;
  using V = typename L::V;
  Index count[vectors];
  for (int v = 0; v < vectors; ++v) count[v] = std::min<Index>(L::lanes, n_left - v * L::lanes);
  V acc[rows][vectors];
  for (int m = 0; m < rows; ++m) {
    for (int v = 0; v < vectors; ++v) acc[m][v] = V(0);
  }
  for (Index k = 0; k < k_count; ++k) {
    V bv[vectors];
    for (int v = 0; v < vectors; ++v) bv[v] = L::load(b + k * b_stride + v * L::lanes, count[v]);
    for (int m = 0; m < rows; ++m) {
      const V x(a[m * a_row + k * a_col]);
      for (int v = 0; v < vectors; ++v) acc[m][v] = MulAdd(x, bv[v], acc[m][v]);
    }
  }
  for (int m = 0; m < rows; ++m) {
    for (int v = 0; v < vectors; ++v) {
      Real* out = c + m * c_stride + v * L::lanes;
      const V sum = beta != 0 ? MulAdd(V(beta), L::load(out, count[v]), acc[m][v]) : acc[m][v];
      L::store(sum, out, count[v]);
    }
  }
}

template <class Real>
void RowsTimesColumns(Index begin, Index end, Index n_count, Index k, const Real* a, Index a_row, Index a_col,
                      const Real* b, Index b_stride, Real beta, Real* c, Index c_stride) {
  constexpr int tile = 4;
  constexpr int vectors = HWY_TARGET == HWY_AVX3 ? 4 : 2;
  constexpr Index lanes = Lanes<Real>::lanes;
  const auto columns = [&](auto rows, Index m) HWY_ATTR {
    constexpr int r = decltype(rows)::value;
    const Real* a_m = a + m * a_row;
    Index n = 0;
    for (; n + vectors * lanes <= n_count; n += vectors * lanes) {
      ColumnsTile<Real, r, vectors>(k, n_count - n, a_m, a_row, a_col, b + n, b_stride, beta, c + m * c_stride + n,
                                    c_stride);
    }
    for (; n < n_count; n += lanes) {
      ColumnsTile<Real, r, 1>(k, n_count - n, a_m, a_row, a_col, b + n, b_stride, beta, c + m * c_stride + n, c_stride);
    }
  };
  Index m = begin;
  for (; m + tile <= end; m += tile) columns(std::integral_constant<int, tile>(), m);
  for (; m < end; ++m) columns(std::integral_constant<int, 1>(), m);
}
