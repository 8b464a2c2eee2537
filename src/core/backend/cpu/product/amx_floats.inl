// Fp32 GEMMs by AMX. A float is split into three numbers of bfloat16, exactly: its first eight bits, the eight
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
  // NOLINTNEXTLINE(performance-no-int-to-ptr): rounded up
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

/// Layout that PackSplit() makes of two times sixteen vectors: they are the rows of the tile, or its columns.
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

/// Loads a vector. Only its first `there` numbers exist in memory; the rest become zeros.
HWY_INLINE Simd LoadThere(const float* from, Index there) {
  if (there >= Simd::lanes) return Lanes<float>::load(from);
  return there > 0 ? Lanes<float>::load(from, there) : Simd(0);
}

/// Tiles [ceil(lines / 16), ceil(inputs / 32)] of lines whose inputs lie side by side, sixteen at a time: at(i, k) is
/// where those of line i from k on are.
template <TileRows rows, class At>
void PackLines(Index lines, Index inputs, const At& at, std::uint32_t* tiles) {
  for (Index line = 0; line < lines; line += kTileLines) {
    for (Index k = 0; k < inputs; k += kTileInputs, tiles += kSplitWords) {
      const auto load = [&](Index j) HWY_ATTR {
        const Index i = line + j % kTileLines, first = k + j / kTileLines * kTileLines;
        return i < lines && first < inputs ? LoadThere(at(i, first), inputs - first) : Simd(0);
      };
      PackSplit<rows>(load, tiles);
    }
  }
}

/// Packs inputs that lie in memory line by line, input_at(k).
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

/// Configuration of the processor's tiles while the object lives: 0 to 3 sums, 4 and 5 rows of a, 6 and 7 columns of b.
class SplitTiles {
 public:
  SplitTiles() {
    TileShapes shapes;
    for (int tile = 0; tile < 8; ++tile) {
      shapes.row_bytes[tile] = 64;
      shapes.rows[tile] = kTileLines;
    }
    SetTiles(shapes);
  }
  ~SplitTiles() { ReleaseTiles(); }
  SplitTiles(const SplitTiles&) = delete;
  SplitTiles& operator=(const SplitTiles&) = delete;
};

/// The sums of up to two tiles of lines of a by two of b, each 16 rows of 16 floats.
struct alignas(64) SplitSums {
  float of[2][2][kTileLines][kTileLines];

  template <int tile>
  HWY_INLINE void store(int row, int column) {
    StoreTile<tile>(of[row][column], kTileLines * 4);
  }
};

/// Part `part` of lines, `pitch` words apart, into tiles from `tile` on.
template <int tile, int count>
HWY_INLINE void LoadPart(const std::uint32_t* tiles, Index pitch, int part) {
  LoadTile<tile>(tiles + part * kTileWords, 64);
  if constexpr (count == 2) LoadTile<tile + 1>(tiles + pitch + part * kTileWords, 64);
}

template <int columns>
HWY_INLINE void MultiplyPart() {
  Unroll<columns>([](auto column) HWY_ATTR {
    constexpr int c = decltype(column)::value;
    MultiplyTile<c, 4, 6 + c>();
    MultiplyTile<2 + c, 5, 6 + c>();
  });
}

/// sums = 32 lines of a by one or two tiles of lines of b, over `tiles` tiles of inputs. The smallest
/// products come first, in an order that keeps one factor of the last product where it is.
template <int columns>
HWY_INLINE void MultiplySplitRows(Index tiles, const std::uint32_t* a, Index a_pitch, const std::uint32_t* b,
                                  Index b_pitch, SplitSums& sums) {
  Unroll<columns>([&](auto column) HWY_ATTR {
    ZeroTile<decltype(column)::value>();
    ZeroTile<2 + decltype(column)::value>();
  });
  for (Index k = 0; k < tiles; ++k, a += kSplitWords, b += kSplitWords) {
    LoadPart<4, 2>(a, a_pitch, 0);
    LoadPart<6, columns>(b, b_pitch, 2);
    MultiplyPart<columns>();
    LoadPart<6, columns>(b, b_pitch, 1);
    MultiplyPart<columns>();
    LoadPart<4, 2>(a, a_pitch, 1);
    MultiplyPart<columns>();
    LoadPart<6, columns>(b, b_pitch, 0);
    MultiplyPart<columns>();
    LoadPart<4, 2>(a, a_pitch, 2);
    MultiplyPart<columns>();
    LoadPart<4, 2>(a, a_pitch, 0);
    MultiplyPart<columns>();
  }
  Unroll<columns>([&](auto column) HWY_ATTR {
    sums.store<decltype(column)::value>(0, column);
    sums.store<2 + decltype(column)::value>(1, column);
  });
}

/// Multiplies 16 lines of a by one or two tiles of lines of b: the parts of a stay where they are.
template <int columns>
HWY_INLINE void MultiplySplitRow(Index tiles, const std::uint32_t* a, const std::uint32_t* b, Index b_pitch,
                                 SplitSums& sums) {
  const auto load = [&](auto column, int part) HWY_ATTR { LoadTile<7>(b + column * b_pitch + part * kTileWords, 64); };
  Unroll<columns>([&](auto column) HWY_ATTR { ZeroTile<decltype(column)::value>(); });
  for (Index k = 0; k < tiles; ++k, a += kSplitWords, b += kSplitWords) {
    LoadPart<4, 1>(a, 0, 0);
    LoadPart<5, 1>(a, 0, 1);
    LoadPart<6, 1>(a, 0, 2);
    Unroll<columns>([&](auto column) HWY_ATTR {
      load(column, 2);
      MultiplyTile<decltype(column)::value, 4, 7>();
    });
    Unroll<columns>([&](auto column) HWY_ATTR {
      load(column, 1);
      MultiplyTile<decltype(column)::value, 4, 7>();
      MultiplyTile<decltype(column)::value, 5, 7>();
    });
    Unroll<columns>([&](auto column) HWY_ATTR {
      load(column, 0);
      MultiplyTile<decltype(column)::value, 5, 7>();
      MultiplyTile<decltype(column)::value, 6, 7>();
      MultiplyTile<decltype(column)::value, 4, 7>();
    });
  }
  Unroll<columns>([&](auto column) HWY_ATTR { sums.store<decltype(column)::value>(0, column); });
}
