#include "backend/cuda/scan/scan.h"

#include <algorithm>
#include <cstdlib>
#include <string_view>

#include "backend/cuda/driver/range.h"
#include "backend/cuda/scan/scan_fill.h"
#include "base/check.h"

namespace penstock::cuda {
namespace {

using namespace fill;  // NOLINT(google-build-using-namespace): one file's worth of a header

struct NamedSequence {
  std::string_view name;
  bool gradient;  // of what has that name
  DeviceSequence sequence;
};

/// All tensors of a call; not on the heap, as every call is checked.
struct Sequences {
  std::array<NamedSequence, 8> items;
  std::size_t count = 0;

  void add(std::string_view name, bool gradient, const DeviceSequence& sequence) {
    items[count++] = {name, gradient, sequence};
  }
  void add(const ScanRule& rule, int terms, bool gradient, const ScanTerms& sequences) {
    for (std::size_t g = 0; g < static_cast<std::size_t>(terms); ++g) add(rule.names[g], gradient, sequences[g]);
  }
  const NamedSequence* begin() const { return items.data(); }
  const NamedSequence* end() const { return items.data() + count; }
};

Sequences sequences_of(const ScanForward& call) {
  Sequences all;
  all.add("y", false, call.y);
  all.add(call.shape.rule, call.shape.rule.gates, false, call.terms);
  return all;
}
Sequences sequences_of(const ScanBackward& call) {
  Sequences all;
  all.add("y", false, call.y);
  all.add("y", true, call.dy);
  all.add(call.shape.rule, call.shape.rule.read_back, false, call.terms);
  all.add(call.shape.rule, call.shape.rule.gates, true, call.dterms);
  return all;
}

constexpr bool is_backward(const ScanForward&) { return false; }
constexpr bool is_backward(const ScanBackward&) { return true; }

int sequence_alignment(const DeviceSequence& sequence, Index bytes) {
  return common_alignment(
      16, {static_cast<std::int64_t>(sequence.data), sequence.row_stride * bytes, sequence.step_stride * bytes});
}

void check_sequence(const NamedSequence& named, const ScanShape& shape) {
  const DeviceSequence& sequence = named.sequence;
  const std::string_view of = named.gradient ? "the gradient of " : "";
  const std::string_view name = named.name;
  require(sequence.data != 0, "{}{} must be an address on the GPU, not null", of, name);
  const Index bytes = plan::size_of(shape.storage);
  require(sequence.data % static_cast<DeviceAddress>(bytes) == 0, "{}{} must be aligned to its {} bytes a value", of,
          name, bytes);
  // Steps may lie apart in any order, but the channels of one must not run into another's.
  const auto apart = [&](Index stride, Index count) { return count < 2 || std::abs(stride) >= shape.channels; };
  require(apart(sequence.step_stride, shape.steps), "the step stride of {}{} must be at least the {} channels, not {}",
          of, name, shape.channels, sequence.step_stride);
  require(shape.cu_seqlens != 0 || apart(sequence.row_stride, shape.rows),
          "the row stride of {}{} must be at least the {} channels, not {}", of, name, shape.channels,
          sequence.row_stride);
  constexpr Index limit = Index{1} << 46;  // more bytes than any device has
  require(std::abs(sequence.step_stride) < limit / shape.steps && std::abs(sequence.row_stride) < limit / shape.rows,
          "the strides of {}{} ({} and {}) reach beyond any memory", of, name, sequence.row_stride,
          sequence.step_stride);
}

template <class Call>
plan::GpuScanProblem problem_of_call(const Call& call) {
  const ScanShape& shape = call.shape;
  require(shape.rows >= 1 && shape.steps >= 1 && shape.channels >= 1,
          "rows, steps and channels must be at least 1, not {}, {} and {}", shape.rows, shape.steps, shape.channels);
  require_argument(shape.steps <= plan::GpuScanProblem::max_size, "steps", shape.steps,
                   "at most {}, packed rows together", plan::GpuScanProblem::max_size);
  require(shape.lengths == 0 || shape.cu_seqlens == 0, "lengths and cu_seqlens exclude each other");
  require_argument(shape.longest >= 0 && shape.longest <= shape.steps, "longest", shape.longest, "0 to {} (the steps)",
                   shape.steps);
  plan::GpuScanProblem problem;
  problem.gates = shape.rule.gates;
  problem.read_back = shape.rule.read_back;
  problem.computed = shape.rule.computed;
  problem.logarithms = shape.rule.logarithms;
  problem.learnt = shape.rule.learnt;
  require((shape.learnt != 0) == (shape.rule.learnt > 0), "learnt vectors must be {}",
          shape.rule.learnt > 0 ? "an address on the GPU, as the cell reads some" : "null, as the rule reads none");
  problem.storage = shape.storage;
  problem.rows = shape.rows;
  problem.steps = shape.cu_seqlens != 0 && shape.longest > 0 ? shape.longest : shape.steps;
  problem.channels = shape.channels;
  problem.backward = is_backward(call);
  problem.lengths = shape.lengths != 0 || shape.cu_seqlens != 0;
  problem.reset = shape.reset != 0, problem.restarts = shape.restarts.data != 0;
  require(!problem.restarts || (problem.reset && shape.cu_seqlens == 0 && !shape.corrects),
          "restarts need a reset mask, and neither packed rows nor corrections");
  problem.algorithm = shape.corrects ? plan::ScanAlgorithm::direct : shape.algorithm;
  for (const NamedSequence& named : sequences_of(call)) {
    check_sequence(named, shape);
    problem.alignment = std::min(problem.alignment, sequence_alignment(named.sequence, plan::size_of(shape.storage)));
  }
  return problem;
}

}  // namespace

std::string_view storage_type(plan::Storage storage) {
  return storage == plan::Storage::f32 ? "F32" : storage == plan::Storage::bf16 ? "Bf16" : "F16";
}

plan::GpuScanProblem problem_of(const ScanForward& call) { return problem_of_call(call); }
plan::GpuScanProblem problem_of(const ScanBackward& call) { return problem_of_call(call); }

given::ScanTile scan_tile(const plan::GpuScanProblem& problem, const plan::GpuScanPlan& plan) {
  return {.vector = plan.vector,
          .lanes = plan.lanes,
          .groups = plan.groups,
          .steps = plan.steps,
          .lengths = problem.lengths,
          .reset = problem.reset,
          .restarts = problem.restarts};
}

KernelSource scan_source(const ScanRule& rule, const plan::GpuScanProblem& problem, const plan::GpuScanPlan& plan,
                         bool corrects) {
  KernelSource source;
  source.entry = problem.backward ? "ScanBackward" : "ScanForward";
  source.file = fmt::format("backend/cuda/kernels/scan/scan_{}.cuh", problem.backward ? "backward" : "forward");
  const given::ScanPass pass = {.tile = scan_tile(problem, plan),
                                .direct = plan.algorithm == plan::ScanAlgorithm::direct,
                                .corrects = corrects,
                                .piece = plan.piece,
                                .window = plan.window,
                                .blocks = plan.blocks,
                                .shared_bytes = static_cast<int>(plan.shared),
                                .read_back = problem.backward ? rule.read_back : 0,
                                .keep_terms = !problem.backward && plan.keep};
  source.constants = {{"using Storage", storage_type(problem.storage)}, pass_constant("ScanPass", pass)};
  source.rule = rule.text;
  source.early = true;
  source.shared_bytes = static_cast<int>(plan.shared);
  source.plan = plan.explain();
  return source;
}

template <class Call>
void ScanExecutable::prepare(Device& device, const Call& call, const plan::GpuScanPlan& plan) {
  rule_ = call.shape.rule.text;
  problem_ = problem_of(call);
  corrects_ = call.shape.corrects;
  plan_ = plan;
  workspace_bytes_ = static_cast<std::size_t>(plan_.workspace_bytes());
  kernel_ = &Kernel::load(device, scan_source(call.shape.rule, problem_, plan_, corrects_));
}

ScanExecutable::ScanExecutable(Device& device, const ScanForward& call)
    : ScanExecutable(device, call, plan_gpu_scan(problem_of(call), device.model())) {}
ScanExecutable::ScanExecutable(Device& device, const ScanBackward& call)
    : ScanExecutable(device, call, plan_gpu_scan(problem_of(call), device.model())) {}
ScanExecutable::ScanExecutable(Device& device, const ScanForward& call, const plan::GpuScanPlan& plan) {
  prepare(device, call, plan);
}
ScanExecutable::ScanExecutable(Device& device, const ScanBackward& call, const plan::GpuScanPlan& plan) {
  prepare(device, call, plan);
}

template <class Call>
void ScanExecutable::launch(const Call& call, DeviceAddress workspace, StreamHandle stream) const {
  const Range range(problem_.backward ? "penstock scan backward" : "penstock scan forward");
  const plan::GpuScanProblem problem = problem_of(call);
  require(call.shape.rule.text == rule_ && problem.storage == problem_.storage && problem.lengths == problem_.lengths &&
              problem.reset == problem_.reset && problem.restarts == problem_.restarts &&
              call.shape.corrects == corrects_ && problem.alignment >= problem_.alignment &&
              problem.channels == problem_.channels && problem.rows <= problem_.rows && problem.steps <= problem_.steps,
          "the call must have the form that was prepared: rule, storage, lengths, resets and channels, an "
          "alignment of {} "
          "bytes, and at most {} rows of {} steps",
          problem_.alignment, problem_.rows, problem_.steps);
  ScanArguments arguments = arguments_of_shape(call.shape, plan_, workspace);
  set_tensors(arguments, call);
  arguments.step_groups = static_cast<int>(step_groups());
  unsigned blocks = 0;
  if (plan_.algorithm == plan::ScanAlgorithm::direct) {
    blocks = static_cast<unsigned>((Index{arguments.chains} + plan_.groups - 1) / plan_.groups);
  } else {
    arguments.tiles = static_cast<unsigned>(arguments.chains * plan_.chunks(problem.steps));
    blocks = std::min(arguments.tiles, static_cast<unsigned>(plan_.grid));
  }
  kernel_->launch(blocks, static_cast<unsigned>(plan_.threads()), arguments, stream);
}

void ScanExecutable::run(const ScanForward& call, DeviceAddress workspace, StreamHandle stream) const {
  require(!problem_.backward, "a backward recurrence was prepared, not a forward one");
  launch(call, workspace, stream);
}
void ScanExecutable::run(const ScanBackward& call, DeviceAddress workspace, StreamHandle stream) const {
  require(problem_.backward, "a forward recurrence was prepared, not a backward one");
  launch(call, workspace, stream);
}

}  // namespace penstock::cuda
