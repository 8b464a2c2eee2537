// Layers of a cell: the products of all inputs first, a piece of the sequence at a time, then a step after the other
// for all rows of the batch.

#include <algorithm>
#include <array>
#include <cmath>
#include <new>
#include <type_traits>
#include <utility>

#include "custom/cell.h"
#include "network/cell.h"
#include "network/contraction.h"
#include "network/preparation.h"
#include "network/quantize.h"
#include "network/transpose.h"

namespace penstock::network {

namespace {

constexpr Index kFloatsOfRow = sizeof(ByteProduct::Row) / sizeof(float);
constexpr Index kFloatsOfRange = sizeof(ByteRange) / sizeof(float);
/// Floats of a RowSteps in a scratch.
constexpr Index kFloatsOfJob = (sizeof(RowSteps) + 63) / 64 * 64 / sizeof(float);
static_assert(std::is_trivially_destructible_v<RowSteps>);

struct Layer {
  CellGates cell;
  std::shared_ptr<const custom::DerivedCell> equations;         // of a custom cell
  Index learnt = 0;                                             // vectors behind the gates of bias_ih, of custom cells
  Index steps = 0, rows = 0, input = 0, hidden = 0, units = 0;  // T, B, I, H, G * H
  Index directions = 1;
  bool reverse = false;
  // Inputs and states become eight bits, with one range of all rows of the batch or one of each. W and R are whole
  // numbers times a scale for each unit; as `bytes` if these numbers fit eight bits and the chip multiplies such.
  bool quantised = false, bytes = false;
  bool each_row = false;
  Index ranges_place = 0;              // where the ranges of inputs and states lie in the scratch
  std::size_t lengths = 0, start = 0;  // reads, or 0
  std::size_t scale = 0;               // the read with that of W; that of R is the next
  Index piece = 1;                     // steps whose products with inputs are made together
  // Floats of a direction's weights: panels of W, of R, and of R's last gates if the cell has two phases; then both
  // biases and learnt vectors. RowKernels have the biases in their panels.
  std::size_t recurrent = 0, second = 0, biases = 0, scales = 0, weights = 0;

