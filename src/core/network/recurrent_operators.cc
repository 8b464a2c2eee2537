// Layers of a cell. A single step runs by the kernels of streams. Whole sequences of cells whose gates need no more
// than sums have the products of all inputs first, a piece at a time, and then those of a step for all rows of the
// batch.

#include <algorithm>

#include "network/cell.h"
#include "network/contraction.h"
#include "network/operators.h"

namespace penstock::network {

namespace {

/// Beyond that a step waits for the cache that all cores share.
constexpr std::size_t kOwnCache = std::size_t{1} << 19;

struct Layer {
  Cell cell;
  Index steps = 0, rows = 0, input = 0, hidden = 0, heads = 1;  // T, B, I, H
  Index directions = 1;
  bool reverse = false;
  std::size_t panels = 0;  // floats of a direction, learnt vectors included
  // For whole sequences: steps per input projection, and offsets in the weights of a direction.
  Kernels::Gates gates = nullptr;
  Index piece = 1;
  std::size_t recurrent_panels = 0, biases = 0;
};

/// A step's job but for x, y and states. `spare` [S, H], then the cell's workspace.
cpu::CustomStep<float> job_of(const Layer& layer, const float* packed, float* spare) {
  const Cell& cell = layer.cell;
  cpu::CustomStep<float> job;
  job.input = layer.input, job.hidden = layer.hidden;
  job.heads = layer.heads, job.head_size = layer.hidden / layer.heads;
  job.packed = packed;
  job.far = layer.panels * sizeof(float) > kOwnCache;
  for (Index k = 0; k < cell.states; ++k) job.state[k] = spare + k * layer.hidden;
  float* workspace = spare + cell.states * layer.hidden;
  job.operand = job.sums = workspace;
  job.between = workspace + layer.hidden;
  job.head = workspace + 2 * cell.gates * layer.hidden;
  job.custom = {cell.equations.get(), packed + layer.panels - cell.learnt * layer.hidden, layer.hidden};
  return job;
}

/// The states before the first step: [B, H] each, at `state` and so much further on.
void read_first_states(const Step& step, const Memory& memory, const Layer& layer, Index place, Index count,
                       float* state) {
  for (Index k = 0; k < layer.cell.states; ++k, state += count) {
    if (step.n[k] == 0) {
      std::fill_n(state, count, 0.0f);
    } else {
      std::copy_n(step.floats(static_cast<std::size_t>(kRecurrentFirstState + k), memory) + place, count, state);
    }
  }
}

/// Those after the last.
void write_last_states(const Step& step, const Memory& memory, const Layer& layer, Index place, Index count,
                       const float* state) {
  for (Index k = 0; k < layer.cell.states && 1 + k < static_cast<Index>(step.writes.size()); ++k, state += count) {
    std::copy_n(state, count, step.result(static_cast<std::size_t>(1 + k), memory) + place);
  }
}

void run_recurrent(const Step& step, const Memory& memory) {
  const auto& layer = *static_cast<const Layer*>(step.plan.get());
  const Index width = layer.directions * layer.hidden;
  for (Index direction = 0; direction < layer.directions; ++direction) {
    const bool reverse = layer.reverse || direction == 1;
    cpu::CustomStep<float> job =
        job_of(layer, step.packed.data() + direction * static_cast<Index>(layer.panels), step.spare(memory));
    for (Index row = 0; row < layer.rows; ++row) {
      const Index place = (direction * layer.rows + row) * layer.hidden;
      read_first_states(step, memory, layer, place, layer.hidden, step.spare(memory));
      for (Index i = 0; i < layer.steps; ++i) {
        const Index position = (reverse ? layer.steps - 1 - i : i) * layer.rows + row;
        job.x = step.floats(kRecurrentX, memory) + position * layer.input;
        job.y = step.result(0, memory) + position * width + direction * layer.hidden;
        layer.cell.step(job);
        job.backwards = !job.backwards;
      }
      write_last_states(step, memory, layer, place, layer.hidden, step.spare(memory));
    }
  }
}

/// The products of a direction: of the inputs of a piece, and of a step's states. `spare`: the states [S, B, H], wx,
/// then rh [B, G, H].
struct Products {
  Product of_x, of_h;

