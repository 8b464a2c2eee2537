// Products of floats by AMX. A float is split into three numbers of bfloat16, exactly: its first eight bits, the eight
// behind them and the rest, each to the nearest. Of the nine products of two floats' parts the six largest are made and
// summed in floats; what is left out is below 2^-23 of the product. Infinities and what is beyond 3.38e38 become NaN.
//
// A tile holds 16 lines by 32 inputs, of which inputs k and k + 16 lie side by side; lines are rows of a, or columns of
// b. A tile of a has a line in each of its 16 rows, one of b a line in each of its 16 columns. The tiles of the three
// parts lie one after the other, and each begins at a cache line: where its rows lie across two, reading it takes six
// times as long.

constexpr Index kTileLines = 16, kTileInputs = 32;
constexpr int kParts = 3;
/// Words of 32 bits, two inputs each.
constexpr Index kTileWords = kTileLines * kTileInputs / 2, kSplitWords = kParts * kTileWords;

constexpr Index TilesOf(Index count, Index of_tile) { return (count + of_tile - 1) / of_tile; }

template <class Word>
HWY_INLINE Word* AtCacheLine(Word* memory) {
  return reinterpret_cast<Word*>((reinterpret_cast<std::uintptr_t>(memory) + 63) / 64 * 64);
}

using SplitBits = hn::Vec<hn::RebindToUnsigned<Simd::Tag>>;

/// The parts in the upper halves of the words; the lower halves of the first two are zero.
HWY_INLINE void Split(Simd x, SplitBits (&part)[kParts]) {
  const Simd::Tag d;
  const hn::RebindToUnsigned<Simd::Tag> du;
  const auto half = hn::Set(du, 0x8000u), upper = hn::Set(du, 0xFFFF0000u);
  auto rest = x.raw;
  for (int p = 0; p + 1 < kParts; ++p) {
    part[p] = hn::And(hn::Add(hn::BitCast(du, rest), half), upper);
    rest = hn::Sub(rest, hn::BitCast(d, part[p]));
  }
  part[kParts - 1] = hn::BitCast(du, rest);
}

/// What PackSplit() is to make of sixteen vectors and sixteen more: they are the rows of the tile, or its columns.
enum class TileRows { as_loaded, turned };

/// A tile of each part: load(j) is a vector of inputs, or of lines, whose partner 16 inputs on is load(j + 16).
template <TileRows rows, class Load>
HWY_INLINE void PackSplit(const Load& load, std::uint32_t* tile) {
  const hn::RebindToUnsigned<Simd::Tag> du;
  const auto upper = hn::Set(du, 0xFFFF0000u);
  for (Index j = 0; j < kTileLines; ++j) {
    SplitBits low[kParts], high[kParts];
    Split(load(j), low);
    Split(load(j + kTileLines), high);
    for (int p = 0; p < kParts; ++p) {
      hn::Store(hn::Or(hn::ShiftRight<16>(low[p]), hn::And(high[p], upper)), du,
                tile + p * kTileWords + j * Simd::lanes);
    }
  }
  if constexpr (rows == TileRows::turned) {
    for (int p = 0; p < kParts; ++p, tile += kTileWords) {
      Simd row[Simd::lanes];
      for (Index j = 0; j < Simd::lanes; ++j) row[j] = hn::BitCast(Simd::Tag(), hn::Load(du, tile + j * Simd::lanes));
      Transpose(row);
      for (Index j = 0; j < Simd::lanes; ++j) hn::Store(hn::BitCast(du, row[j].raw), du, tile + j * Simd::lanes);
    }
  }
}

/// Of a vector of which `there` numbers exist, the others zero.
HWY_INLINE Simd LoadThere(const float* from, Index there) {
  if (there >= Simd::lanes) return Lanes<float>::load(from);
  return there > 0 ? Lanes<float>::load(from, there) : Simd(0);
}

/// Tiles [ceil(lines / 16), ceil(inputs / 32)] of lines that lie in memory input by input, line_at(i).
template <TileRows rows, class LineAt>
void PackLines(Index lines, Index inputs, const LineAt& line_at, std::uint32_t* tiles) {
  for (Index line = 0; line < lines; line += kTileLines) {
    for (Index k = 0; k < inputs; k += kTileInputs, tiles += kSplitWords) {
      const auto load = [&](Index j) HWY_ATTR {
        const Index i = line + j % kTileLines, first = k + j / kTileLines * kTileLines;
        return i < lines ? LoadThere(line_at(i) + first, inputs - first) : Simd(0);
      };
      PackSplit<rows>(load, tiles);
    }
  }
}

/// The same of inputs that lie in memory line by line, input_at(k).
template <TileRows rows, class InputAt>
void PackInputs(Index lines, Index inputs, const InputAt& input_at, std::uint32_t* tiles) {
  for (Index line = 0; line < lines; line += kTileLines) {
    for (Index k = 0; k < inputs; k += kTileInputs, tiles += kSplitWords) {
      const auto load = [&](Index j) HWY_ATTR {
        return k + j < inputs ? LoadThere(input_at(k + j) + line, lines - line) : Simd(0);
      };
      PackSplit<rows>(load, tiles);
    }
  }
}

