// Fp32 GEMMs by AMX, from the tiles of amx_floats.inl.

/// Lines of a by lines of b that are packed, `inputs` of each; calls take(first row, first column, sums [16][16]) for
/// each tile of the product. Sums of an element are in the same order wherever it lies.
template <class Take>
HWY_INLINE void ForEachSplitTile(Index rows, Index columns, Index inputs, const std::uint32_t* a,
                                 const std::uint32_t* b, const Take& take) {
  const Index tiles = TilesOf(inputs, kTileInputs), pitch = tiles * kSplitWords;
  SplitSums sums;
  for (Index column = 0; column < columns; column += 2 * kTileLines) {
    const std::uint32_t* const b_tiles = b + column / kTileLines * pitch;
    const bool two_columns = columns - column > kTileLines;
    for (Index row = 0; row < rows; row += 2 * kTileLines) {
      const std::uint32_t* const a_tiles = a + row / kTileLines * pitch;
      const bool two_rows = rows - row > kTileLines;
      if (two_rows && two_columns) MultiplySplitRows<2>(tiles, a_tiles, pitch, b_tiles, pitch, sums);
      if (two_rows && !two_columns) MultiplySplitRows<1>(tiles, a_tiles, pitch, b_tiles, pitch, sums);
      if (!two_rows && two_columns) MultiplySplitRow<2>(tiles, a_tiles, b_tiles, pitch, sums);
      if (!two_rows && !two_columns) MultiplySplitRow<1>(tiles, a_tiles, b_tiles, pitch, sums);
      for (int r = 0; r <= static_cast<int>(two_rows); ++r) {
        for (int c = 0; c <= static_cast<int>(two_columns); ++c) {
          take(row + r * kTileLines, column + c * kTileLines, sums.of[r][c]);
        }
      }
    }
  }
}

/// c += a^T b: what product_kernels.h calls add_transposed.
struct SplitTransposed {
  static constexpr Index rows = kTransposedRows, columns = 128;  // that are packed at a time; both fit the second level

  static constexpr Index words(Index lines) {
    return TilesOf(lines, kTileLines) * TilesOf(rows, kTileInputs) * kSplitWords;
  }

  static Index scratch(Index first_columns, Index second_columns) {
    return kTileLines + words(columns) + words(first_columns) + words(second_columns);
  }

  static void add(const TransposedProduct<float>& job, Index begin, Index end, float* scratch) {
    std::uint32_t* const packed_a = reinterpret_cast<std::uint32_t*>(AtCacheLine(scratch));
    std::uint32_t* const packed_b = packed_a + words(columns);
    const SplitTiles tiles;
    const Index blocks = TilesOf(job.rows, rows);
    for (Index block = 0; block < blocks; ++block) {
      const Index first = job.rows * block / blocks, count = job.rows * (block + 1) / blocks - first;
      std::uint32_t* packed = packed_b;
      for (const TransposedFactor<float>& b : job.factors) {
        const auto input_at = [&](Index k) { return b.row[first + k] + b.offset; };
        PackInputs<TileRows::as_loaded>(b.columns, count, input_at, packed);
        packed += words(b.columns);
      }
      for (Index m = begin; m < end; m += columns) {
        add_columns(job, first, count, m, std::min(m + columns, end), packed_a, packed_b);
      }
    }
  }

 private:
  static void add_columns(const TransposedProduct<float>& job, Index first, Index count, Index begin, Index end,
                          std::uint32_t* packed_a, const std::uint32_t* packed_b) {
    const auto input_at = [&](Index k) { return job.a + (first + k) * job.a_stride + begin; };
    PackInputs<TileRows::turned>(end - begin, count, input_at, packed_a);
    for (float* const sums : job.sums) {
      if (sums == nullptr) continue;
      for (Index k = 0; k < count; ++k) AddRow(job.a + (first + k) * job.a_stride, begin, end, sums);
    }
    for (const TransposedFactor<float>& b : job.factors) {
      const auto add_tile = [&](Index row, Index column, const float(&sums)[kTileLines][kTileLines]) HWY_ATTR {
        const Index there = std::min(kTileLines, b.columns - column);
        float* c = b.c + (begin + row - b.first) * b.c_stride + column;
        for (Index r = 0; r < std::min(kTileLines, end - begin - row); ++r, c += b.c_stride) {
          Lanes<float>::store(LoadThere(c, there) + Lanes<float>::load(sums[r]), c, there);
        }
      };
      ForEachSplitTile(end - begin, b.columns, count, packed_a, packed_b, add_tile);
      packed_b += words(b.columns);
    }
  }
};

/// Rows times a matrix that was packed beforehand: tiles [K in blocks][N][inputs of a block].
struct SplitPanels {
  static constexpr Index rows = 128, inputs = 256;  // that are packed at a time

