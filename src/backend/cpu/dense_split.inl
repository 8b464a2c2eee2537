// Dense cells in floats by AMX: the products of many rows are made of three parts of each float (split_tiles.inl), from
// panels that are split anew for each call. Few rows go the way of plain floats, by the panels that are there.

template <>
class PanelUse<SplitTile> {
 public:
  HWY_INLINE void set_rows(Index) {}

 private:
  SplitTiles tiles_;
};

/// Words of split panels: tiles [blocks, vectors, inputs / 32].
constexpr Index SplitWords(Index blocks, Index vectors, Index inputs) {
  return blocks * vectors * TilesOf(inputs, kTileInputs) * kSplitWords;
}

/// Gates of each group.
template <class Cell>
struct SplitGroups {
  static constexpr int gates[2] = {FirstGroup<Cell>(), Cell::gates - FirstGroup<Cell>()};
};

/// How the panels of a dense cell are split: the recurrent ones of both groups, then those of the input.
template <class Cell>
struct SplitForward : SplitGroups<Cell> {
  using SplitGroups<Cell>::gates;
  Index input, head_size, width, blocks;

  SplitForward(Index inputs, Index hidden, Index heads)
      : input(inputs), head_size(hidden / heads), width(BlockVectors<float>(gates[0], head_size)) {
    const Index units = width * Simd::lanes;
    blocks = (head_size + units - 1) / units * heads;
  }
  Index words(Index inputs, int group) const { return SplitWords(blocks, gates[group] * width, inputs); }
  Index recurrent(int group) const { return group == 0 ? 0 : words(head_size, 0); }
  Index of_input(int group) const {
    return words(head_size, 0) + words(head_size, 1) + (group == 0 ? 0 : words(input, 0));
  }
  Index all() const { return of_input(1) + words(input, 1); }
};

/// Those of the transposed recurrent matrix, whose inputs are the gates of a group one after the other.
template <class Cell>
struct SplitBackward : SplitGroups<Cell> {
  using SplitGroups<Cell>::gates;
  Index head_size, width, blocks;

  SplitBackward(Index hidden, Index heads) : head_size(hidden / heads), width(BlockVectors<float>(1, head_size)) {
    const Index units = width * Simd::lanes;
    blocks = (head_size + units - 1) / units * heads;
  }
  Index words(int group) const { return SplitWords(blocks, width, gates[group] * head_size); }
};

/// One of `parts` shares of panels [blocks, inputs, vectors].
inline void SplitPanelsOf(const float* panels, Index blocks, Index inputs, Index vectors, Index part, Index parts,
                          std::uint32_t* split) {
  const Index row = vectors * Simd::lanes, tiles = TilesOf(inputs, kTileInputs);
  for (Index i = blocks * vectors * part / parts; i < blocks * vectors * (part + 1) / parts; ++i) {
    const float* const panel = panels + i / vectors * inputs * row + i % vectors * Simd::lanes;
    const auto input_at = [&](Index k) { return panel + k * row; };
    PackInputs<TileRows::as_loaded>(Simd::lanes, inputs, input_at, split + i * tiles * kSplitWords);
  }
}

template <class Cell>
std::size_t SplitForwardSize(Index input, Index hidden, Index heads) {
  return static_cast<std::size_t>(SplitForward<Cell>(input, hidden, heads).all() + kTileLines);
}

template <class Cell>
void PackSplitForward(Index input, Index hidden, Index heads, const float* packed, const float* packed_input,
                      Index part, Index parts, float* split) {
  const SplitForward<Cell> shape(input, hidden, heads);
  auto* const words = reinterpret_cast<std::uint32_t*>(AtCacheLine(split));
  for (int group = 0; group < Cell::phases; ++group) {
    const Index vectors = shape.gates[group] * shape.width;
    SplitPanelsOf(packed, shape.blocks, shape.head_size, vectors, part, parts, words + shape.recurrent(group));
    SplitPanelsOf(packed_input, shape.blocks, shape.input, vectors, part, parts, words + shape.of_input(group));
    packed += shape.blocks * shape.head_size * vectors * Simd::lanes;
    packed_input += shape.blocks * shape.input * vectors * Simd::lanes;
  }
}

template <class Cell>
std::size_t SplitBackwardSize(Index, Index hidden, Index heads) {
  const SplitBackward<Cell> shape(hidden, heads);
  return static_cast<std::size_t>(shape.words(0) + shape.words(1) + kTileLines);
}

template <class Cell>
void PackSplitBackward(Index, Index hidden, Index heads, const float* packed, const float*, Index part, Index parts,
                       float* split) {
  const SplitBackward<Cell> shape(hidden, heads);
  auto* words = reinterpret_cast<std::uint32_t*>(AtCacheLine(split));
  for (int group = 0; group < Cell::phases; ++group) {
    const Index inputs = shape.gates[group] * shape.head_size;
    SplitPanelsOf(packed, shape.blocks, inputs, shape.width, part, parts, words);
    packed += shape.blocks * inputs * shape.width * Simd::lanes;
    words += shape.words(group);
  }
}

