// Panels: the recurrent matrix rearranged so that one step's product reads memory once, from front to back.
// A panel covers one block of `lanes * width` output units for `gates` gates: for each k, gates x width vectors.
// Columns beyond the units of a head are zero.

// Panels hold floats or doubles, or weights rounded to bfloat16: an element of Bf16Weight is multiplied in float; one
// of Bf16Product with operands rounded to bfloat16 too, two products at a time; one of Bf16Tile likewise by AMX, which
// multiplies tiles of 16 rows x 32 inputs with tiles of 32 inputs x 16 units. NarrowFloat is a float in a panel for
// vectors of half as many lanes. Int8Weight is multiplied with operands of int8, four products at a time
// (panel_int8.inl), also by AMX.

#include "backend/cpu/target.inl"

struct Bf16Weight {
  std::uint16_t bits;
};
struct Bf16Product {
  std::uint16_t bits;
};
struct Bf16Tile {
  std::uint16_t bits;
};
struct NarrowFloat {
  float value;
};
struct Int8Weight {
  std::int8_t value;
};

template <class Panel>
struct PanelTraits {
  using Real = Panel;
  using Vectors = Lanes<Real>;
  using Operand = Panel;               // what the elements are multiplied with
  static constexpr Index group = 1;    // inputs that lie side by side for each unit
  static constexpr Index padding = 1;  // panels hold a multiple of so many inputs
  static constexpr Index tail = 0;     // and room for so many elements more for each unit; so do rows of operands
  static constexpr Index line = 1;     // such a row takes a multiple of so many: of AMX, a line of the cache
};
template <>
struct PanelTraits<Bf16Weight> {
  using Real = float;
  using Vectors = Lanes<float>;
  using Operand = float;
  static constexpr Index group = 2, padding = 2, tail = 0, line = 1;
};
template <>
struct PanelTraits<Bf16Product> : PanelTraits<Bf16Weight> {
  using Operand = std::uint16_t;
};
template <>
struct PanelTraits<Bf16Tile> : PanelTraits<Bf16Product> {
  static constexpr Index padding = 32, line = 32;
};

template <>
struct PanelTraits<Int8Weight> {
  using Real = float;
  using Vectors = Lanes<float>;
  using Operand = std::int8_t;
  static constexpr Index group = 4, padding = 4, tail = 8;
#if PENSTOCK_INT8_TILES
  static constexpr Index line = 64;
#else
  static constexpr Index line = 1;
#endif
};

#if PENSTOCK_NARROW_VECTORS
template <>
struct PanelTraits<NarrowFloat> : PanelTraits<float> {
  using Vectors = SimdLanes<NarrowSimd>;
};
#endif

template <class Panel>
using RealOf = typename PanelTraits<Panel>::Real;
template <class Panel>
using LanesOf = typename PanelTraits<Panel>::Vectors;
template <class Panel>
using OperandOf = typename PanelTraits<Panel>::Operand;
/// Cells that a user defined: their equations are in the job and not in the type. Engines have their own functions for
/// them in custom/, wherever a cell's equations or its number of states are read.
template <class Cell>
concept Custom = Cell::custom;

template <class Panel>
concept Rounded = PanelTraits<Panel>::group == 2;
template <class Panel>
concept RoundsOperands = std::is_same_v<OperandOf<Panel>, std::uint16_t>;
template <class Panel>
concept Int8 = std::is_same_v<Panel, Int8Weight>;
/// Panels that AMX multiplies.
template <class Panel>
concept Tiled = (PanelTraits<Panel>::line > 1);

/// Type of the values with which gates are computed from the sums of such panels.
template <class Panel>
using GatesOf = std::conditional_t<RoundsOperands<Panel> || (Int8<Panel> && HWY_TARGET == HWY_AVX3), QuickSimd,
                                   typename LanesOf<Panel>::V>;

/// The elements of a panel that are not rounded.
template <class Panel>
HWY_INLINE const RealOf<Panel>* RealsOf(const Panel* panel) {
  static_assert(sizeof(Panel) == sizeof(RealOf<Panel>));
  return reinterpret_cast<const RealOf<Panel>*>(panel);
}

