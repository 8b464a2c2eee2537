// Sums of products over all rows of a piece, c += a^T b, which is what gradients of weights are. Blocks of rows are
// copied to where the tiles want them. Each element of c is summed row after row within a block and block after block,
// however many threads share the columns of a.

/// Sizes of the copies: all columns of a that are copied at once stay in the second-level cache, where the tiles read
/// them again for every two vectors of b.
template <class Real>
struct TransposedBlocks {
  static constexpr Index width = 2 * Lanes<Real>::lanes;
  static constexpr int tile = MaxStridedRows<Real, 2>();
  static constexpr Index rows = kTransposedRows;
  /// Room for a row more: tiles a power of two apart would all begin in the same few places of the cache.
  static constexpr Index pitch = rows + 1;
  static constexpr Index columns = 384 / tile * tile;
};

/// sums += row, of columns [begin, end).
template <class Real>
HWY_INLINE void AddRow(const Real* row, Index begin, Index end, Real* sums) {
  using L = Lanes<Real>;
  for (Index c = begin; c < end; c += L::lanes) {
    const Index count = std::min<Index>(L::lanes, end - c);
    L::store(L::load(sums + c, count) + L::load(row + c, count), sums + c, count);
  }
}

/// Columns [begin, end) of `rows` rows of a as tiles [pitch, columns of the tile], one after the other; and adds them
/// to the sums while they are at hand. Rows lie far apart, so those to come are asked for.
template <class Real>
void PackTransposed(const TransposedProduct<Real>& job, Index first_row, Index rows, Index begin, Index end,
                    Real* packed) {
  using Blocks = TransposedBlocks<Real>;
  for (Index k = 0; k < rows; ++k) {
    const Real* row = job.a + (first_row + k) * job.a_stride;
    const Index ahead = std::min<Index>(2, rows - 1 - k) * job.a_stride;
    ForEachTile<Blocks::tile>(begin, end, [&](auto columns, Index first) HWY_ATTR {
      constexpr int count = decltype(columns)::value;
      __builtin_prefetch(row + ahead + first);
      std::memcpy(packed + (first - begin) * Blocks::pitch + k * count, row + first, count * sizeof(Real));
    });
    for (Real* sums : job.sums) {
      if (sums != nullptr) AddRow(row, begin, end, sums);
    }
  }
}

/// `rows` rows of b as panels [ceil(columns / 2L), pitch, 2L], what is added is zero. Returns their end.
template <class Real>
Real* PackFactor(const TransposedFactor<Real>& b, Index first_row, Index rows, Real* packed) {
  using L = Lanes<Real>;
  using Blocks = TransposedBlocks<Real>;
  constexpr Index panel = Blocks::pitch * Blocks::width;
  if (b.columns == 0) return packed;
  for (Index k = 0; k < rows; ++k) {
    const Real* from = b.row[first_row + k] + b.offset;
    Real* to = packed + k * Blocks::width;
    for (Index n = 0; n < b.columns; n += Blocks::width, to += panel) {
      for (Index v = 0; v < Blocks::width; v += L::lanes) {
        const Index count = std::clamp<Index>(b.columns - n - v, 0, L::lanes);
        L::store(count > 0 ? L::load(from + n + v, count) : typename L::V(0), to + v);
      }
    }
  }
  return packed + (b.columns + Blocks::width - 1) / Blocks::width * panel;
}

/// Adds the products of rows [first_row, first_row + rows) to the results of columns [begin, end) of a, at most as many
/// as are copied at once.
template <class Real>
void AddTransposedBlock(const TransposedProduct<Real>& job, Index first_row, Index rows, Index begin, Index end,
                        Real* packed_a, const Real* packed_b) {
  using Blocks = TransposedBlocks<Real>;
  PackTransposed(job, first_row, rows, begin, end, packed_a);
  for (const TransposedFactor<Real>& b : job.factors) {
    for (Index n = 0; n < b.columns; n += Blocks::width, packed_b += Blocks::pitch * Blocks::width) {
      ForEachTile<Blocks::tile>(begin, end, [&](auto columns, Index first) HWY_ATTR {
        constexpr int count = decltype(columns)::value;
        TransposedTile<Real, count>(rows, count, b.columns - n, packed_a + (first - begin) * Blocks::pitch, count,
                                    packed_b, b.c + (first - b.first) * b.c_stride + n, b.c_stride);
      });
    }
  }
}

template <class Real>
void AddTransposed(const TransposedProduct<Real>& job, Index begin, Index end, Real* scratch) {
  using Blocks = TransposedBlocks<Real>;
  const Index row_blocks = (job.rows + Blocks::rows - 1) / Blocks::rows;
  const Index parts = (end - begin + Blocks::columns - 1) / Blocks::columns;
  const Index share = parts == 0 ? 0 : (end - begin + parts - 1) / parts;
  const Index columns = (share + Blocks::tile - 1) / Blocks::tile * Blocks::tile;
  Real* const packed_a = scratch;
  Real* const packed_b = scratch + Blocks::pitch * Blocks::columns;
  for (Index block = 0; block < row_blocks; ++block) {
    const Index first = job.rows * block / row_blocks, rows = job.rows * (block + 1) / row_blocks - first;
    Real* packed = packed_b;
    for (const TransposedFactor<Real>& b : job.factors) packed = PackFactor(b, first, rows, packed);
    for (Index m = begin; m < end; m += columns) {
      AddTransposedBlock(job, first, rows, m, std::min(m + columns, end), packed_a, packed_b);
    }
  }
}

/// Room for the copies, for factors of so many columns.
template <class Real>
Index TransposedScratch(Index first_columns, Index second_columns) {
  using Blocks = TransposedBlocks<Real>;
  const auto padded = [](Index n) { return (n + Blocks::width - 1) / Blocks::width * Blocks::width; };
  return Blocks::pitch * (Blocks::columns + padded(first_columns) + padded(second_columns));
}