  Index ranges() const { return !kIsRuntime && each_row ? rows : 1; }
  /// Bytes of a row of operands of a product with so many inputs.
  static Index row_bytes(Index inner) { return (inner + 3) / 4 * 4; }
  /// Floats of the scratch of a product with the inputs of a piece, or with states.
  Index rounding() const {
    const Index all = std::max(piece * rows * input, rows * hidden);
    return units + all + piece * rows * (kFloatsOfRow + row_bytes(std::max(input, hidden)) / 4);
  }
  Index first_units() const { return cell.run_first == nullptr ? units : cell.first * hidden; }
};

/// The states before the first step: [B, H] each, at `state` and so much further on.
void read_first_states(const Step& step, const Memory& memory, const Layer& layer, Index place, float* state) {
  const Index count = layer.rows * layer.hidden;
  for (Index k = 0; k < layer.cell.states; ++k, state += count) {
    if (step.n[k] == 0) {
      std::fill_n(state, count, 0.0f);
    } else {
      std::copy_n(step.floats(static_cast<std::size_t>(kRecurrentFirstState + k), memory) + place, count, state);
    }
  }
}

/// Those after the last.
void write_last_states(const Step& step, const Memory& memory, const Layer& layer, Index place, const float* state) {
  const Index count = layer.rows * layer.hidden;
  for (Index k = 0; k < layer.cell.states && 1 + k < static_cast<Index>(step.writes.size()); ++k, state += count) {
    std::copy_n(state, count, step.result(static_cast<std::size_t>(1 + k), memory) + place);
  }
}

/// Whether a step is part of the sequence of a row. If not, y is zero.
bool takes_part(const Step& step, const Memory& memory, const Layer& layer, Index t, Index row, float* y) {
  if (layer.lengths == 0 && layer.start == 0) return true;
  const auto number = [&](std::size_t read, Index i) {
    return integer_at(step.read_type(read), step.read(read, memory), i);
  };
  const bool is_there =
      (layer.lengths == 0 || t < number(layer.lengths, row)) && (layer.start == 0 || t >= number(layer.start, 0));
  if (!is_there) std::fill_n(y, layer.hidden, 0.0f);
  return is_there;
}

/// Finds the ranges of x [steps, rows, n].
void find_ranges(const Kernels& kernels, const Layer& layer, Index steps, Index n, const float* x, ByteRange* ranges) {
  if (layer.ranges() == 1) n *= std::exchange(steps, 1) * layer.rows;
  for (Index row = 0; row < layer.ranges(); ++row) {
    ranges[row] = byte_range(kernels, n, x + row * n, steps, layer.ranges() * n);
  }
}

/// c = bias + a b scale, with rows of a that are rounded to levels of their ranges: products are sums of whole numbers.
/// `spare`: what scales the columns [columns], the levels [rows, inner]; and of bytes what each row has, and
/// themselves.
void multiply_rounded(const Kernels& kernels, const Layer& layer, const ByteRange* ranges, Product job,
                      const float* column_scale, float* spare) {
  const Index rows = job.rows, inner = job.inner, columns = job.columns;
  float *const scale = spare, *const levels = spare + columns;
  const Index alike = layer.ranges() == 1 ? rows : 1;
  for (Index row = 0; row < rows; row += alike) {
    const ByteRange& range = ranges[row % layer.ranges()];
    round_to_levels(kernels, range, 0, 255, alike * inner, job.a + row * inner, levels + row * inner);
  }
  if (kIsRuntime || !layer.bytes) {
    const float* const bias = std::exchange(job.column_bias, nullptr);
    job.a = levels;
    kernels.multiply(job);
    for (Index row = 0; row < rows; ++row) {
      float* const c = job.c + row * job.c_stride;
      const ByteRange& range = ranges[row % layer.ranges()];
      if (row < layer.ranges() || layer.ranges() > 1) {
        kernels.binary(Binary::multiply, columns, column_scale, 1, &range.scale, 0, scale);
      }
      kernels.binary(Binary::multiply, columns, c, 1, scale, 1, c);
      kernels.binary(Binary::add, columns, c, 1, bias, 1, c);
    }
    return;
  }
  auto* const of_rows = reinterpret_cast<ByteProduct::Row*>(levels + rows * inner);
  auto* const bytes = reinterpret_cast<std::int8_t*>(of_rows + rows);
  const Index stride = Layer::row_bytes(inner);
  std::fill_n(bytes, rows * stride, std::int8_t{0});
  for (Index row = 0; row < rows; ++row) {
    const ByteRange& range = ranges[row % layer.ranges()];
    const auto offset = static_cast<std::int32_t>(range.zero) - 128;
    std::int32_t sum = 0;
    for (Index k = 0; k < inner; ++k) {
      const auto value = static_cast<std::int8_t>(static_cast<std::int32_t>(levels[row * inner + k]) + offset);
      bytes[row * stride + k] = value;
      sum += value;
    }
    of_rows[row] = {sum, -offset, range.scale, 0};
  }
  kernels.multiply_bytes(
      {rows, columns, inner, bytes, of_rows, stride, job.b, column_scale, job.column_bias, job.c, job.c_stride});
}

/// What a direction computes with: products of the inputs of a piece, of a step's states, and of the operand of cells
/// with two phases; and the gates of a row. `spare`: the states [S, B, H], wx [piece, B, G, H], rh [B, G, H], operand
/// [B, H], and the first gates of a row; or behind rh what rounding needs.
struct Direction {
  const Layer& layer;
  float* states;
  Product of_x, of_h, of_operand;
  GateStep gates;
  const float* scales;  // of W and R
  float* rounding;