  Products(const Step& step, const Kernels& kernels, const Layer& layer, Index direction, float* spare) {
    const Index units = layer.cell.gates * layer.hidden;
    const float* weights = step.packed.data() + direction * static_cast<Index>(layer.panels);
    of_x.columns = of_h.columns = of_x.c_stride = of_h.c_stride = units;
    of_x.b_row = of_h.b_row = kernels.panel_columns;
    of_x.inner = of_x.a_stride = of_x.b_column = layer.input;
    of_h.inner = of_h.a_stride = of_h.b_column = layer.hidden;
    of_x.b = weights, of_h.b = weights + layer.recurrent_panels;
    of_x.column_bias = weights + layer.biases, of_h.column_bias = of_x.column_bias + units;
    of_x.c = spare + layer.cell.states * layer.rows * layer.hidden;
    of_h.c = of_x.c + layer.piece * layer.rows * units;
    of_h.a = spare, of_h.rows = layer.rows;
  }
};

/// A step of all rows: position t of a piece that begins at `first`.
void run_step(const Step& step, const Memory& memory, const Layer& layer, Index direction, const Products& products,
              Index first, Index t) {
  const Index rows = layer.rows, hidden = layer.hidden, units = layer.cell.gates * hidden;
  memory.kernels.multiply(products.of_h);
  for (Index row = 0; row < rows; ++row) {
    float* state[cpu::kMostStates];
    for (Index k = 0; k < layer.cell.states; ++k) state[k] = step.spare(memory) + (k * rows + row) * hidden;
    float* y = step.result(0, memory) + (((first + t) * rows + row) * layer.directions + direction) * hidden;
    layer.gates(hidden, products.of_x.c + (t * rows + row) * units, products.of_h.c + row * units, state, y);
  }
}

void run_sequences(const Step& step, const Memory& memory) {
  const auto& layer = *static_cast<const Layer*>(step.plan.get());
  const Index rows = layer.rows, count = rows * layer.hidden;
  for (Index direction = 0; direction < layer.directions; ++direction) {
    const bool reverse = layer.reverse || direction == 1;
    read_first_states(step, memory, layer, direction * count, count, step.spare(memory));
    Products products(step, memory.kernels, layer, direction, step.spare(memory));
    for (Index begin = 0; begin < layer.steps; begin += layer.piece) {
      const Index steps = std::min(layer.piece, layer.steps - begin);
      const Index first = reverse ? layer.steps - begin - steps : begin;
      products.of_x.a = step.floats(kRecurrentX, memory) + first * rows * layer.input;
      products.of_x.rows = steps * rows;
      memory.kernels.multiply(products.of_x);
      for (Index i = 0; i < steps; ++i) {
        run_step(step, memory, layer, direction, products, first, reverse ? steps - 1 - i : i);
      }
    }
    write_last_states(step, memory, layer, direction * count, count, step.spare(memory));
  }
}

Status check_weights(const Preparation& p, std::size_t read, const Shape& shape) {
  if (!p.has(read)) return {};
  PENSTOCK_TRY(p.only(read, {Type::f32}));
  if (p.shape(read) != shape) {
    return p.refuse("input " + text_of(static_cast<Index>(read) + 1) + " has shape " + text_of(p.shape(read)) +
                    ", not " + text_of(shape));
  }
  const bool is_state = read >= kRecurrentFirstState;
  if (!is_state && p.known(read) == nullptr)
    return p.unsupported("its weights depend on the inputs; supported: constants");
  return {};
}

/// Sizes, as the weights have them.
Status read_sizes(const Preparation& p, Layer& layer) {
  const std::string_view direction = p.text("direction", "forward");
  if (direction != "forward" && direction != "reverse" && direction != "bidirectional") {
    return p.refuse("'direction' is '" + std::string(direction) + "', not forward, reverse or bidirectional");
  }
  layer.reverse = direction == "reverse";
  layer.directions = direction == "bidirectional" ? 2 : 1;
  layer.heads = p.integer("heads", 1);
  PENSTOCK_TRY(p.only(kRecurrentX, {Type::f32}));
  if (p.rank(kRecurrentX) != 3 || p.rank(kRecurrentWeightIh) != 3) {
    return p.refuse("an input of shape " + text_of(p.shape(kRecurrentX)) + " or weights of shape " +
                    text_of(p.shape(kRecurrentWeightIh)) + " do not have three axes");
  }
  layer.steps = p.extent(kRecurrentX, 0), layer.rows = p.extent(kRecurrentX, 1), layer.input = p.extent(kRecurrentX, 2);
  return {};
}

Status check_sizes(const Preparation& p, Layer& layer) {
  const Cell& cell = layer.cell;
  const Index units = cell.gates * layer.hidden, all = (cell.gates + cell.learnt) * layer.hidden, d = layer.directions;
  if (!cell.scan && !p.has(kRecurrentWeightHh)) return p.refuse("its recurrent weights are missing");
  PENSTOCK_TRY(check_weights(p, kRecurrentWeightIh, {d, units, layer.input}));
  PENSTOCK_TRY(check_weights(p, kRecurrentWeightHh, {d, units, layer.hidden / layer.heads}));
  PENSTOCK_TRY(check_weights(p, kRecurrentBiasIh, {d, all}));
  PENSTOCK_TRY(check_weights(p, kRecurrentBiasHh, {d, units}));
  for (Index k = 0; k < cell.states; ++k) {
    PENSTOCK_TRY(check_weights(p, static_cast<std::size_t>(kRecurrentFirstState + k), {d, layer.rows, layer.hidden}));
  }
  if (cell.learnt > 0 && !p.has(kRecurrentBiasIh)) return p.refuse("the learnt vectors of its cell are missing");
  return {};
}

void pack(const Preparation& p, const Layer& layer, AlignedVector<float>& packed) {
  const Cell& cell = layer.cell;
  packed.assign(layer.panels * static_cast<std::size_t>(layer.directions), 0.0f);
  for (Index direction = 0; direction < layer.directions; ++direction) {
    const auto part = [&](std::size_t read) -> const float* {
      if (!p.has(read)) return nullptr;
      return p.known_floats(read) + direction * (p.count(read) / layer.directions);
    };
    float* to = packed.data() + direction * static_cast<Index>(layer.panels);
    const float* bias = part(kRecurrentBiasIh);
    cell.pack(layer.input, layer.hidden, layer.heads,
              {part(kRecurrentWeightIh), cell.scan ? nullptr : part(kRecurrentWeightHh), bias, part(kRecurrentBiasHh)},
              to);
    if (cell.learnt == 0) continue;
    const Index learnt = cell.learnt * layer.hidden;
    std::copy_n(bias + cell.gates * layer.hidden, learnt, to + static_cast<Index>(layer.panels) - learnt);
  }
}

/// Panels of W and R, then both biases, of each direction.
void pack_sequences(const Preparation& p, Layer& layer, AlignedVector<float>& packed) {
  const Index panel = p.kernels().panel_columns, units = layer.cell.gates * layer.hidden;
  const auto columns = static_cast<std::size_t>((units + panel - 1) / panel * panel);
  layer.recurrent_panels = columns * static_cast<std::size_t>(layer.input);
  layer.biases = layer.recurrent_panels + columns * static_cast<std::size_t>(layer.hidden);
  layer.panels = (layer.biases + 2 * static_cast<std::size_t>(units) + 15) / 16 * 16;
  packed.assign(layer.panels * static_cast<std::size_t>(layer.directions), 0.0f);
  for (Index direction = 0; direction < layer.directions; ++direction) {
    float* to = packed.data() + direction * static_cast<Index>(layer.panels);
    const auto weights = [&](std::size_t read, Index inner, float* place) {
      Walk walk;
      walk.add(inner, {units, 1, 0, 0});
      walk.add(units, {1, inner, 0, 0});
      AlignedVector<float> panels;
      pack_panels(p.known_floats(read) + direction * units * inner, inner, units, walk, panel, 1, panels);
      std::ranges::copy(panels, place);
    };
    weights(kRecurrentWeightIh, layer.input, to);
    weights(kRecurrentWeightHh, layer.hidden, to + layer.recurrent_panels);
    for (const RecurrentRead read : {kRecurrentBiasIh, kRecurrentBiasHh}) {
      float* place = to + layer.biases + (read == kRecurrentBiasIh ? 0 : units);
      if (p.has(read)) std::copy_n(p.known_floats(read) + direction * units, units, place);
    }
  }
}

/// Returns whether the layer goes over whole sequences, and prepares it.
bool prepare_sequences(Preparation& p, Layer& layer) {
  layer.gates = p.kernels().gates(p.text("cell", ""));
  if (layer.gates == nullptr || layer.heads != 1 || layer.steps < 2) return false;
  constexpr Index rows_of_piece = 96;
  layer.piece = std::clamp<Index>(rows_of_piece / std::max<Index>(layer.rows, 1), 1, layer.steps);
  const Index units = layer.cell.gates * layer.hidden;
  const Index spare = layer.rows * (layer.cell.states * layer.hidden + (layer.piece + 1) * units);
  p.run(&run_sequences, static_cast<std::size_t>(spare) * sizeof(float));
  pack_sequences(p, layer, p.step.packed);
  return true;
}

Status prepare_recurrent(Preparation& p) {
  const auto layer = std::make_shared<Layer>();
  PENSTOCK_TRY(read_sizes(p, *layer));
  // A cell needs sizes to say how much memory it takes, and the sizes need its number of gates.
  Cell& cell = layer->cell;
  PENSTOCK_TRY(find_cell(p.text("cell", ""), 1, 1, cell));
  layer->hidden = p.extent(kRecurrentWeightIh, 1) / cell.gates;
  if (layer->heads < 1 || layer->hidden < 1 || layer->input < 1 || layer->hidden % layer->heads != 0) {
    return p.refuse(text_of(layer->heads) + " heads do not fit " + text_of(layer->hidden) + " units");
  }
  PENSTOCK_TRY(find_cell(p.text("cell", ""), layer->hidden, layer->heads, cell));
  PENSTOCK_TRY(check_sizes(p, *layer));
  PENSTOCK_TRY(p.write(0, Type::f32, {layer->steps, layer->rows, layer->directions * layer->hidden}));
  for (Index k = 0; k < cell.states; ++k) {
    PENSTOCK_TRY(p.write(static_cast<std::size_t>(1 + k), Type::f32, {layer->directions, layer->rows, layer->hidden}));
  }
  for (Index k = 0; k < cell.states; ++k) p.step.n.push_back(p.has(static_cast<std::size_t>(kRecurrentFirstState + k)));
  p.step.plan = layer;
  if (prepare_sequences(p, *layer)) return {};
  layer->panels =
      cell.panels(layer->input, layer->hidden, layer->heads) + static_cast<std::size_t>(cell.learnt * layer->hidden);
  layer->panels = (layer->panels + 15) / 16 * 16;
  p.run(&run_recurrent, (static_cast<std::size_t>(cell.states * layer->hidden) + cell.workspace) * sizeof(float));
  pack(p, *layer, p.step.packed);
  return {};
}

}  // namespace

Operators recurrent_operators() {
  static constexpr Operator operators[] = {{"Recurrent", prepare_recurrent, 2, 16}};
  return operators;
}

}  // namespace penstock::network
