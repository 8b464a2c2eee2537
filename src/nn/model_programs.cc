#include "nn/model_programs.h"

#include <algorithm>

#include "backend/cpu/kernels.h"
#include "nn/model_graph.h"
#include "ops/saturation.h"

namespace penstock::nn {

namespace {

// A reader of files has two shapes, its chunks and the last one; a few more callers may take turns.
constexpr std::size_t kept_programs = 8;

/// All of a target that a program depends on; kernels of the CPU are chosen when it is made.
std::string key_of(const ops::Target& target) {
  const Execution& execution = target.execution;
  return fmt::format("{} {} {}x{} {}{}{}{} {} {} {} {}", to_string(target.device), to_string(target.dtype), target.rows,
                     target.steps, target.lengths ? "l" : "", target.reset ? "r" : "", target.training ? "t" : "",
                     target.step ? "s" : "", to_string(execution.algorithm), execution.exact,
                     to_string(execution.precision), cpu::isa_generation());
}

}  // namespace

std::shared_ptr<const graph::Program> forward_program(const ModelSpec& spec, const DataDescription& data,
                                                      const ops::Target& target) {
  GraphBuilder builder(target);
  add_model(builder, spec, data, graph::Home::outputs);
  return std::make_shared<graph::Program>(builder.take_graph(), target);
}

std::shared_ptr<const graph::Program> training_program(const ModelSpec& spec, const DataDescription& data,
                                                       const ops::Target& target) {
  GraphBuilder builder(target);
  const ModelEnds ends = add_model(builder, spec, data, graph::Home::outputs);
  Index watched = 0;
  for (const ValueId y : builder.recurrent_outputs()) {
    const ValueId counts =
        builder.external("saturation", graph::Home::status, graph::Extent::fixed, 2, DType::f64, 2 * watched++);
    builder.node(ops::saturation(builder.width_of(y)), {y}, {counts}, graph::Phase::forward);
  }
  builder.backward(ends.head, builder.external("doutputs", graph::Home::doutputs, graph::Extent::positions,
                                               data.output_size(), target.dtype));
  return std::make_shared<graph::Program>(builder.take_graph(), target);
}

ModelPrograms::Entry& ModelPrograms::entry(const ModelSpec& spec, const DataDescription& data,
                                           const ops::Target& target) {
  std::string key = key_of(target);
  const auto found = std::ranges::find(entries_, key, &Entry::key);
  if (found != entries_.end()) {
    entries_.splice(entries_.begin(), entries_, found);
  } else {
    std::shared_ptr<const graph::Program> program = forward_program(spec, data, target);
    entries_.push_front({std::move(key), std::move(program), {}});
    if (entries_.size() > kept_programs) entries_.pop_back();
  }
  return entries_.front();
}

std::shared_ptr<const graph::Program> ModelPrograms::program(const ModelSpec& spec, const DataDescription& data,
                                                             const ops::Target& target) {
  const std::lock_guard lock(guard_);
  return entry(spec, data, target).program;
}

ModelPrograms::Lease ModelPrograms::take(const ModelSpec& spec, const DataDescription& data, const ops::Target& target,
                                         const std::shared_ptr<ops::Queue>& queue) {
  std::shared_ptr<const graph::Program> program;
  std::string key;
  {
    const std::lock_guard lock(guard_);
    Entry& held = entry(spec, data, target);
    if (!held.idle.empty()) {
      std::unique_ptr<graph::Workspace> workspace = std::move(held.idle.back());
      held.idle.pop_back();
      return {*this, held.key, std::move(workspace)};
    }
    program = held.program;
    key = held.key;
  }
  return {*this, std::move(key), std::make_unique<graph::Workspace>(std::move(program), queue)};
}

void ModelPrograms::give_back(const std::string& key, std::unique_ptr<graph::Workspace> workspace) {
  const std::lock_guard lock(guard_);
  const auto found = std::ranges::find(entries_, key, &Entry::key);
  if (found != entries_.end()) found->idle.push_back(std::move(workspace));
}

}  // namespace penstock::nn