  static std::size_t size(Index k_count, Index n) {
    return static_cast<std::size_t>(kTileLines + TilesOf(n, kTileLines) * TilesOf(k_count, kTileInputs) * kSplitWords);
  }

  static void pack(Index k_count, Index n, const float* b, Index b_stride, float* packed) {
    std::uint32_t* tiles = reinterpret_cast<std::uint32_t*>(AtCacheLine(packed));
    for (Index k = 0; k < k_count; k += inputs) {
      const Index count = std::min(inputs, k_count - k);
      PackInputs<TileRows::as_loaded>(
          n, count, [&](Index i) { return b + (k + i) * b_stride; }, tiles);
      tiles += TilesOf(n, kTileLines) * TilesOf(count, kTileInputs) * kSplitWords;
    }
  }

  static void multiply(const PanelProduct<float>& job, Index begin, Index end) {
    alignas(64) std::uint32_t packed[rows / kTileLines * (inputs / kTileInputs) * kSplitWords];
    const SplitTiles tiles;
    const std::uint32_t* panels = reinterpret_cast<const std::uint32_t*>(AtCacheLine(job.panels));
    for (Index k = 0; k < job.inner; k += inputs) {
      const Index count = std::min(inputs, job.inner - k);
      for (Index first = begin; first < end; first += rows) {
        const Index there = std::min(rows, end - first);
        const auto at = [&](Index i, Index input) { return job.a + (first + i) * job.a_stride + k + input; };
        PackLines<TileRows::as_loaded>(there, count, at, packed);
        const auto take = [&](Index row, Index column, const float(&sums)[kTileLines][kTileLines]) HWY_ATTR {
          const Index left = std::min(kTileLines, job.columns - column);
          for (Index r = 0; r < std::min(kTileLines, there - row); ++r) {
            float* const c = job.c_row[first + row + r] + column;
            const Simd sum = Lanes<float>::load(sums[r]);
            Lanes<float>::store(k == 0 ? sum : LoadThere(c, left) + sum, c, left);
          }
        };
        ForEachSplitTile(there, job.columns, count, packed, panels, take);
      }
      panels += TilesOf(job.columns, kTileLines) * TilesOf(count, kTileInputs) * kSplitWords;
    }
  }
};

/// c = a b + beta c, in whichever order a and b lie.
struct SplitMatrices {
  static constexpr Index rows = 128, columns = 512, inputs = 256;  // that are packed at a time

  static constexpr Index words(Index lines) { return lines / kTileLines * (inputs / kTileInputs) * kSplitWords; }

  static void multiply(const MatrixProduct<float>& job, Index row_begin, Index row_end, Index column_begin,
                       Index column_end) {
    static thread_local AlignedVector<std::uint32_t> packed(words(rows) + words(columns));
    std::uint32_t* const packed_a = packed.data();
    std::uint32_t* const packed_b = packed_a + words(rows);
    const SplitTiles tiles;
    for (Index column = column_begin; column < column_end; column += columns) {
      const Index n = std::min(columns, column_end - column);
      for (Index k = 0; k < job.k; k += inputs) {
        const Index count = std::min(inputs, job.k - k);
        pack<TileRows::turned, TileRows::as_loaded>(n, count, job.b_row, job.b_column,
                                                    job.b + k * job.b_row + column * job.b_column, packed_b);
        for (Index row = row_begin; row < row_end; row += rows) {
          const Index m = std::min(rows, row_end - row);
          pack<TileRows::as_loaded, TileRows::turned>(m, count, job.a_column, job.a_row,
                                                      job.a + row * job.a_row + k * job.a_column, packed_a);
          const bool adds = job.adds || k > 0;
          const auto take = [&](Index r, Index c, const float(&sums)[kTileLines][kTileLines]) HWY_ATTR {
            const Index left = std::min(kTileLines, n - c);
            float* to = job.c + (row + r) * job.c_stride + column + c;
            for (Index i = 0; i < std::min(kTileLines, m - r); ++i, to += job.c_stride) {
              const Simd sum = Lanes<float>::load(sums[i]);
              Lanes<float>::store(adds ? LoadThere(to, left) + sum : sum, to, left);
            }
          };
          ForEachSplitTile(m, n, count, packed_a, packed_b, take);
        }
      }
    }
  }

 private:
  /// Lines lie `line_stride` apart and their inputs `input_stride`, one of which is 1.
  template <TileRows of_lines, TileRows of_inputs>
  static void pack(Index lines, Index count, Index input_stride, Index line_stride, const float* from,
                   std::uint32_t* tiles) {
    if (input_stride == 1) {
      PackLines<of_lines>(
          lines, count, [&](Index i, Index k) { return from + i * line_stride + k; }, tiles);
    } else {
      PackInputs<of_inputs>(
          lines, count, [&](Index k) { return from + k * input_stride; }, tiles);
    }
  }
};
