// Products by AMX: C += A B with C 16 rows x 16 units of floats, A 16 rows x 32 inputs, B 32 inputs x 16 units, which
// is how panels of Bf16Tile lie in memory. A single row would leave tiles empty, and loading those of the weights would
// cost more than multiplying: it is multiplied as for panels of Bf16Product. Tiles sum even and odd inputs apart, so a
// row's bits then depend on the other rows, and exact mode goes without tiles.

constexpr Index kTileRows = 16;

#include "backend/cpu/product/amx_instructions.inl"

/// Tiles 0 to 3 are sums, 4 and 5 rows of operands, 6 and 7 weights.
template <>
class PanelUse<Bf16Tile> {
 public:
  PanelUse() = default;
  HWY_INLINE void set_rows(Index rows) {
    TileShapes shapes;
    for (int tile = 0; tile < 8; ++tile) {
      shapes.row_bytes[tile] = 64;
      shapes.rows[tile] = static_cast<std::uint8_t>(tile < 6 ? std::min(rows, kTileRows) : kTileRows);
    }
    SetTiles(shapes);
  }
  HWY_INLINE ~PanelUse() { ReleaseTiles(); }
  PanelUse(const PanelUse&) = delete;
  PanelUse& operator=(const PanelUse&) = delete;
};

template <int count, class Body>
HWY_INLINE void Unroll(const Body& body) {
  [&]<int... i>(std::integer_sequence<int, i...>) HWY_ATTR { (body(std::integral_constant<int, i>()), ...); }
  (std::make_integer_sequence<int, count>());
}

/// Up to 16 rows, or 32 in two tiles, of operands by a panel.
struct TileOperands {
  const std::uint16_t* rows;  // [rows, PanelInputs(inputs)], `stride` apart
  Index stride;
  Index inputs;
};

/// sum[v] = start[v] + rows x panel for 16 rows, in one tile of operands. Rows of sum[v] lie `sum_stride` floats apart.
template <int vectors>
HWY_INLINE void MultiplyOneTile(const TileOperands& a, const Bf16Tile* panel, const Simd* start,
                                float* const (&sum)[vectors], Index sum_stride) {
  static_assert(vectors <= 4);
  constexpr Index row = 2 * vectors * Simd::lanes;
  Unroll<vectors>([&](auto v) HWY_ATTR { LoadTile<v>(start + v, 0); });
  for (Index k = 0; k < a.inputs; k += 32, panel += 16 * row) {
    LoadTile<4>(a.rows + k, a.stride * 2);
    Unroll<vectors>([&](auto v) HWY_ATTR {
      LoadTile<6 + v % 2>(panel + 2 * v * Simd::lanes, row * 2);
      MultiplyTile<v, 4, 6 + v % 2>();
    });
  }
  Unroll<vectors>([&](auto v) HWY_ATTR { StoreTile<v>(sum[v], sum_stride * 4); });
}

/// sum[v] = start[v] + rows x panel for 32 rows: two tiles of operands by two of weights, each loaded once for two
/// products. Rows of sum[v] lie `sum_stride` floats apart.
template <int vectors>
HWY_INLINE void MultiplyTileRows(const TileOperands& a, const Bf16Tile* panel, const Simd* start,
                                 float* const (&sum)[vectors], Index sum_stride) {
  constexpr Index row = 2 * vectors * Simd::lanes;
  Unroll<(vectors + 1) / 2>([&](auto pair) HWY_ATTR {
    constexpr int first = 2 * decltype(pair)::value, count = std::min(2, vectors - first);
    Unroll<count>([&](auto v) HWY_ATTR {
      LoadTile<2 * v>(start + first + v, 0);
      LoadTile<2 * v + 1>(start + first + v, 0);
    });
    const Bf16Tile* weights = panel + 2 * first * Simd::lanes;
    for (Index k = 0; k < a.inputs; k += 32, weights += 16 * row) {
      LoadTile<4>(a.rows + k, a.stride * 2);
      LoadTile<5>(a.rows + kTileRows * a.stride + k, a.stride * 2);
      Unroll<count>([&](auto v) HWY_ATTR {
        LoadTile<6 + v>(weights + 2 * v * Simd::lanes, row * 2);
        MultiplyTile<2 * v, 4, 6 + v>();
        MultiplyTile<2 * v + 1, 5, 6 + v>();
      });
    }
    Unroll<count>([&](auto v) HWY_ATTR {
      StoreTile<2 * v>(sum[first + v], sum_stride * 4);
      StoreTile<2 * v + 1>(sum[first + v] + kTileRows * sum_stride, sum_stride * 4);
    });
  });
}

/// sums [rows][vectors] = start [vectors] + rows x panel for the first 32 rows, in whole tiles: what lies behind the
/// rows is read, and written to the sums, too. Rows of sums lie `sum_stride` vectors apart.
template <int vectors>
HWY_INLINE void MultiplyWholeTiles(Index rows, const TileOperands& a, const Bf16Tile* panel, const Simd* start,
                                   Simd* sums, Index sum_stride) {
  float* sum[vectors];
  for (int v = 0; v < vectors; ++v) sum[v] = reinterpret_cast<float*>(sums + v);
  if (rows <= kTileRows) return MultiplyOneTile<vectors>(a, panel, start, sum, sum_stride * Simd::lanes);
  MultiplyTileRows<vectors>(a, panel, start, sum, sum_stride * Simd::lanes);
}

/// Sums of as many rows as there is room for; those beyond `rows` hold what lay behind the operands.
template <int vectors>
struct TileSums {
  alignas(64) Simd sum[2 * kTileRows][vectors];

  HWY_INLINE void multiply(Index rows, const TileOperands& a, const Bf16Tile* panel, const Simd* start) {
    MultiplyWholeTiles<vectors>(rows, a, panel, start, sum[0], vectors);
  }
};