/// Rows of a product, split into a thread's own memory, which is there again at the next step.
class SplitRows {
 public:
  /// As many as leave the second-level cache room for a panel.
  static Index at_once(Index inputs) {
    return std::clamp<Index>(128 / TilesOf(inputs, kTileInputs), 1, 4) * kTileLines;
  }

  /// Input k of row i, and the fifteen behind it, are at(i, k).
  template <class At>
  void pack(Index rows, Index inputs, const At& at) {
    tiles_ = TilesOf(inputs, kTileInputs);
    std::uint32_t* const words = memory(TilesOf(at_once(inputs), kTileLines) * tiles_ * kSplitWords);
    PackLines<TileRows::as_loaded>(rows, inputs, at, words);
    words_ = words;
  }

  /// Up to 32 rows from `first` on: start + rows by `vectors` lines of b, where `out` says.
  template <int vectors>
  HWY_INLINE void multiply(Index first, Index rows, const std::uint32_t* b, const Simd* start,
                           const SplitOut& out) const {
    const Index pitch = tiles_ * kSplitWords;
    const std::uint32_t* const a = words_ + first / kTileLines * pitch;
    if (rows <= kTileLines) return MultiplySplitRow<vectors>(tiles_, a, b, pitch, start, out);
    Unroll<(vectors + 1) / 2>([&](auto pair) HWY_ATTR {
      constexpr int v = 2 * decltype(pair)::value;
      const SplitOut part{out.to + v * out.column_tile, out.stride, out.row_tile, out.column_tile};
      MultiplySplitRows<std::min(2, vectors - v)>(tiles_, a, pitch, b + v * pitch, pitch, start + v, part);
    });
  }

 private:
  static std::uint32_t* memory(Index words) {
    static thread_local AlignedVector<std::uint32_t> held;
    if (held.size() < static_cast<std::size_t>(words)) held.resize(static_cast<std::size_t>(words));
    return held.data();
  }

  const std::uint32_t* words_ = nullptr;
  Index tiles_ = 0;
};

/// Where sums [rows][vectors] go whose rows lie `stride` vectors apart.
HWY_INLINE SplitOut OutTo(Simd* sums, Index stride) {
  return {reinterpret_cast<float*>(sums), stride * Simd::lanes, kTileLines * stride * Simd::lanes, Simd::lanes};
}

template <>
class StepRows<SplitTile> {
 public:
  static Index at_once(Index inputs) { return SplitRows::at_once(inputs); }

  template <class Cell, int first_gate>
  static const std::uint32_t* panels(const DenseForward<float>& job, const GateGroup<SplitTile>&) {
    const SplitForward<Cell> shape(job.input, job.hidden, job.heads);
    return reinterpret_cast<const std::uint32_t*>(AtCacheLine(job.split)) + shape.recurrent(first_gate > 0 ? 1 : 0);
  }
  template <int vectors>
  static Index panel_size(Index inputs) {
    return SplitWords(1, vectors, inputs);
  }

  HWY_INLINE void take(const float* first, Index stride, Index inputs, Index rows) {
    rows_.pack(rows, inputs, [&](Index i, Index k) { return first + i * stride + k; });
  }

  template <int vectors>
  HWY_INLINE void multiply(Index first, Index rows, const std::uint32_t* panel, const Simd* start, Simd* to,
                           Index stride) const {
    rows_.multiply<vectors>(first, rows, panel, start, OutTo(to, stride));
  }

 private:
  SplitRows rows_;
};

template <std::same_as<SplitTile> Panel, class Cell, int first_gate, int gate_count, int width>
void ForwardGroup(const DenseForward<float>& job, const GateGroup<Panel>& group, const RowPlace<float>* places,
                  const DensePart& part, Index slot_end, Index step) {
  if (job.split == nullptr || slot_end - part.slot_begin < kLeastSplitRows) {
    return ForwardTiles<Panel, Cell, first_gate, gate_count, width>(job, group, places, part, slot_end, step);
  }
  ForwardTileStep<Panel, Cell, first_gate, gate_count, width>(job, group, places, part, slot_end, step).run();
}

