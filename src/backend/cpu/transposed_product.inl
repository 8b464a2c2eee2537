// Sums of products over all rows of a piece, c += a^T b, which is what gradients of weights are. Blocks of rows are
// copied to where the tiles want them. Each element of c is summed row after row within a block and block after block,
// however many threads share the columns of a.

/// Sizes of the copies: two vectors of b and one tile's columns of a stay in the first-level cache, all columns of a
/// that are copied at once in the second.
template <class Real>
struct TransposedBlocks {
  static constexpr Index width = 2 * Lanes<Real>::lanes;
  static constexpr int tile = MaxStridedRows<Real, 2>();
  static constexpr Index rows = kTransposedRows;
  /// Room for a row more: tiles a power of two apart would all begin in the same few places of the cache.
  static constexpr Index pitch = rows + 1;
  static constexpr Index columns = 768 / tile * tile;
  static constexpr Index scratch = pitch * (columns + width);
};

/// Columns [begin, end) of `rows` rows of a as tiles [pitch, columns of the tile], one after the other.
template <class Real>
void PackTransposed(const TransposedProduct<Real>& job, Index first_row, Index rows, Index begin, Index end,
                    Real* packed) {
  using Blocks = TransposedBlocks<Real>;
  for (Index k = 0; k < rows; ++k) {
    const Real* row = job.a + (first_row + k) * job.a_stride;
    ForEachTile<Blocks::tile>(begin, end, [&](auto columns, Index first) HWY_ATTR {
      constexpr int count = decltype(columns)::value;
      std::memcpy(packed + (first - begin) * Blocks::pitch + k * count, row + first, count * sizeof(Real));
    });
  }
}

/// sums[c] += column c of `rows` rows of a, for columns [begin, end).
template <class Real>
void AddColumns(const TransposedProduct<Real>& job, Index first_row, Index rows, Index begin, Index end, Real* sums) {
  using L = Lanes<Real>;
  for (Index c = begin; c < end; c += L::lanes) {
    const Index count = std::min<Index>(L::lanes, end - c);
    const Real* column = job.a + first_row * job.a_stride + c;
    typename L::V sum = L::load(sums + c, count);
    for (Index k = 0; k < rows; ++k) sum = sum + L::load(column + k * job.a_stride, count);
    L::store(sum, sums + c, count);
  }
}

/// Columns [first, first + 2L) of `rows` rows of b as [rows, 2L]; what is added is zero.
template <class Real>
void PackColumns(const TransposedFactor<Real>& b, Index first_row, Index rows, Index first, Real* packed) {
  using L = Lanes<Real>;
  for (Index k = 0; k < rows; ++k) {
    const Real* from = b.row[first_row + k] + b.offset + first;
    for (Index v = 0; v < TransposedBlocks<Real>::width; v += L::lanes, packed += L::lanes) {
      const Index count = std::clamp<Index>(b.columns - first - v, 0, L::lanes);
      L::store(count > 0 ? L::load(from + v, count) : typename L::V(0), packed);
    }
  }
}

/// What rows [first_row, first_row + rows) add to what columns [begin, end) of a belong to, no more than are copied at
/// once.
template <class Real>
void AddTransposedBlock(const TransposedProduct<Real>& job, Index first_row, Index rows, Index begin, Index end,
                        Real* scratch) {
  using Blocks = TransposedBlocks<Real>;
  Real* const packed_a = scratch;
  Real* const packed_b = scratch + Blocks::pitch * Blocks::columns;
  PackTransposed(job, first_row, rows, begin, end, packed_a);
  for (Real* sums : job.sums) {
    if (sums != nullptr) AddColumns(job, first_row, rows, begin, end, sums);
  }
  for (const TransposedFactor<Real>& b : job.factors) {
    for (Index n = 0; n < b.columns; n += Blocks::width) {
      PackColumns(b, first_row, rows, n, packed_b);
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
  for (Index m = begin; m < end; m += columns) {
    for (Index block = 0; block < row_blocks; ++block) {
      const Index first = job.rows * block / row_blocks, rows = job.rows * (block + 1) / row_blocks - first;
      AddTransposedBlock(job, first, rows, m, std::min(m + columns, end), scratch);
    }
  }
}