/// Inputs in a panel for `k_count` of them; what is added is zero, but for the tail.
template <class Panel>
constexpr Index PanelInputs(Index k_count) {
  constexpr Index padding = PanelTraits<Panel>::padding;
  return (k_count + padding - 1) / padding * padding + PanelTraits<Panel>::tail;
}

/// Elements of a row of operands that were rounded for such a panel. The tail is the end of the row.
template <class Panel>
constexpr Index OperandInputs(Index k_count) {
  constexpr Index line = PanelTraits<Panel>::line;
  return (PanelInputs<Panel>(k_count) + line - 1) / line * line;
}

/// Returns the distance from one head's operands to the next head's.
template <class Panel>
constexpr Index HeadStride(Index head_size) {
  return RoundsOperands<Panel> || Int8<Panel> ? OperandInputs<Panel>(head_size) : head_size;
}

/// What a row of rounded operands takes, in 16 bits each.
template <class Panel>
constexpr Index RoundedInputs(Index k_count) {
  return OperandInputs<Panel>(k_count) * static_cast<Index>(sizeof(OperandOf<Panel>)) / 2;
}

template <class Panel>
void FillRoundedInputs(CellKernels<RealOf<Panel>>& kernels) {
  if constexpr (RoundsOperands<Panel> || Int8<Panel>) kernels.rounded_inputs = &RoundedInputs<Panel>;
}

/// Reals that hold so many elements of panels.
template <class Panel>
constexpr std::size_t PanelReals(Index elements) {
  using Real = RealOf<Panel>;
  return (static_cast<std::size_t>(elements) * sizeof(Panel) + sizeof(Real) - 1) / sizeof(Real);
}

/// Setup of the processor for products with such panels, while the object lives; usually nothing.
template <class Panel>
struct PanelUse {
  /// Sets the largest number of rows of products from here on.
  HWY_INLINE void set_rows(Index) {}
};

/// Registers for vectors.
constexpr int kRegisters = HWY_TARGET == HWY_AVX3 ? 32 : 16;

/// Vectors of a panel that one pass over it multiplies: as many as have sums of `rows` rows in registers, beside
/// themselves and one broadcast value. The others take passes of their own, which read other lines of the panel. For
/// one row nothing is read twice anyway, and memory is best read in one stream.
template <int rows, int vectors>
constexpr int VectorsOfPass() {
  int count = vectors;
  while (rows > 1 && count > 1 && rows * count + count + 1 > kRegisters) count = (count + 1) / 2;
  return count;
}

/// Calls run(std::integral_constant<int, first>, std::integral_constant<int, count>) until all vectors are multiplied.
template <int rows, int vectors, int first = 0, class Run>
HWY_INLINE void ForVectorsOfPass(const Run& run) {
  if constexpr (first < vectors) {
    constexpr int count = std::min(VectorsOfPass<rows, vectors>(), vectors - first);
    run(std::integral_constant<int, first>(), std::integral_constant<int, count>());
    ForVectorsOfPass<rows, vectors, first + count>(run);
  }
}

/// acc[m][v] += sum over k of a[m][k] * panel[k][v], one k after the other for every m alike, so that a row's result
/// does not depend on how many rows are computed with it. Returns the panel's end. What lies `ahead` vectors ahead is
/// asked for, into every cache: past the second level, the next pass would find nothing there, and on Xeons steps of
/// 512 units took up to four times as long.
template <class Real, int rows, int vectors, Index ahead = 0, class Panel>
requires(!Rounded<Panel>) HWY_INLINE const Panel* AccumulatePanel(const Real* const (&a)[rows], Index k_count,
                                                                  const Panel* panel,
                                                                  typename LanesOf<Panel>::V (&acc)[rows][vectors]) {
  using L = LanesOf<Panel>;
  using V = typename L::V;
  ForVectorsOfPass<rows, vectors>([&](auto first, auto count) HWY_ATTR {
    constexpr int begin = decltype(first)::value, vectors_of_pass = decltype(count)::value;
    const Panel* from = panel + begin * L::lanes;
    for (Index k = 0; k < k_count; ++k, from += vectors * L::lanes) {
      V b[vectors_of_pass];
      if constexpr (ahead > 0) {
        for (int v = 0; v < vectors_of_pass; ++v) __builtin_prefetch(from + (ahead + v) * L::lanes, 0, 3);
      }
      for (int v = 0; v < vectors_of_pass; ++v) b[v] = L::load(RealsOf(from + v * L::lanes));
      for (int m = 0; m < rows; ++m) {
        const V x(a[m][k]);
        for (int v = 0; v < vectors_of_pass; ++v) acc[m][begin + v] = MulAdd(x, b[v], acc[m][begin + v]);
      }
    }
  });
  return panel + k_count * vectors * L::lanes;
}

