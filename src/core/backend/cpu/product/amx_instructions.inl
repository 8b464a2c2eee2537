// The instructions of AMX for tiles of bfloat16 and of bytes. PENSTOCK_EMULATE_AMX replaces them by functions, so that
// a chip without AMX runs and tests the code around them.

struct TileShapes {
  std::uint8_t palette = 1, start_row = 0, reserved[14] = {};
  std::uint16_t row_bytes[16] = {};
  std::uint8_t rows[16] = {};
};
static_assert(sizeof(TileShapes) == 64);

#if PENSTOCK_EMULATE_AMX

/// Tiles that the instructions read and write: each thread has its own, as on a chip. A word is two inputs of 16 bits,
/// four bytes, or a sum.
struct EmulatedTiles {
  TileShapes shapes;
  alignas(64) std::uint32_t rows[8][16][16];
};

inline EmulatedTiles& Tiles() {
  static thread_local EmulatedTiles tiles;
  return tiles;
}

inline void SetTiles(const TileShapes& shapes) { Tiles() = {shapes, {}}; }

/// Later instructions find tiles without rows, where a chip would raise a fault.
inline void ReleaseTiles() { Tiles() = {}; }

template <int tile>
void LoadTile(const void* data, Index stride_bytes) {
  const TileShapes& shapes = Tiles().shapes;
  for (int row = 0; row < shapes.rows[tile]; ++row) {
    std::memcpy(Tiles().rows[tile][row], static_cast<const char*>(data) + row * stride_bytes, shapes.row_bytes[tile]);
  }
}
template <int tile>
void StoreTile(void* data, Index stride_bytes) {
  const TileShapes& shapes = Tiles().shapes;
  for (int row = 0; row < shapes.rows[tile]; ++row) {
    std::memcpy(static_cast<char*>(data) + row * stride_bytes, Tiles().rows[tile][row], shapes.row_bytes[tile]);
  }
}
template <int tile>
void ZeroTile() {
  std::memset(Tiles().rows[tile], 0, sizeof(Tiles().rows[tile]));
}

/// Sums even and odd inputs apart, as a chip does, and then adds both to what the tile holds.
template <int sum, int a, int b>
void MultiplyTile() {
  const Simd::Tag d;
  const hn::RebindToUnsigned<Simd::Tag> du;
  static_assert(Simd::lanes == 16);
  constexpr std::uint32_t upper = 0xFFFF0000u;
  const auto number = [](std::uint32_t bits) HWY_ATTR { return Simd(std::bit_cast<float>(bits)); };
  EmulatedTiles& tiles = Tiles();
  for (int m = 0; m < tiles.shapes.rows[sum]; ++m) {
    Simd even(0), odd(0);
    for (int k = 0; k < tiles.shapes.row_bytes[a] / 4; ++k) {
      const std::uint32_t word = tiles.rows[a][m][k];
      const auto column = hn::Load(du, tiles.rows[b][k]);
      even = MulAdd(number(word << 16), hn::BitCast(d, hn::ShiftLeft<16>(column)), even);
      odd = MulAdd(number(word & upper), hn::BitCast(d, hn::And(column, hn::Set(du, upper))), odd);
    }
    const auto before = hn::BitCast(d, hn::Load(du, tiles.rows[sum][m]));
    hn::Store(hn::BitCast(du, (Simd(before) + (even + odd)).raw), du, tiles.rows[sum][m]);
  }
}

/// Adds products of signed bytes of `a` with unsigned ones of `b`.
template <int sum, int a, int b>
void MultiplyByteTile() {
  EmulatedTiles& tiles = Tiles();
  for (int m = 0; m < tiles.shapes.rows[sum]; ++m) {
    for (int k = 0; k < tiles.shapes.row_bytes[a] / 4; ++k) {
      std::int8_t x[4];
      std::memcpy(x, &tiles.rows[a][m][k], sizeof(x));
      for (int n = 0; n < tiles.shapes.row_bytes[sum] / 4; ++n) {
        std::uint8_t w[4];
        std::memcpy(w, &tiles.rows[b][k][n], sizeof(w));
        for (int i = 0; i < 4; ++i) tiles.rows[sum][m][n] += static_cast<std::uint32_t>(x[i] * w[i]);
      }
    }
  }
}

#else

HWY_INLINE void SetTiles(const TileShapes& shapes) { asm volatile("ldtilecfg (%0)" : : "r"(&shapes) : "memory"); }
HWY_INLINE void ReleaseTiles() { asm volatile("tilerelease"); }

// The intrinsics want literal numbers of tiles and do not say that they read memory.
template <int tile>
HWY_INLINE void LoadTile(const void* data, Index stride_bytes) {
  asm volatile("tileloadd (%0,%1,1), %%tmm%c2" : : "r"(data), "r"(stride_bytes), "i"(tile) : "memory");
}
template <int tile>
HWY_INLINE void StoreTile(void* data, Index stride_bytes) {
  asm volatile("tilestored %%tmm%c2, (%0,%1,1)" : : "r"(data), "r"(stride_bytes), "i"(tile) : "memory");
}
template <int tile>
HWY_INLINE void ZeroTile() {
  asm volatile("tilezero %%tmm%c0" : : "i"(tile));
}
template <int sum, int a, int b>
HWY_INLINE void MultiplyTile() {
  asm volatile("tdpbf16ps %%tmm%c2, %%tmm%c1, %%tmm%c0" : : "i"(sum), "i"(a), "i"(b));
}
template <int sum, int a, int b>
HWY_INLINE void MultiplyByteTile() {
  asm volatile("tdpbsud %%tmm%c2, %%tmm%c1, %%tmm%c0" : : "i"(sum), "i"(a), "i"(b));
}

#endif
