// Layers of a cell: a row of the batch and a direction after the other, step by step by the kernels of streams.

#include <algorithm>

#include "network/cell.h"
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

void run_recurrent(const Step& step, const Memory& memory) {
  const auto& layer = *static_cast<const Layer*>(step.plan.get());
  const Index width = layer.directions * layer.hidden;
  for (Index direction = 0; direction < layer.directions; ++direction) {
    const bool reverse = layer.reverse || direction == 1;
    cpu::CustomStep<float> job =
        job_of(layer, step.packed.data() + direction * static_cast<Index>(layer.panels), step.spare(memory));
    for (Index row = 0; row < layer.rows; ++row) {
      const Index place = (direction * layer.rows + row) * layer.hidden;
      for (Index k = 0; k < layer.cell.states; ++k) {
        const auto read = static_cast<std::size_t>(kRecurrentFirstState + k);
        if (step.n[k] != 0) {
          std::copy_n(step.floats(read, memory) + place, layer.hidden, job.state[k]);
        } else {
          std::fill_n(job.state[k], layer.hidden, 0.0f);
        }
      }
      for (Index i = 0; i < layer.steps; ++i) {
        const Index position = (reverse ? layer.steps - 1 - i : i) * layer.rows + row;
        job.x = step.floats(kRecurrentX, memory) + position * layer.input;
        job.y = step.result(0, memory) + position * width + direction * layer.hidden;
        layer.cell.step(job);
        job.backwards = !job.backwards;
      }
      for (Index k = 0; k < layer.cell.states && 1 + k < static_cast<Index>(step.writes.size()); ++k) {
        std::copy_n(job.state[k], layer.hidden, step.result(static_cast<std::size_t>(1 + k), memory) + place);
      }
    }
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
  layer->panels =
      cell.panels(layer->input, layer->hidden, layer->heads) + static_cast<std::size_t>(cell.learnt * layer->hidden);
  layer->panels = (layer->panels + 15) / 16 * 16;
  Step& step = p.run(&run_recurrent, (static_cast<std::size_t>(cell.states * layer->hidden) + cell.workspace) * 4);
  for (Index k = 0; k < cell.states; ++k) step.n.push_back(p.has(static_cast<std::size_t>(kRecurrentFirstState + k)));
  pack(p, *layer, step.packed);
  step.plan = layer;
  return {};
}

}  // namespace

Operators recurrent_operators() {
  static constexpr Operator operators[] = {{"Recurrent", prepare_recurrent, 2, 16}};
  return operators;
}

}  // namespace penstock::network