/// The input product of `count` sites, slots or steps of a slot, for all blocks of a part: those of one site are
/// input_at(i), and wx of it wx_at(i).
template <class Cell, int first_gate, int gate_count, int width, class InputAt, class WxAt>
void SplitInputRows(const DenseForward<float>& job, const DensePart& part, Index count, const InputAt& input_at,
                    const WxAt& wx_at) {
  constexpr int vectors = gate_count * width;
  constexpr Index units = width * Simd::lanes;
  const SplitForward<Cell> shape(job.input, job.hidden, job.heads);
  const std::uint32_t* const panels =
      reinterpret_cast<const std::uint32_t*>(AtCacheLine(job.split)) + shape.of_input(first_gate > 0 ? 1 : 0);
  const Index head_size = job.hidden / job.heads, blocks_per_head = (head_size + units - 1) / units;
  const Index panel_size = SplitWords(1, vectors, job.input), at_once = SplitRows::at_once(job.input);
  SplitRows rows;
  TileSums<vectors> sums;
  for (Index done = 0; done < count; done += at_once) {
    const Index there = std::min(at_once, count - done);
    rows.pack(there, job.input, [&](Index i, Index k) { return input_at(done + i) + k; });
    for (Index block = part.block_begin; block < part.block_end; ++block) {
      const Index head = block / blocks_per_head, first_unit = block % blocks_per_head * units;
      Simd start[vectors];
      LoadBias<float, first_gate, gate_count, width>(job.bias_ih, job.hidden, head_size, head, first_unit, start);
      for (Index row = 0; row < there; row += 2 * kTileLines) {
        rows.multiply<vectors>(row, there - row, panels + block * panel_size, start, OutTo(sums.sum[0], vectors));
        for (Index m = 0; m < std::min(2 * kTileLines, there - row); ++m) {
          float* const wx = wx_at(done + row + m) + first_gate * job.hidden + head * head_size + first_unit;
          for (int v = 0; v < vectors; ++v) {
            const Index unit = v % width * Simd::lanes, left = std::min(Simd::lanes, head_size - first_unit - unit);
            if (left > 0) Lanes<float>::store(sums.sum[m][v], wx + v / width * job.hidden + unit, left);
          }
        }
      }
    }
  }
}

template <std::same_as<SplitTile> Panel, class Cell, int first_gate, int gate_count, int width>
void InputProduct(const DenseForward<float>& job, const Panel* panels, const DensePart& part, Index begin, Index end) {
  if (job.split == nullptr) {
    return InputTiles<Panel, Cell, first_gate, gate_count, width>(job, panels, part, begin, end);
  }
  const RowPlan& plan = job.plan;
  const auto wx = [&](Index slot, Index step) { return job.wx + job.wx_row(slot, step) * job.wx_stride; };
  if (job.along_steps()) {
    for (Index slot = part.slot_begin; slot < part.slot_end && plan.length[slot] > begin; ++slot) {
      SplitInputRows<Cell, first_gate, gate_count, width>(
          job, part, std::min(end, plan.length[slot]) - begin,
          [&](Index i) { return InputRow<Panel>(job, slot, begin + i); }, [&](Index i) { return wx(slot, begin + i); });
    }
    return;
  }
  Index slot_end = part.slot_end;
  for (Index step = begin; step < end; ++step) {
    while (slot_end > part.slot_begin && plan.length[slot_end - 1] <= step) --slot_end;
    SplitInputRows<Cell, first_gate, gate_count, width>(
        job, part, slot_end - part.slot_begin, [&](Index i) { return InputRow<Panel>(job, part.slot_begin + i, step); },
        [&](Index i) { return wx(part.slot_begin + i, step); });
  }
}

template <std::same_as<SplitTile> Panel, class Cell, int width, bool phase_two>
void BackwardProduct(const DenseBackward<float>& job, const Panel* panels, const DensePart& part, Index slot_end,
                     Index step) {
  if (job.split == nullptr || slot_end - part.slot_begin < kLeastSplitRows) {
    return BackwardTiles<Panel, Cell, width, phase_two>(job, panels, part, slot_end, step);
  }
  const SplitBackward<Cell> shape(job.hidden, job.heads);
  constexpr int group = phase_two ? 1 : 0;
  const Index head_size = shape.head_size, inputs = shape.gates[group] * head_size;
  const std::uint32_t* const split =
      reinterpret_cast<const std::uint32_t*>(AtCacheLine(job.split)) + (phase_two ? shape.words(0) : 0);
  const Index blocks_per_head = shape.blocks / job.heads, panel_size = shape.words(group) / shape.blocks;
  const Index first_gate = phase_two ? shape.gates[0] : 0, at_once = SplitRows::at_once(inputs);
  Simd zeros[width];
  for (Simd& zero : zeros) zero = Simd(0);
  SplitRows rows;
  TileSums<width> sums;
  for (Index slot = part.slot_begin; slot < slot_end; slot += at_once) {
    const Index there = std::min(at_once, slot_end - slot);
    Index head = -1;
    for (Index block = part.block_begin; block < part.block_end; ++block) {
      if (block / blocks_per_head != head) {
        head = block / blocks_per_head;
        const float* const first = job.drh + job.row_of(slot, step) * job.gates_stride + head * head_size;
        rows.pack(there, inputs, [&](Index i, Index k) {
          return first + i * job.gates_stride + (first_gate + k / head_size) * job.hidden + k % head_size;
        });
      }
      for (Index row = 0; row < there; row += 2 * kTileLines) {
        const Index count = std::min(2 * kTileLines, there - row);
        rows.multiply<width>(row, count, split + block * panel_size, zeros, OutTo(sums.sum[0], width));
        FinishBackward<Panel, Cell, width, phase_two>(job, slot + row, count, step, head,
                                                      block % blocks_per_head * width * Simd::lanes, sums.sum);
      }
    }
  }
}