  Direction(const Layer& of, const float* weights, const Kernels& kernels, float* spare)
      : layer(of), states(spare), scales(weights + of.scales) {
    const Index hidden = layer.hidden, units = layer.units, first = layer.first_units();
    const float* bias = weights + layer.biases;
    float* const wx = spare + layer.cell.states * layer.rows * hidden;
    float* const rh = wx + layer.piece * layer.rows * units;
    float* const operand = rounding = rh + layer.rows * units;
    const auto product = [&](Index inner, Index columns, const float* panels, const float* of_columns, float* c) {
      Product made;
      made.columns = columns, made.inner = made.a_stride = made.b_column = inner;
      made.b = panels, made.b_row = kernels.panel_columns, made.column_bias = of_columns;
      made.c = c, made.c_stride = units, made.rows = layer.rows;
      return made;
    };
    of_x = product(layer.input, units, weights, bias, wx);
    of_h = product(hidden, first, weights + layer.recurrent, bias + units, rh);
    of_operand = product(hidden, units - first, weights + layer.second, bias + units + first, rh + first);
    of_h.a = spare, of_operand.a = operand;
    gates.hidden = hidden;
    gates.equations = layer.equations.get();
    gates.learnt = bias + 2 * units;
    gates.operand = operand, gates.kept = operand + layer.rows * hidden;
  }

  /// The products of the inputs of a piece, with the ranges of those of all steps.
  void read_inputs(const Kernels& kernels, const ByteRange* ranges) const {
    layer.quantised ? multiply_rounded(kernels, layer, ranges, of_x, scales, rounding) : kernels.multiply(of_x);
  }

