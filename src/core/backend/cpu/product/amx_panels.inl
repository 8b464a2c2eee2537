// Products by AMX: C += A B with C 16 rows x 16 units of sums in 32 bits, A 16 rows x 64 bytes of inputs, B as many
// inputs x 16 units, which is how panels of Bf16Tile and Int8Weight lie in memory. A single row would leave tiles
// empty, and loading those of the weights would cost more than multiplying: it is multiplied as for other panels.
//
// Bfloat16: tiles sum even and odd inputs apart, so a row's bits then depend on the other rows, and exact mode goes
// without tiles. Int8: sums are exact, so that tiles multiply the inputs that fill them, and vectors the rest.

constexpr Index kTileRows = 16;

#include "backend/cpu/product/amx_instructions.inl"

/// Tiles 0 to 3 are sums, 4 and 5 rows of operands, 6 and 7 weights.
template <Tiled Panel>
class PanelUse<Panel> {
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
template <class Panel>
struct TileOperands {
  const OperandOf<Panel>* rows;  // [rows, OperandInputs(inputs)], `stride` apart
  Index stride;
  Index inputs;

  template <int tile>
  HWY_INLINE void load(Index row, Index input) const {
    LoadTile<tile>(rows + row * stride + input, stride * static_cast<Index>(sizeof(OperandOf<Panel>)));
  }
};

/// Panels of `width` vectors of units each, one after the other; of a single one the size has no effect.
template <class Panel, int width>
struct TilePanels {
  const Panel* first;
  Index size = 0;