/// Accumulates like the overload above for rows that lie `stride` apart, which allows more rows: one pointer serves
/// three rows.
template <class Real, int rows, int vectors>
HWY_INLINE void AccumulateRows(const Real* a, Index stride, Index k_count, const Real* panel,
                               typename Lanes<Real>::V (&acc)[rows][vectors]) {
  using L = Lanes<Real>;
  using V = typename L::V;
  constexpr int thirds = (rows + 2) / 3;
  ForVectorsOfPass<rows, vectors>([&](auto first, auto count) HWY_ATTR {
    constexpr int begin = decltype(first)::value, vectors_of_pass = decltype(count)::value;
    const Real* base[thirds];
    for (int j = 0; j < thirds; ++j) base[j] = a + 3 * j * stride;
    const Real* from = panel + begin * L::lanes;
    for (Index k = 0; k < k_count; ++k, from += vectors * L::lanes) {
      V b[vectors_of_pass];
      for (int v = 0; v < vectors_of_pass; ++v) b[v] = L::load(from + v * L::lanes);
      for (int m = 0; m < rows; ++m) {
        const V x(base[m / 3][m % 3 * stride]);
        for (int v = 0; v < vectors_of_pass; ++v) acc[m][begin + v] = MulAdd(x, b[v], acc[m][begin + v]);
      }
      for (int j = 0; j < thirds; ++j) ++base[j];
    }
  });
}

/// Accumulates like the overload above for one row and several panels, `panel_size` apart: a single row has too few
/// sums to keep the multipliers busy.
template <class Real, int panels, int vectors>
HWY_INLINE void AccumulatePanels(const Real* a, Index k_count, const Real* panel, Index panel_size,
                                 typename Lanes<Real>::V (&acc)[panels][vectors]) {
  using L = Lanes<Real>;
  using V = typename L::V;
  for (Index k = 0; k < k_count; ++k, panel += vectors * L::lanes) {
    const V x(a[k]);
    for (int p = 0; p < panels; ++p) {
      for (int v = 0; v < vectors; ++v) {
        acc[p][v] = MulAdd(x, L::load(panel + p * panel_size + v * L::lanes), acc[p][v]);
      }
    }
  }
}

/// Copies sums for a function that is called by its pointer. g++ assumes that the function keeps their address. Sums
/// with such an address would stay in memory throughout the innermost loop of their product. Stored as vectors, since
/// g++ makes a detour through memory to copy the objects.
template <class Real, int rows, int vectors>
HWY_INLINE void CopySums(const typename Lanes<Real>::V (&sums)[rows][vectors],
                         typename Lanes<Real>::V (&to)[rows][vectors]) {
  for (int m = 0; m < rows; ++m) {
    for (int v = 0; v < vectors; ++v) Lanes<Real>::store(sums[m][v], reinterpret_cast<Real*>(&to[m][v]));
  }
}

/// Vectors of units in a block: as many as keep `gates` of them near four accumulators a row, but no more than the head
/// has use for.
template <class Real>
constexpr int MaxBlockVectors(int gates) {
  return gates >= 3 ? 1 : gates == 2 ? 2 : 4;
}

template <class Real>
inline int BlockVectors(int gates, Index head_size) {
  int vectors = MaxBlockVectors<Real>(gates);
  while (vectors > 1 && (vectors / 2) * Lanes<Real>::lanes >= head_size) vectors /= 2;
  return vectors;
}

/// Rows of AccumulateRows() whose sums fit the register file beside a column of the panel and one broadcast value.
template <class Real, int vectors>
constexpr int MaxStridedRows() {
#if defined(__SANITIZE_ADDRESS__)
  return 2;
#else
  return std::min(12, (kRegisters - 1 - vectors) / vectors);
#endif
}

