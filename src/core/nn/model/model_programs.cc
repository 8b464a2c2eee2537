#include "nn/model/model_programs.h"

#include <algorithm>

#include "backend/cpu/instruction_sets.h"
#include "base/threads.h"
#include "nn/model/model_graph.h"
#include "ops/training/saturation.h"

namespace penstock::nn {

using graph::Extent;
using graph::Home;
using graph::Phase;

namespace {

/// Values that pass between the ops of a training step, in Home::status.
struct StepValues {
  ValueId state, time_fraction;
};

StepValues step_values(GraphBuilder& builder) {
  constexpr auto bytes = static_cast<Index>(sizeof(StepState));
  return {builder.external("step", Home::status, Extent::fixed, bytes, DType::u8),
          builder.external("time_fraction", Home::status, Extent::fixed, 1, DType::f64,
                           ops::StatusLayout::time_fraction / 8)};
}

/// Counts of saturated outputs of every recurrent layer.
void add_watches(GraphBuilder& builder) {
  Index offset = ops::StatusLayout::watched / 8;
  for (const ValueId y : builder.recurrent_outputs()) {
    const ValueId counts = builder.external("saturation", Home::status, Extent::fixed, 2, DType::i64, offset);
    builder.node(ops::saturation(builder.width_of(y)), {y}, {counts}, Phase::forward);
    offset += 2;
  }
}

/// The loss, and its gradient by the last layer's outputs, in training.
ValueId add_loss(GraphBuilder& builder, LossKind kind, const DataDescription& data, const ModelEnds& ends,
                 const StepValues& step) {
  const Index width = data.output_size();
  const DType master = builder.target().master();
  const auto given = [&](const char* name, Home home, Index values, DType type) {
    return builder.external(name, home, Extent::positions, values, type);
  };
  const bool training = builder.target().has(CallFlag::training), labels = kind == LossKind::cross_entropy;
  const ValueId doutputs = training ? builder.activation("doutputs", width) : ValueId{};
  builder.node(
      ops::loss({.kind = kind, .width = width, .outputs = builder.type_of(ends.outputs), .gradient = training}),
      {ends.outputs, labels ? given("labels", Home::labels, 1, DType::i32) : ValueId{},
       labels ? ValueId{} : given("targets", Home::targets, width, master),
       labels ? ValueId{} : given("target_weights", Home::target_weights, width, master)},
      {doutputs, step.state}, Phase::forward);
  if (training && builder.state_size() > 0) {
    const ValueId state = builder.external("state_out", Home::state_out, Extent::rows, builder.state_size(), master);
    builder.node(ops::check_finite(builder.state_size()), {state}, {step.state}, Phase::forward);
  }
  return doutputs;
}

/// The parameters of the first block, and those of the last; of a single one, what lies above it: the last norm and the
/// head. Ranges end at multiples of 4, as the kernel on a GPU reads them; gradients that pad a parameter are zero.
ops::SquareRanges end_blocks(const ParameterLayout& layout) {
  const auto range_of = [&](Index block, Index after, Index& begin, Index& end) {
    for (const ParameterEntry& entry : layout.entries()) {
      if (entry.block != block || entry.offset < after) continue;
      if (end == 0) begin = entry.offset;
      end = (entry.offset + entry.size + 3) / 4 * 4;
    }
  };
  Index last = -1;
  for (const ParameterEntry& entry : layout.entries()) last = std::max(last, entry.block);
  ops::SquareRanges ranges;
  range_of(0, 0, ranges.first_begin, ranges.first_end);
  range_of(last > 0 ? last : -1, ranges.first_end, ranges.last_begin, ranges.last_end);
  return ranges;
}

/// Returns whether Muon updates a parameter: a matrix between layers, not the first or the last one.
bool is_hidden_matrix(const ParameterEntry& entry) {
  return entry.block >= 0 && entry.shape.size() == 2 && entry.decay;
}

void add_update(GraphBuilder& builder, const TrainingShape& training, const StepValues& step) {
  const Index size = builder.layout().size();
  const DType master = builder.target().master();
  const auto store = [&](const char* name, Home home) {
    return builder.external(name, home, Extent::fixed, size, master);
  };
  ops::OptimizerShape optimizer = training.optimizer;
  ops::OptimizerShape average;
  average.kind = OptimizerKind::average;
  std::vector<ops::StoredMatrix> by_muon;
  for (const ParameterEntry& entry : builder.layout().entries()) {
    average.tensors.push_back({entry.offset, entry.size, entry.decay});
    if (optimizer.kind == OptimizerKind::muon && is_hidden_matrix(entry)) {
      by_muon.push_back({entry.offset, entry.shape[0], entry.shape[1], entry.decay});
    } else {
      optimizer.tensors.push_back(average.tensors.back());
    }
  }
  const ValueId gradients = store("gradients", Home::gradients), values = store("weights", Home::values);
  const ValueId first = store("first_moments", Home::first_moments);
  const ValueId second = moments_of(optimizer.kind) > 1 ? store("second_moments", Home::second_moments) : ValueId{};
  builder.node(ops::sum_squares(size, end_blocks(builder.layout())), {gradients}, {step.state}, Phase::update);
  builder.node(ops::decide(training.rules), {step.state}, {step.state}, Phase::update);
  builder.node(ops::optimizer(optimizer), {gradients, step.state, values, first, second},
               {values, first, second, builder.casts()}, Phase::update);
  if (!by_muon.empty()) {
    builder.node(ops::muon(by_muon), {gradients, step.state, values, first}, {values, first}, Phase::update);
  }
  if (training.rules.average > 0.0) {
    const ValueId averages = store("averages", Home::averages);
    builder.node(ops::optimizer(average), {gradients, step.state, values, averages, ValueId{}},
                 {values, averages, ValueId{}, builder.casts()}, Phase::update);
  }
  if (builder.state_size() == 0) return;
  const auto state = [&](const char* name, Home home) {
    return builder.external(name, home, Extent::rows, builder.state_size(), master);
  };
  builder.node(ops::keep_state(builder.state_size()), {state("state_out", Home::state_out), step.state},
               {state("state_in", Home::state_in)}, Phase::update);
}

}  // namespace

graph::Graph forward_graph(const ModelSpec& spec, const DataDescription& data, const ops::Target& target) {
  GraphBuilder builder(target);
  add_model(builder, spec, data, graph::Home::outputs);
  return builder.take_graph();
}

std::shared_ptr<const graph::Program> generation_program(const ModelSpec& spec, const DataDescription& data,
                                                         const Sampling& sampling, Index history,
                                                         const ops::Target& target) {
  GraphBuilder builder(target);
  const Index classes = data.output_size();
  const auto of_row = [&](const char* name, Home home, Index width, DType type, Index offset = 0) {
    return builder.external(name, home, Extent::rows, width, type, offset);
  };
  const ValueId counters = of_row("counters", Home::draws, 1, DType::i64, 1);
  builder.node(ops::sample({.classes = classes, .sampling = sampling, .history = history}),
               {builder.external("outputs", Home::outputs, Extent::positions, classes, target.master()),
                of_row("keys", Home::draws, 1, DType::i64), counters},
               {builder.external("tokens", Home::tokens, Extent::positions, 1, DType::i32), counters,
                of_row("history", Home::history, history, DType::i32)},
               Phase::forward);
  add_model(builder, spec, data, Home::outputs);
  return std::make_shared<graph::Program>(builder.take_graph(), target);
}

graph::Graph training_graph(const ModelSpec& spec, const DataDescription& data, const TrainingShape& training,
                            const ops::Target& target) {
  GraphBuilder builder(target);
  const StepValues step = step_values(builder);
  builder.node(ops::begin_step(training.rules), {step.time_fraction, step.state}, {step.state}, Phase::forward);
  const ModelEnds ends = add_model(builder, spec, data, Home::workspace);
  add_watches(builder);
  builder.backward(ends.head, add_loss(builder, training.loss, data, ends, step));
  add_update(builder, training, step);
  return builder.take_graph();
}

std::shared_ptr<const graph::Program> forward_program(const ModelSpec& spec, const DataDescription& data,
                                                      const ops::Target& target) {
  return std::make_shared<graph::Program>(forward_graph(spec, data, target), target);
}

std::shared_ptr<const graph::Program> training_program(const ModelSpec& spec, const DataDescription& data,
                                                       const TrainingShape& training, const ops::Target& target) {
  return std::make_shared<graph::Program>(training_graph(spec, data, training, target), target);
}

std::shared_ptr<const graph::Program> scoring_program(const ModelSpec& spec, const DataDescription& data, LossKind loss,
                                                      const ops::Target& target) {
  GraphBuilder builder(target);
  add_loss(builder, loss, data, add_model(builder, spec, data, Home::workspace), step_values(builder));
  return std::make_shared<graph::Program>(builder.take_graph(), target);
}

std::shared_ptr<ModelPrograms::Entry> ModelPrograms::entry(const ModelSpec& spec, const DataDescription& data,
                                                           ops::Target target) {
  target.execution.threads = resolve_threads(target.execution.threads);  // what 0 means may change
  return entries_.get({target, cpu::isa_generation()}, [&] {
    auto made = std::make_shared<Entry>();
    made->program = forward_program(spec, data, target);
    return made;
  });
}

}  // namespace penstock::nn