  static constexpr Index group = PanelTraits<Panel>::group, row = group * width * Simd::lanes;
  HWY_INLINE const Panel* panel_of(int vector) const { return first + vector / width * size; }
  HWY_INLINE const Panel* weights(int vector, Index input) const {
    return panel_of(vector) + input / group * row + vector % width * group * Simd::lanes;
  }
  template <int tile>
  HWY_INLINE void load(int vector, Index input) const {
    LoadTile<tile>(weights(vector, input), row * static_cast<Index>(sizeof(Panel)));
  }
};

/// Inputs of a tile, and of `inputs` those that whole tiles multiply.
template <class Panel>
constexpr Index kInputsOfTile = 64 / static_cast<Index>(sizeof(OperandOf<Panel>));
template <class Panel>
HWY_INLINE Index InputsOfTiles(Index inputs) {
  return Int8<Panel> ? inputs / kInputsOfTile<Panel> * kInputsOfTile<Panel> : inputs;
}

/// Sums begin with `start`; those of integers with zero.
template <int tile, class Panel>
HWY_INLINE void StartTile(const Simd* start) {
  if constexpr (Int8<Panel>) {
    ZeroTile<tile>();
  } else {
    LoadTile<tile>(start, 0);
  }
}

template <int sum, int a, int b, class Panel>
HWY_INLINE void MultiplyTileOf() {
  if constexpr (Int8<Panel>) {
    MultiplyByteTile<sum, a, b>();
  } else {
    MultiplyTile<sum, a, b>();
  }
}

/// sum[v] = start[v] + rows x panels for 16 rows, in one tile of operands. Rows of sum[v] lie `sum_stride` floats
/// apart.
template <int vectors, class Panel, int width>
HWY_INLINE void MultiplyOneTile(const TileOperands<Panel>& a, const TilePanels<Panel, width>& panels, const Simd* start,
                                float* const (&sum)[vectors], Index sum_stride) {
  static_assert(vectors <= 4);
  Unroll<vectors>([&](auto v) HWY_ATTR { StartTile<v, Panel>(start + v); });
  for (Index k = 0; k < InputsOfTiles<Panel>(a.inputs); k += kInputsOfTile<Panel>) {
    a.template load<4>(0, k);
    Unroll<vectors>([&](auto v) HWY_ATTR {
      panels.template load<6 + v % 2>(v, k);
      MultiplyTileOf<v, 4, 6 + v % 2, Panel>();
    });
  }
  Unroll<vectors>([&](auto v) HWY_ATTR { StoreTile<v>(sum[v], sum_stride * 4); });
}

/// sum[v] = start[v] + rows x panels for 32 rows: two tiles of operands by two of weights, each loaded once for two
/// products. Rows of sum[v] lie `sum_stride` floats apart.
template <int vectors, class Panel, int width>
HWY_INLINE void MultiplyTwoTiles(const TileOperands<Panel>& a, const TilePanels<Panel, width>& panels,
                                 const Simd* start, float* const (&sum)[vectors], Index sum_stride) {
  Unroll<(vectors + 1) / 2>([&](auto pair) HWY_ATTR {
    constexpr int first = 2 * decltype(pair)::value, count = std::min(2, vectors - first);
    Unroll<count>([&](auto v) HWY_ATTR {
      StartTile<2 * v, Panel>(start + first + v);
      StartTile<2 * v + 1, Panel>(start + first + v);
    });
    for (Index k = 0; k < InputsOfTiles<Panel>(a.inputs); k += kInputsOfTile<Panel>) {
      a.template load<4>(0, k);
      a.template load<5>(kTileRows, k);
      Unroll<count>([&](auto v) HWY_ATTR {
        panels.template load<6 + v>(first + v, k);
        MultiplyTileOf<2 * v, 4, 6 + v, Panel>();
        MultiplyTileOf<2 * v + 1, 5, 6 + v, Panel>();
      });
    }
    Unroll<count>([&](auto v) HWY_ATTR {
      StoreTile<2 * v>(sum[first + v], sum_stride * 4);
      StoreTile<2 * v + 1>(sum[first + v] + kTileRows * sum_stride, sum_stride * 4);
    });
  });
}

#if PENSTOCK_INT8_TILES

/// Makes of the sums of whole tiles those of all inputs, and of these floats.
template <int vectors, int width>
HWY_INLINE void FinishByteSums(Index rows, const TileOperands<Int8Weight>& a,
                               const TilePanels<Int8Weight, width>& panels, const Simd* start,
                               float* const (&sum)[vectors], Index sum_stride) {
  const hn::RebindToSigned<Simd::Tag> di;
  const Index inputs = PanelInputs<Int8Weight>(a.inputs) - kInt8Tail, done = InputsOfTiles<Int8Weight>(a.inputs);
  const float* scales[vectors];
  for (int v = 0; v < vectors; ++v) {
    scales[v] = ScalesBehind(panels.panel_of(v), inputs, width * Simd::lanes) + v % width * Simd::lanes;
  }
  for (Index m = 0; m < rows; ++m) {
    const std::int8_t* const operand = a.rows + m * a.stride;
    const RowScale tail = LoadRowScale(operand, a.inputs);
    Sums32 of_row[vectors];
    for (int v = 0; v < vectors; ++v) {
      of_row[v] = hn::LoadU(di, reinterpret_cast<const std::int32_t*>(sum[v] + m * sum_stride));
    }
    for (Index k = done; k < inputs; k += 4) {
      const InputQuad x = LoadQuad(operand + k);
      for (int v = 0; v < vectors; ++v) of_row[v] = AddQuads(x, LoadQuads(panels.weights(v, k)), of_row[v]);
    }
    for (int v = 0; v < vectors; ++v) {
      Lanes<float>::store(AddScaled(start[v], of_row[v], tail, scales[v]), sum[v] + m * sum_stride);
    }
  }
}

#endif

/// sum[v] = start[v] + rows x panels for the first 32 rows, in whole tiles: what lies behind the rows is read, and
/// written to the sums, too. Rows of sum[v] lie `sum_stride` floats apart.
template <int vectors, class Panel, int width>
HWY_INLINE void MultiplyTileRows(Index rows, const TileOperands<Panel>& a, const TilePanels<Panel, width>& panels,
                                 const Simd* start, float* const (&sum)[vectors], Index sum_stride) {
  if (rows <= kTileRows) {
    MultiplyOneTile(a, panels, start, sum, sum_stride);
  } else {
    MultiplyTwoTiles(a, panels, start, sum, sum_stride);
  }
  if constexpr (Int8<Panel>) FinishByteSums(std::min(rows, 2 * kTileRows), a, panels, start, sum, sum_stride);
}

/// MultiplyTileRows() into sums [rows][vectors], whose rows lie `sum_stride` vectors apart.
template <int vectors, class Panel>
HWY_INLINE void MultiplyTileVectors(Index rows, const TileOperands<Panel>& a, const Panel* panel, const Simd* start,
                                    Simd* sums, Index sum_stride) {
  float* sum[vectors];
  for (int v = 0; v < vectors; ++v) sum[v] = reinterpret_cast<float*>(sums + v);
  MultiplyTileRows(rows, a, TilePanels<Panel, vectors>{panel}, start, sum, sum_stride * Simd::lanes);
}

/// Sums of as many rows as there is room for; those beyond `rows` hold what lay behind the operands.
template <int vectors>
struct TileSums {
  alignas(64) Simd sum[2 * kTileRows][vectors];

  template <class Panel>
  HWY_INLINE void multiply(Index rows, const std::type_identity_t<TileOperands<Panel>>& a, const Panel* panel,
                           const Simd* start) {
    MultiplyTileVectors<vectors>(rows, a, panel, start, sum[0], vectors);
  }
};