/// What the tiles of the processor are, for as long as this exists: 0 to 3 sums, 4 and 5 rows of a, 6 and 7 columns of
/// b.
class SplitTiles {
 public:
  HWY_INLINE SplitTiles() {
    TileShapes shapes;
    for (int tile = 0; tile < 8; ++tile) {
      shapes.row_bytes[tile] = 64;
      shapes.rows[tile] = kTileLines;
    }
    asm volatile("ldtilecfg (%0)" : : "r"(&shapes) : "memory");
  }
  HWY_INLINE ~SplitTiles() { asm volatile("tilerelease"); }
  SplitTiles(const SplitTiles&) = delete;
  SplitTiles& operator=(const SplitTiles&) = delete;
};

/// Sums of up to two tiles of lines of a by two of b, each 16 rows of 16 floats.
struct alignas(64) SplitSums {
  float of[2][2][kTileLines][kTileLines];
};

/// Loads part `part` of `count` neighbouring lines into tiles from `tile` on; `pitch` words from one's tiles to the
/// next's.
template <int tile, int count>
HWY_INLINE void LoadPart(const std::uint32_t* tiles, Index pitch, int part) {
  LoadTile<tile>(tiles + part * kTileWords, 64);
  if constexpr (count == 2) LoadTile<tile + 1>(tiles + pitch + part * kTileWords, 64);
}

template <int rows, int columns>
HWY_INLINE void MultiplyPart() {
  Unroll<rows>([](auto row) HWY_ATTR {
    Unroll<columns>([](auto column) HWY_ATTR {
      constexpr int r = decltype(row)::value, c = decltype(column)::value;
      MultiplyTile<2 * r + c, 4 + r, 6 + c>();
    });
  });
}

/// sums = a b over `tiles` tiles of inputs. The smallest products come first, in an order that keeps one factor of the
/// last product where it is.
template <int rows, int columns>
HWY_INLINE void MultiplySplit(Index tiles, const std::uint32_t* a, Index a_pitch, const std::uint32_t* b, Index b_pitch,
                              SplitSums& sums) {
  Unroll<rows>([](auto row) HWY_ATTR {
    Unroll<columns>([](auto column) HWY_ATTR { ZeroTile<2 * decltype(row)::value + decltype(column)::value>(); });
  });
  for (Index k = 0; k < tiles; ++k, a += kSplitWords, b += kSplitWords) {
    LoadPart<4, rows>(a, a_pitch, 0);
    LoadPart<6, columns>(b, b_pitch, 2);
    MultiplyPart<rows, columns>();
    LoadPart<6, columns>(b, b_pitch, 1);
    MultiplyPart<rows, columns>();
    LoadPart<4, rows>(a, a_pitch, 1);
    MultiplyPart<rows, columns>();
    LoadPart<6, columns>(b, b_pitch, 0);
    MultiplyPart<rows, columns>();
    LoadPart<4, rows>(a, a_pitch, 2);
    MultiplyPart<rows, columns>();
    LoadPart<4, rows>(a, a_pitch, 0);
    MultiplyPart<rows, columns>();
  }
  Unroll<rows>([&](auto row) HWY_ATTR {
    Unroll<columns>([&](auto column) HWY_ATTR {
      constexpr int r = decltype(row)::value, c = decltype(column)::value;
      StoreTile<2 * r + c>(sums.of[r][c], 64);
    });
  });
}

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
      if (two_rows && two_columns) MultiplySplit<2, 2>(tiles, a_tiles, pitch, b_tiles, pitch, sums);
      if (two_rows && !two_columns) MultiplySplit<2, 1>(tiles, a_tiles, pitch, b_tiles, pitch, sums);
      if (!two_rows && two_columns) MultiplySplit<1, 2>(tiles, a_tiles, pitch, b_tiles, pitch, sums);
      if (!two_rows && !two_columns) MultiplySplit<1, 1>(tiles, a_tiles, pitch, b_tiles, pitch, sums);
      for (int r = 0; r <= static_cast<int>(two_rows); ++r) {
        for (int c = 0; c <= static_cast<int>(two_columns); ++c) {
          take(row + r * kTileLines, column + c * kTileLines, sums.of[r][c]);
        }
      }
    }
  }
}

/// c += a^T b: what kernels.h calls add_transposed.
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
        const auto line_at = [&](Index i) { return job.a + (first + i) * job.a_stride + k; };
        PackLines<TileRows::as_loaded>(there, count, line_at, packed);
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
          lines, count, [&](Index i) { return from + i * line_stride; }, tiles);
    } else {
      PackInputs<of_inputs>(
          lines, count, [&](Index k) { return from + k * input_stride; }, tiles);
    }
  }
};