/// Rows of a tile of the dense engines: where the sums of all vectors leave room for few rows, as many as passes of two
/// vectors at a time have room for, so that a panel is read from the second-level cache a third as often. Narrow panels
/// are those of heads of a vector or two, rounded weights by themselves are for few rows, and doubles serve gradient
/// checks: none is worth the compiler's time.
template <class Panel, int vectors>
constexpr int MaxTileRows() {
  constexpr int all = MaxStridedRows<RealOf<Panel>, vectors>();
  constexpr int rows = all < 4 ? MaxStridedRows<RealOf<Panel>, 2>() : all;
  if constexpr (std::is_same_v<Panel, double>) return std::min(2, rows);
  if constexpr (vectors < 3) return std::min(4, rows);
  if constexpr (std::is_same_v<Panel, Bf16Weight>) return std::min(2, rows);
  if constexpr (std::is_same_v<Panel, Bf16Tile>) return 1;
  return std::min(8, rows);
}

/// Calls tile(std::integral_constant<int, rows>, first) until begin..end-1 is covered, in the largest tiles; but eight
/// rows left are two tiles of four sooner than one of six and one of two, which reads as much for half the work.
template <int most, class Tile>
HWY_INLINE void ForEachTile(Index begin, Index end, const Tile& tile) {
  constexpr bool halves = most > 4 && most < 8;
  for (; end - begin >= most && !(halves && end - begin == 8); begin += most) {
    tile(std::integral_constant<int, most>(), begin);
  }
  if constexpr (most > 8) {
    if (end - begin >= 8) tile(std::integral_constant<int, 8>(), begin), begin += 8;
  }
  if constexpr (most > 4) {
    for (; end - begin >= 4; begin += 4) tile(std::integral_constant<int, 4>(), begin);
  }
  if constexpr (most > 2) {
    if (end - begin >= 2) tile(std::integral_constant<int, 2>(), begin), begin += 2;
  }
  if (end - begin >= 1) tile(std::integral_constant<int, 1>(), begin);
}

/// Calls visit(block, count) for the blocks of a part, two at a time where both lie in one run of `run` blocks. Every
/// other step runs backwards, so that what the cache still holds of the panels is used before it is gone.
template <class Visit>
HWY_INLINE void ForEachBlock(const DensePart& part, Index step, Index run, const Visit& visit) {
  const bool backwards = step % 2 != 0;
  const Index blocks = part.block_end - part.block_begin;
  for (Index done = 0, count = 1; done < blocks; done += count) {
    const Index first = backwards ? part.block_end - 1 - done : part.block_begin + done;
    const Index second = backwards ? first - 1 : first + 1;
    count = done + 1 < blocks && first / run == second / run ? 2 : 1;
    visit(count == 2 ? std::min(first, second) : first, count);
  }
}

/// Gates that share panels in the forward pass: all, or those of the first phase, whose width both phases use.
template <class Cell>
constexpr int FirstGroup() {
  if constexpr (Cell::phases == 2) {
    return Cell::first_gates;
  } else {
    return Cell::gates;
  }
}

/// Returns whether several heads share a vector of such panels (narrow.inl).
template <class Panel>
constexpr bool NarrowHeads(Index hidden, Index heads) {
  return std::is_same_v<Panel, float> && plan::has_narrow_heads(hidden, heads, Lanes<float>::lanes);
}

/// How the units of all heads fall into blocks whose panels hold `gates` gates.
template <class Panel>
inline PanelShape ShapeOfPanels(int gates, Index hidden, Index heads) {
  using Real = RealOf<Panel>;
  PanelShape shape;
  shape.mixed = hidden / heads;
  shape.heads = NarrowHeads<Panel>(hidden, heads) ? 1 : heads;
  const Index head_size = hidden / shape.heads;
  const int vectors = BlockVectors<Real>(gates, head_size);
  shape.units = vectors * Lanes<Real>::lanes;
  shape.blocks_per_head = (head_size + shape.units - 1) / shape.units;
  shape.blocks = shape.blocks_per_head * shape.heads;
  return shape;
}
