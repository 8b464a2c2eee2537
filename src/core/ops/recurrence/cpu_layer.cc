#include "ops/recurrence/cpu_layer.h"
#include "backend/cpu/instruction_sets.h"

#include <algorithm>

#include "base/check.h"
#include "custom/cell.h"
#include "ops/recurrence/cpu_layer_space.h"
#include "ops/recurrence/explain.h"
#include "plan/cpu/pays_for_team.h"

namespace penstock::ops {

plan::Problem layer_problem(const plan::CellTraits& cell, Index input, Index hidden, Index heads, Index rows,
                            Index steps, const Execution& execution, bool int8) {
  plan::Problem problem;
  problem.cell = &cell;
  problem.rows = rows, problem.steps = steps;
  problem.input = input, problem.hidden = hidden, problem.heads = heads;
  problem.threads = resolve_threads(execution.threads);
  problem.algorithm = execution.algorithm, problem.exact = execution.exact;
  problem.int8 = int8;
  return problem;
}

namespace {

template <class Real>
cpu::CellKernels<Real> kernels_of(const plan::CellTraits& cell, const Recurrence& form, Precision precision,
                                  bool exact) {
  if constexpr (std::is_same_v<Real, float>) {
    if (form.int8) return cpu::int8_kernels(cell.index);
  }
  if (cell.custom == nullptr) return cpu::cell_kernels<Real>(cell.index, precision, exact);
  if (precision != Precision::full) {
    fail(ErrorCode::unsupported, "precision must be full for cell {}, whose equations a program defined, not {}",
         cell.info.name, to_string(precision));
  }
  return cpu::custom_kernels<Real>(*cell.custom);
}

}  // namespace

template <class Real>
CpuLayer<Real>::CpuLayer(const Recurrence& form, Precision precision, bool exact, bool packed)
    : cell_(plan::cell_traits(form.cell)),
      x_strides_(form.x_strides),
      input_(form.input),
      hidden_(form.hidden),
      heads_(form.heads),
      reverse_(form.reverse),
      projected_(form.projected),
      packed_(packed),
      int8_(form.int8),
      restarts_(form.restarts),
      kernels_(kernels_of<Real>(cell_, form, precision, exact)),
      products_(cpu::product_kernels<Real>()),
      elements_(cpu::element_kernels<Real>()),
      isa_generation_(cpu::isa_generation()) {
  check_precision({.precision = precision});
}

template <class Real>
std::size_t CpuLayer<Real>::input_panels_offset() const {
  return cell_.info.scan ? 0 : kernels_.forward_panels(hidden_, heads_).size;
}

template <class Real>
std::size_t CpuLayer<Real>::packed_forward_size() const {
  if (projected_) return input_panels_offset();
  return input_panels_offset() + (cell_.info.scan ? kernels_.scan_panels(input_, hidden_)
                                                  : kernels_.dense_input_panels(input_, hidden_, heads_));
}

template <class Real>
std::size_t CpuLayer<Real>::packed_backward_size() const {
  if (rounds_tape()) return kernels_.rounded_scan_backward.panels(G(), input_, hidden_);
  if (cell_.info.scan) return kernels_.scan_backward.panels(G(), input_, hidden_);
  if (projected_) return input_gradient_offset();
  const Index gates = G() * hidden_;
  return input_gradient_offset() +
         (rounds_gradients() ? Carver<Real>::reals(gates * input_) : products_.product_panels(gates, input_));
}

/// Packs the weights of the state and those of the input, side by side where a thread more pays for the fewer of them.
template <class Real>
template <class First, class Second>
void CpuLayer<Real>::pack_both(int threads, const First& of_state, const Second& of_input) const {
  const Index weights = G() * hidden_ * std::min(input_, hidden_ / heads_);
  const double work = 2 * machine_.costs.packing * static_cast<double>(weights);
  run_team(threads > 1 && plan::pays_for_team(work / machine_.costs.multiply_adds) ? 2 : 1, [&](int thread, int team) {
    if (thread == 0) of_state();
    if (thread == team - 1) of_input();
  });
}

template <class Real>
void CpuLayer<Real>::pack_forward(const StoredWeights& weight_ih, const StoredWeights& weight_hh, Real* packed,
                                  int threads) const {
  if (cell_.info.scan) return kernels_.pack_scan(input_, hidden_, weight_ih, packed);
  if (projected_) return kernels_.pack_forward(hidden_, heads_, weight_hh, packed);
  pack_both(
      threads, [&] { kernels_.pack_forward(hidden_, heads_, weight_hh, packed); },
      [&] { kernels_.pack_dense_input(input_, hidden_, heads_, weight_ih, packed + input_panels_offset()); });
}

template <class Real>
void CpuLayer<Real>::pack_backward(const StoredWeights& weight_ih, const StoredWeights& weight_hh, Real* packed,
                                   int threads) const {
  if (rounds_tape()) return kernels_.rounded_scan_backward.pack(G(), input_, hidden_, weight_ih, packed);
  if (cell_.info.scan) return kernels_.scan_backward.pack(G(), input_, hidden_, weight_ih, packed);
  if (projected_) return kernels_.pack_backward(hidden_, heads_, weight_hh, packed);
  pack_both(
      threads, [&] { kernels_.pack_backward(hidden_, heads_, weight_hh, packed); },
      [&] { pack_input_gradient(weight_ih, packed + input_gradient_offset()); });
}

/// The weights of the input as the gradient of x wants them.
template <class Real>
void CpuLayer<Real>::pack_input_gradient(const StoredWeights& weight_ih, Real* packed) const {
  const Index gates = G() * hidden_;
  if (!rounds_gradients()) return products_.pack_product_panels(gates, input_, weight_ih.reals, input_, packed);
  auto* const rounded = reinterpret_cast<std::uint16_t*>(packed);
  if (weight_ih.bf16 != nullptr) {
    std::copy_n(weight_ih.bf16, gates * input_, rounded);
  } else {
    elements_.to_bf16(gates * input_, weight_ih.reals, rounded);
  }
}

template <class Real>
std::size_t CpuLayer<Real>::packed_step_size() const {
  return kernels_.step_panels(input_, hidden_, heads_) + static_cast<std::size_t>(learnt());
}

template <class Real>
void CpuLayer<Real>::pack_step(const cpu::StepWeights<Real>& weights, Real* packed) const {
  kernels_.pack_step(input_, hidden_, heads_, weights, packed);
  if (learnt() > 0) {
    std::copy_n(weights.bias_ih + G() * hidden_, learnt(), packed + kernels_.step_panels(input_, hidden_, heads_));
  }
}

template <class Real>
void CpuLayer<Real>::prepare(const Batch& batch, const Execution& execution) {
  batch_rows_.prepare(batch, x_strides_.row, x_strides_.step, input_, reverse_, !cell_.info.scan);
  const plan::Problem problem =
      layer_problem(cell_, input_, hidden_, heads_, batch.rows, batch.steps, execution, int8_);
  execution_ = execution;
  execution_.threads = problem.threads;
  if (problem == problem_) return;
  plan_ = plan::make_plan(problem, machine_);  // may refuse; the problem counts as prepared only when it has not
  problem_ = problem;
}

template <class Real>
Index CpuLayer<Real>::chunk_count() const {
  return plan_.chunk == 0 ? 0 : (batch_rows_.steps() + plan_.chunk - 1) / plan_.chunk;
}

template <class Real>
typename CpuLayer<Real>::Tape CpuLayer<Real>::tape(Real* memory) const {
  Carver<Real> carver(memory);
  Tape tape;
  const Index row = batch_rows_.cells() * hidden_;
  if (rounds_tape()) {
    tape.rounded_wx = carver.take_rounded(row * G());
  } else if (cell_.info.scan) {
    tape.wx = carver.take(row * G());
  } else {
    tape.saved = carver.take(row * cell_.saved);
    tape.prev = carver.take(row * S());
  }
  tape.size = carver.used();
  return tape;
}

template <class Real>
typename CpuLayer<Real>::ForwardSpace CpuLayer<Real>::forward_space(Real* memory, std::size_t* size) const {
  Carver<Real> carver(memory);
  ForwardSpace space;
  const Index row_state = batch_rows_.rows() * hidden_;
  space.last = carver.take(S() * row_state);
  space.zeros = carver.take(G() * hidden_);
  if (!input_on_the_way()) space.wx = carver.take(piece_steps() * batch_rows_.rows() * gates_stride());
  space.places = carver.template take_items<cpu::RowPlace<Real>>(plan_.channel_parts * batch_rows_.rows());
  if (cell_.averages) space.sums = carver.take(2 * G() * row_state);
  space.heads = carver.take(plan_.threads() * head_values());
  for (Real*& h : space.h) h = carver.take(row_state);
  space.state = carver.take((S() - 1) * row_state);
  if (cell_.phases == 2) {
    space.operand = carver.take(row_state);
    space.between = carver.take(row_state * cell_.saved);
  }
  if (kernels_.rounded_inputs != nullptr) {
    const Index inputs = projected_ ? 0 : kernels_.rounded_inputs(input_), states = rounded_states();
    space.rounded.x = carver.take_rounded((piece_steps() * batch_rows_.rows() + cpu::kRoundedRows) * inputs);
    for (std::uint16_t*& h : space.rounded.h) h = carver.take_rounded(states);
    if (cell_.phases == 2) space.rounded.operand = carver.take_rounded(states);
  }
  if (size != nullptr) *size = carver.used();
  return space;
}

template <class Real>
typename CpuLayer<Real>::ScanSpace CpuLayer<Real>::scan_space(Real* memory, std::size_t* size) const {
  Carver<Real> carver(memory);
  ScanSpace space;
  space.carry = carver.take(batch_rows_.rows() * hidden_);
  if (plan_.algorithm == Algorithm::scan) space.wx = carver.take(batch_rows_.cells() * G() * hidden_);
  space.chunks = chunk_space(carver, batch_rows_.rows() * chunk_count(), hidden_);
  if (kernels_.rounded_inputs != nullptr) {
    const Index rows = plan_.threads() * (cpu::kScanSites + cpu::kRoundedRows);
    space.rounded = carver.take_rounded(rows * kernels_.rounded_inputs(input_));
  }
  if (size != nullptr) *size = carver.used();
  return space;
}

/// Values of a state, or of what takes its place in a product, as the rounded operands of all rows.
template <class Real>
Index CpuLayer<Real>::rounded_states() const {
  const Index copies = int8_ ? plan_.channel_parts : 1;  // of those who share rows, one each
  return copies * (batch_rows_.rows() + cpu::kRoundedRows) * heads_ * kernels_.rounded_inputs(hidden_ / heads_);
}

/// Gradients of all gates at one step, as rounded operands.
template <class Real>
Index CpuLayer<Real>::rounded_step() const {
  return (batch_rows_.rows() + cpu::kRoundedRows) * heads_ * G() * kernels_.rounded_gradients(hidden_ / heads_);
}

template <class Real>
Index CpuLayer<Real>::head_values() const {
  if (!cell_.averages) return 0;
  return cpu::head_values(std::max(cell_.alive, cell_.custom->forward.slots), hidden_ / heads_);
}

/// Whole lines of the cache, and an odd number of them: rows a power of two apart would all fall into the same few
/// places of the first-level cache.
template <class Real>
Index CpuLayer<Real>::gates_stride() const {
  constexpr Index line = 64 / sizeof(Real);
  return ((G() * hidden_ + line - 1) / line | 1) * line;
}

/// Steps whose gates' gradients are summed while they are in the cache: of about as many rows as are summed at a time.
/// In bfloat16 all of them are kept.
template <class Real>
Index CpuLayer<Real>::gradient_steps() const {
  if (rounds_gradients()) return batch_rows_.steps();
  const Index rows = batch_rows_.rows();
  return std::clamp<Index>((cpu::kTransposedRows + rows / 2) / rows, 1, batch_rows_.steps());
}

/// A piece's sums are written and read again, for which the panels of the input are read once in a piece instead of at
/// every step.
template <class Real>
bool CpuLayer<Real>::input_on_the_way() const {
  if (projected_) return false;
  if (!packed_ || batch_rows_.steps() == 1) return true;
  const auto panels = static_cast<double>(kernels_.dense_input_panels(input_, hidden_, heads_));
  const double saved = 2 * static_cast<double>(batch_rows_.rows() * gates_stride()) / plan_.row_parts;
  return panels * (1 - 1 / static_cast<double>(piece_steps())) <= machine_.costs.input_reads * saved;
}

/// Returns the steps of a piece: as many as leave room for weights beside their input product in the cache that a
/// thread has to itself.
template <class Real>
Index CpuLayer<Real>::piece_steps() const {
  const Index cache = machine_.cached(machine_.costs.input_share, sizeof(Real));
  const Index step = batch_rows_.rows() * G() * hidden_;
  return std::clamp<Index>(cache * plan_.threads() / step, 1, batch_rows_.steps());
}

/// Rows of a piece: as many as keep their inputs and the gradients of their gates in the second-level cache, but enough
/// that adding to the weights' gradients, once a piece, costs little beside the product; that of bfloat16 is twice as
/// quick.
template <class Real>
Index CpuLayer<Real>::piece_capacity() const {
  if (plan_.algorithm == Algorithm::scan) return plan_.chunk * plan_.threads();
  const Index cache = machine_.cached_gradients(rounds_gradients() ? sizeof(std::uint16_t) : sizeof(Real));
  const Index row = input_ + cell_.bias_vectors() * channel_vectors() * kernels_.lanes;
  const Index fewest = rounds_gradients() ? 512 : 192;
  return std::min(std::clamp<Index>(cache / row, fewest, 1024), (batch_rows_.cells() + 11) / 12 * 12);
}

template <class Real>
typename CpuLayer<Real>::BackwardSpace CpuLayer<Real>::backward_space(Real* memory, std::size_t* size) const {
  Carver<Real> carver(memory);
  BackwardSpace space;
  const Index row_state = batch_rows_.rows() * hidden_;
  const Index cells = batch_rows_.cells();
  space.dstate = carver.take(S() * row_state);
  if (restarts_ == Restarts::one) space.drestarts = carver.take(S() * row_state);
  if (cell_.info.scan) {
    const Index capacity = piece_capacity(), width = 2 * kernels_.lanes;
    const Index inputs = (input_ + width - 1) / width * width;
    space.state_in = carver.take(row_state);
    if (rounds_gradients()) {
      space.rounded_piece.dwx = carver.take_rounded((capacity + cpu::kRoundedRows) * rounded_channels());
      space.rounded_piece.x_packed = carver.take_rounded(kernels_.rounded_gradients(capacity) * inputs);
      space.rounded_piece.columns = carver.take_rounded(plan_.threads() * cpu::kColumns * cpu::column_stride(capacity));
    } else {
      space.piece.dwx = carver.take(capacity * cell_.bias_vectors() * channel_vectors() * kernels_.lanes);
      space.piece.x_packed = carver.take(capacity * inputs);
    }
    if (plan_.algorithm == Algorithm::scan) {
      space.chunks = chunk_space(carver, plan_.threads(), hidden_);
    }
  } else if (rounds_gradients()) {
    space.dx = carver.take(cells * input_);
    if (!projected_) space.rounded_x = carver.take_rounded(cells * input_);
    space.rounded.dwx = carver.take_rounded(cells * G() * hidden_);
    space.rounded.drh = cell_.split_gradients ? carver.take_rounded(cells * G() * hidden_) : space.rounded.dwx;
    space.rounded.h = carver.take_rounded(cells * hidden_);
    if (cell_.phases == 2) space.rounded.operand = carver.take_rounded(cells * hidden_);
    for (std::uint16_t*& step : space.rounded.step) step = carver.take_rounded(rounded_step());
  } else {
    const Index steps = gradient_steps(), rows = steps * batch_rows_.rows();
    space.dwx = carver.take(rows * gates_stride());
    space.drh = cell_.split_gradients ? carver.take(rows * gates_stride()) : space.dwx;
    space.dlearnt = carver.take(rows * learnt());
    space.heads = carver.take(plan_.threads() * head_values());
    if (cell_.phases == 2) space.operand = carver.take(rows * hidden_);
    space.rows.first = carver.template take_items<Index>(steps);
    for (const Real*** list : {&space.rows.x, &space.rows.h, &space.rows.operand}) {
      *list = carver.template take_items<const Real*>(rows);
    }
    space.rows.dx = carver.template take_items<Real*>(rows);
    space.scratch = carver.take(plan_.threads() * products_.transposed_scratch(input_, hidden_));
  }
  if (size != nullptr) *size = carver.used();
  return space;
}

template <class Real>
std::size_t CpuLayer<Real>::tape_size() const {
  return tape(nullptr).size;
}

template <class Real>
std::size_t CpuLayer<Real>::forward_workspace() const {
  std::size_t size = 0;
  if (cell_.info.scan) {
    scan_space(nullptr, &size);
  } else {
    forward_space(nullptr, &size);
  }
  return size;
}

template <class Real>
std::size_t CpuLayer<Real>::backward_workspace() const {
  std::size_t size = 0;
  backward_space(nullptr, &size);
  return size;
}

template <class Real>
std::size_t CpuLayer<Real>::step_workspace() const {
  if (!int8_) return step_values();
  return step_values() +
         Carver<Real>::reals(kernels_.rounded_inputs(input_) + heads_ * kernels_.rounded_inputs(hidden_ / heads_));
}

/// Reals of a step's scratch, before what is rounded.
template <class Real>
std::size_t CpuLayer<Real>::step_values() const {
  if (cell_.averages) return static_cast<std::size_t>(2 * G() * hidden_ + head_values());
  return cell_.phases == 2 ? static_cast<std::size_t>((1 + cell_.saved) * hidden_) : 0;
}

template <class Real>
cpu::CustomStep<Real> CpuLayer<Real>::step_job(const Real* packed, Real* workspace) const {
  // Beyond about what a core has to itself a step waits for the cache that all cores share.
  const auto own_cache = static_cast<std::size_t>(machine_.cached(machine_.costs.panel_share, sizeof(Real)));
  cpu::CustomStep<Real> job;
  job.custom = {cell_.custom, packed + kernels_.step_panels(input_, hidden_, heads_), hidden_};
  job.input = input_;
  job.hidden = hidden_;
  job.heads = heads_;
  job.head_size = hidden_ / heads_;
  job.packed = packed;
  job.far = packed_step_size() > own_cache;
  job.operand = workspace;
  job.between = workspace + hidden_;
  job.rounded = reinterpret_cast<std::int8_t*>(workspace + step_values());
  job.sums = workspace;
  job.head = workspace + 2 * G() * hidden_;
  return job;
}

template class CpuLayer<float>;
template class CpuLayer<double>;

}  // namespace penstock::ops