  /// A step of all rows that are there: position t of a piece whose outputs begin at y, so far from row to row. Writes
  /// the `ranges` of states.
  void step(const Kernels& kernels, Index t, ByteRange* ranges, float* y, Index y_stride, const auto& is_there) {
    const Index rows = layer.rows, hidden = layer.hidden, units = layer.units;
    const auto each_row = [&](CellGates::Run run) {
      for (Index row = 0; row < rows; ++row) {
        GateStep job = gates;
        job.wx = of_x.c + (t * rows + row) * units, job.rh = of_h.c + row * units;
        job.y = y + row * y_stride;
        if (!is_there(row, job.y)) continue;
        for (Index k = 0; k < layer.cell.states; ++k) job.state[k] = states + (k * rows + row) * hidden;
        job.operand += row * hidden, job.kept += row * layer.first_units();
        run(job);
      }
    };
    if (layer.quantised) {
      find_ranges(kernels, layer, 1, hidden, states, ranges);
      multiply_rounded(kernels, layer, ranges, of_h, scales + units, rounding);
    } else {
      kernels.multiply(of_h);
      of_h.backwards = !of_h.backwards;
    }
    if (layer.cell.run_first != nullptr) {
      each_row(layer.cell.run_first);
      kernels.multiply(of_operand);
    }
    each_row(layer.cell.run);
  }
};

void run_recurrent(const Step& step, const Memory& memory) {
  const auto& layer = *static_cast<const Layer*>(step.plan.get());
  const Index rows = layer.rows, width = layer.directions * layer.hidden;
  auto* const ranges = reinterpret_cast<ByteRange*>(step.spare(memory) + layer.ranges_place);
  if (layer.quantised) {
    find_ranges(memory.kernels, layer, layer.steps, layer.input, step.floats(kRecurrentX, memory), ranges);
  }
  for (Index d = 0; d < layer.directions; ++d) {
    const bool reverse = layer.reverse || d == 1;
    Direction direction(layer, step.packed.data() + d * static_cast<Index>(layer.weights), memory.kernels,
                        step.spare(memory));
    read_first_states(step, memory, layer, d * rows * layer.hidden, direction.states);
    for (Index begin = 0; begin < layer.steps; begin += layer.piece) {
      const Index steps = std::min(layer.piece, layer.steps - begin);
      const Index first = reverse ? layer.steps - begin - steps : begin;
      direction.of_x.a = step.floats(kRecurrentX, memory) + first * rows * layer.input;
      direction.of_x.rows = steps * rows;
      direction.read_inputs(memory.kernels, ranges);
      for (Index i = 0; i < steps; ++i) {
        const Index t = reverse ? steps - 1 - i : i;
        float* const y = step.result(0, memory) + (first + t) * rows * width + d * layer.hidden;
        direction.step(memory.kernels, t, ranges + layer.ranges(), y, width, [&](Index row, float* of_row) {
          return takes_part(step, memory, layer, first + t, row, of_row);
        });
      }
    }
    write_last_states(step, memory, layer, d * rows * layer.hidden, direction.states);
  }
}

/// Makes the job of a direction for RowKernels.
[[gnu::noinline, gnu::cold]] void bind_row(const Step& step, const Memory& memory, const Layer& layer, Index d,
                                           RowSteps& job) {
  const bool reverse = layer.reverse || d == 1;
  const Index width = layer.directions * layer.hidden, first = reverse ? layer.steps - 1 : 0;
  job.steps = layer.steps, job.input = layer.input, job.hidden = layer.hidden;
  job.of_input = step.packed.data() + d * static_cast<Index>(layer.weights);
  job.of_state = job.of_input + layer.recurrent;
  job.x_step = reverse ? -layer.input : layer.input, job.y_step = reverse ? -width : width;
  job.x = step.floats(kRecurrentX, memory) + first * layer.input;
  job.y = step.result(0, memory) + first * width + d * layer.hidden;
  job.head = step.head.data();
  if (job.head != nullptr) job.y = step.result(0, memory), job.head_bias = step.f[0];
  job.in_place = layer.directions == 1;  // then the states have buffers of their own, with room up to an alignment
  for (Index k = 0; k < layer.cell.states; ++k) {
    const auto read = static_cast<std::size_t>(kRecurrentFirstState + k), write = static_cast<std::size_t>(1 + k);
    job.first[k] = step.n[k] == 0 ? nullptr : step.floats(read, memory) + d * layer.hidden;
    job.last[k] = write < step.writes.size() ? step.result(write, memory) + d * layer.hidden : nullptr;
    job.in_place = job.in_place && job.first[k] != nullptr && job.first[k] == job.last[k];
  }
  job.spare = step.spare(memory) + layer.directions * kFloatsOfJob;
}

/// The job of a direction. It stays in the scratch: a call of one step has time for little else.
RowSteps& job_of_row(const Step& step, const Memory& memory, const Layer& layer, Index d) {
  float* const place = step.spare(memory) + d * kFloatsOfJob;
  RowSteps& job = *std::launder(reinterpret_cast<RowSteps*>(place));
  if (job.spare == nullptr) bind_row(step, memory, layer, d, *new (place) RowSteps());
  return job;
}

/// The only sequence of a batch, by RowKernels.
void run_row(const Step& step, const Memory& memory) {
  const auto& layer = *static_cast<const Layer*>(step.plan.get());
  if (layer.directions == 2) layer.cell.row.run(job_of_row(step, memory, layer, 1));
  layer.cell.row.run(job_of_row(step, memory, layer, 0));
}

/// Whether RowKernels run the layer: one sequence. Where W is large, products with many inputs at once read it less
/// often.
bool is_for_rows(const Layer& layer) {
  constexpr Index few_steps = 4, small = 1 << 14;
  const bool whole = layer.lengths == 0 && layer.start == 0;
  return layer.rows == 1 && whole && !layer.quantised && layer.cell.row.run != nullptr &&
         (layer.steps <= few_steps || layer.input * layer.units <= small);
}

Status check_weights(const Preparation& p, std::size_t read, const Shape& shape) {
  if (!p.has(read)) return {};
  PENSTOCK_TRY(p.only(read, {Type::f32}));
  if (p.shape(read) != shape) {
    return p.refuse("input " + text_of(static_cast<Index>(read) + 1) + " has shape " + text_of(p.shape(read)) +
                    ", not " + text_of(shape));
  }
  const bool is_state = shape.size() == 3 && read >= kRecurrentFirstState;
  if (!is_state && p.known(read) == nullptr)
    return p.unsupported("its weights depend on the inputs; supported: constants");
  return {};
}

Status find_cell(std::string_view name, const Kernels& kernels, Layer& layer) {
  layer.cell = kernels.gates(name);
  if (layer.cell.gates > 0) return {};
  if (!name.starts_with('{')) return Status::unsupported("there is no cell '" + std::string(name) + "'");
  PENSTOCK_TRY(read_custom_cell(name, layer.equations));
  const custom::CustomCell& cell = layer.equations->cell;
  if (cell.scan || layer.equations->averages) return Status::unsupported("it has a scan cell, or one that reads means");
  layer.cell.gates = cell.gates, layer.cell.states = static_cast<Index>(cell.states.size());
  layer.cell.run = kernels.custom_gates;
  layer.learnt = static_cast<Index>(cell.learnt.size());
  return {};
}

/// Sizes, as the input and the weights have them.
Status read_sizes(const Preparation& p, Layer& layer) {
  const std::string_view direction = p.text("direction", "forward");
  if (direction != "forward" && direction != "reverse" && direction != "bidirectional") {
    return p.refuse("'direction' is '" + std::string(direction) + "', not forward, reverse or bidirectional");
  }
  layer.reverse = direction == "reverse";
  layer.quantised = p.integer("quantised", 0) != 0;
  if (layer.quantised && layer.cell.run_first != nullptr) return p.unsupported("eight bits for a cell of two phases");
  layer.directions = direction == "bidirectional" ? 2 : 1;
  if (p.integer("heads", 1) != 1) return p.unsupported("it has " + text_of(p.integer("heads", 1)) + " heads, not 1");
  PENSTOCK_TRY(p.only(kRecurrentX, {Type::f32}));
  if (p.rank(kRecurrentX) != 3 || p.rank(kRecurrentWeightIh) != 3) {
    return p.refuse("an input of shape " + text_of(p.shape(kRecurrentX)) + " or weights of shape " +
                    text_of(p.shape(kRecurrentWeightIh)) + " do not have three axes");
  }
  layer.steps = p.extent(kRecurrentX, 0), layer.rows = p.extent(kRecurrentX, 1), layer.input = p.extent(kRecurrentX, 2);
  if (!kIsRuntime && layer.quantised && p.variant() == 1) layer.each_row = true;
  layer.hidden = p.extent(kRecurrentWeightIh, 1) / layer.cell.gates, layer.units = layer.cell.gates * layer.hidden;
  if (layer.hidden >= 1 && layer.input >= 1) return {};
  return p.refuse("weights of shape " + text_of(p.shape(kRecurrentWeightIh)) + " leave no inputs or no units");
}

/// Returns whether both matrices are whole numbers of eight bits, with a scale for each unit beside them, and the
/// kernels multiply such.
bool fit_bytes(const Preparation& p, const Layer& layer) {
  constexpr Index most = 1 << 15;  // sums of so many products fit 32 bits
  if (p.kernels().multiply_bytes == nullptr || std::max(layer.input, layer.hidden) > most) return false;
  return std::ranges::all_of(std::array{kRecurrentWeightIh, kRecurrentWeightHh}, [&](std::size_t read) {
    return std::all_of(p.known_floats(read), p.known_floats(read) + p.count(read),
                       [](float value) { return std::abs(value + 0.5f) < 128 && value == std::nearbyint(value); });
  });
}

Status check_sizes(const Preparation& p, Layer& layer) {
  const Index all = layer.units + layer.learnt * layer.hidden, d = layer.directions;
  if (!p.has(kRecurrentWeightHh)) return p.refuse("its recurrent weights are missing");
  PENSTOCK_TRY(check_weights(p, kRecurrentWeightIh, {d, layer.units, layer.input}));
  PENSTOCK_TRY(check_weights(p, kRecurrentWeightHh, {d, layer.units, layer.hidden}));
  PENSTOCK_TRY(check_weights(p, kRecurrentBiasIh, {d, all}));
  PENSTOCK_TRY(check_weights(p, kRecurrentBiasHh, {d, layer.units}));
  for (Index k = 0; k < layer.cell.states; ++k) {
    PENSTOCK_TRY(check_weights(p, static_cast<std::size_t>(kRecurrentFirstState + k), {d, layer.rows, layer.hidden}));
  }
  const std::size_t behind = kRecurrentFirstState + static_cast<std::size_t>(layer.cell.states);
  for (const std::size_t read : {behind, behind + 1}) {
    if (!p.has(read)) continue;
    PENSTOCK_TRY(p.only(read, {Type::i32, Type::i64}));
    const Index count = read == behind ? layer.rows : 1;
    if (p.count(read) != count)
      return p.refuse("its lengths or its first step have the shape " + text_of(p.shape(read)) + ", not [" +
                      text_of(count) + "]");
    (read == behind ? layer.lengths : layer.start) = read;
  }
  layer.scale = behind + 2;
  for (const std::size_t read : {behind + 2, behind + 3}) PENSTOCK_TRY(check_weights(p, read, {d, layer.units}));
  layer.bytes = !kIsRuntime && layer.quantised && fit_bytes(p, layer);
  if (layer.learnt > 0 && !p.has(kRecurrentBiasIh)) return p.refuse("the learnt vectors of its cell are missing");
  return {};
}

/// Packs the weights of all directions.
void pack(const Preparation& p, Layer& layer, AlignedVector<float>& packed) {
  const Index panel = p.kernels().panel_columns, units = layer.units, first = layer.first_units();
  const auto room = [&](Index columns, Index inner) {
    if (!kIsRuntime && layer.bytes) return static_cast<std::size_t>(p.kernels().byte_panels(inner, columns));
    return static_cast<std::size_t>((columns + panel - 1) / panel * panel * inner);
  };
  layer.recurrent = room(units, layer.input);
  layer.second = layer.recurrent + room(first, layer.hidden);
  layer.biases = layer.second + room(units - first, layer.hidden);
  layer.scales = layer.biases + static_cast<std::size_t>(2 * units + layer.learnt * layer.hidden);
  layer.weights = (layer.scales + static_cast<std::size_t>(layer.quantised ? 2 * units : 0) + 15) / 16 * 16;
  packed.assign(layer.weights * static_cast<std::size_t>(layer.directions), 0.0f);
  for (Index direction = 0; direction < layer.directions; ++direction) {
    float* const to = packed.data() + direction * static_cast<Index>(layer.weights);
    const auto pack_rows = [&](std::size_t read, Index inner, Index begin, Index end, std::size_t place) {
      const float* const from = p.known_floats(read) + (direction * units + begin) * inner;
      if (!kIsRuntime && layer.bytes) return p.kernels().pack_bytes(inner, end - begin, from, to + place);
      StridedLoop loop;
      loop.add(inner, {end - begin, 1, 0, 0});
      loop.add(end - begin, {1, inner, 0, 0});
      AlignedVector<float> panels;
      pack_panels(from, inner, end - begin, loop, panel, 1, panels);
      std::ranges::copy(panels, to + place);
    };
    pack_rows(kRecurrentWeightIh, layer.input, 0, units, 0);
    pack_rows(kRecurrentWeightHh, layer.hidden, 0, first, layer.recurrent);
    if (first < units) pack_rows(kRecurrentWeightHh, layer.hidden, first, units, layer.second);
    float* const bias = to + layer.biases;
    if (p.has(kRecurrentBiasIh)) {
      const Index learnt = layer.learnt * layer.hidden;
      const float* const from = p.known_floats(kRecurrentBiasIh) + direction * (units + learnt);
      std::copy_n(from, units, bias);
      std::copy_n(from + units, learnt, bias + 2 * units);
    }
    if (p.has(kRecurrentBiasHh)) std::copy_n(p.known_floats(kRecurrentBiasHh) + direction * units, units, bias + units);
    float* scales = to + layer.scales;
    for (std::size_t read = layer.scale; layer.quantised && read < layer.scale + 2; ++read, scales += units) {
      if (p.has(read)) std::copy_n(p.known_floats(read) + direction * units, units, scales);
      if (!p.has(read)) std::fill_n(scales, units, 1.0f);
    }
  }
}

/// Packs them for RowKernels.
void pack_for_rows(const Preparation& p, Layer& layer, AlignedVector<float>& packed) {
  const RowKernels& row = layer.cell.row;
  const auto room = [&](Index inner) {
    return static_cast<std::size_t>((inner + 1) * layer.cell.gates * row.padded(layer.hidden));
  };
  layer.recurrent = room(layer.input);
  layer.weights = layer.recurrent + room(layer.hidden);
  packed.assign(layer.weights * static_cast<std::size_t>(layer.directions), 0.0f);
  for (Index direction = 0; direction < layer.directions; ++direction) {
    float* const to = packed.data() + direction * static_cast<Index>(layer.weights);
    const auto pack_matrix = [&](std::size_t weight, std::size_t bias, Index inner, float* panels) {
      const float* const biases = p.has(bias) ? p.known_floats(bias) + direction * layer.units : nullptr;
      row.pack(inner, layer.hidden, p.known_floats(weight) + direction * layer.units * inner, biases, panels);
    };
    pack_matrix(kRecurrentWeightIh, kRecurrentBiasIh, layer.input, to);
    pack_matrix(kRecurrentWeightHh, kRecurrentBiasHh, layer.hidden, to + layer.recurrent);
  }
}

Status prepare_recurrent(Preparation& p) {
  const auto layer = std::make_shared<Layer>();
  PENSTOCK_TRY(find_cell(p.text("cell", ""), p.kernels(), *layer));
  PENSTOCK_TRY(read_sizes(p, *layer));
  PENSTOCK_TRY(check_sizes(p, *layer));
  const Index states = layer->cell.states, rows = layer->rows, hidden = layer->hidden;
  PENSTOCK_TRY(p.write(0, Type::f32, {layer->steps, rows, layer->directions * hidden}));
  for (Index k = 0; k < states; ++k) {
    PENSTOCK_TRY(p.write(static_cast<std::size_t>(1 + k), Type::f32, {layer->directions, rows, hidden}));
    p.step.n.push_back(p.has(static_cast<std::size_t>(kRecurrentFirstState + k)));
  }
  p.step.plan = layer;
  p.step.carries_states = true;
  if (is_for_rows(*layer)) {
    const Index padded = layer->cell.row.padded(hidden);
    const Index jobs = layer->directions * kFloatsOfJob;
    p.run(&run_row, static_cast<std::size_t>(jobs + (states + 1) * padded) * sizeof(float));
    p.step.keeps_scratch = true;
    p.step.takes_head = layer->directions == 1 && !layer->reverse;
    pack_for_rows(p, *layer, p.step.packed.own());
    return {};
  }
  constexpr Index rows_of_piece = 96;
  layer->piece = std::clamp<Index>(rows_of_piece / std::max<Index>(rows, 1), 1, std::max<Index>(layer->steps, 1));
  Index spare = rows * (states * hidden + (layer->piece + 1) * layer->units);
  if (layer->cell.run_first != nullptr) spare += rows * (1 + layer->cell.first) * hidden;
  if (layer->quantised) {
    layer->ranges_place = spare + layer->rounding();
    spare = layer->ranges_place + 2 * layer->ranges() * kFloatsOfRange;
  }
  p.run(&run_recurrent, static_cast<std::size_t>(spare) * sizeof(float));
  pack(p, *layer, p.step.packed.own());
  return {};
}

}  // namespace

Status find_cell_sizes(std::string_view cell, CellSizes& sizes) {
  Layer layer;
  PENSTOCK_TRY(find_cell(cell, kernels_in_use(), layer));
  sizes = {layer.cell.gates, layer.cell.states};
  return {};
}

Operators recurrent_operators() {
  static constexpr Operator operators[] = {
    {"Recurrent", prepare_recurrent, 2, 16},
#if !PENSTOCK_RUNTIME
    {"RowRecurrent", prepare_recurrent, 2, 16, 1},  // of give_row_ranges()
#endif
  };
  return operators;
}

}  // namespace penstock::network
