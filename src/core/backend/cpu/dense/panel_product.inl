// Rows times a matrix that was packed beforehand, c = a b: b [K, N] as panels [ceil(N / 2L), K, 2L], what is added is
// zero.

template <class Real>
std::size_t ProductPanels(Index k_count, Index n) {
  constexpr Index width = 2 * Lanes<Real>::lanes;
  return static_cast<std::size_t>((n + width - 1) / width * width * k_count);
}

/// Row k of b is row_of(k), [N], or zero where that is null.
template <class Real, class RowOf>
void FillProductPanels(Index k_count, Index n, Real* packed, const RowOf& row_of) {
  constexpr Index width = 2 * Lanes<Real>::lanes;
  for (Index first = 0; first < n; first += width) {
    for (Index k = 0; k < k_count; ++k, packed += width) {
      const Real* row = row_of(k);
      const Index count = row == nullptr ? 0 : std::min(width, n - first);
      if (count > 0) std::copy_n(row + first, count, packed);
      std::fill_n(packed + count, width - count, Real(0));
    }
  }
}

template <class Real>
void PackProductPanels(Index k_count, Index n, const Real* b, Index b_stride, Real* packed) {
  FillProductPanels(k_count, n, packed, [&](Index k) { return b + k * b_stride; });
}

template <class Real, int rows>
HWY_INLINE void PanelProductTile(const PanelProduct<Real>& job, Index first_row, Index column, const Real* panel) {
  using L = Lanes<Real>;
  using V = typename L::V;
  V acc[rows][2];
  for (int m = 0; m < rows; ++m) acc[m][0] = acc[m][1] = V(0);
  const Real* a = job.a + first_row * job.a_stride;
  for (Index block = 0; block < job.blocks; ++block, a += job.block_stride, panel += job.inner * 2 * L::lanes) {
    AccumulateRows<Real, rows, 2>(a, job.a_stride, job.inner, panel, acc);
  }
  for (int m = 0; m < rows; ++m) {
    for (int w = 0; w < 2; ++w) {
      const Index at = column + w * L::lanes, count = std::min<Index>(L::lanes, job.columns - at);
      if (count > 0) L::store(acc[m][w], job.c_row[first_row + m] + at, count);
    }
  }
}

template <class Real>
void RowsTimesPanels(const PanelProduct<Real>& job, Index begin, Index end) {
  constexpr Index width = 2 * Lanes<Real>::lanes;
  for (Index column = 0; column < job.columns; column += width) {
    const Real* panel = job.panels + column * job.blocks * job.inner;
    ForEachTile<MaxStridedRows<Real, 2>()>(begin, end, [&](auto rows, Index first) HWY_ATTR {
      PanelProductTile<Real, decltype(rows)::value>(job, first, column, panel);
    });
  }
}
