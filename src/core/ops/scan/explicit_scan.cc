// Scans over explicit coefficients on the CPU.

#include "ops/scan/explicit_scan.h"

#include <algorithm>

#include "backend/cpu/machine.h"
#include "base/check.h"
#include "base/threads.h"
#include "ops/batch_rows.h"
#include "ops/scan/scan_chunks.h"
#include "ops/scan/work_split.h"
#include "ops/tensor_check.h"
#include "plan/plan.h"

namespace penstock::ops {
namespace {

/// Returns the traits that the planner reads: those of a scan cell with three gates.
const plan::CellTraits& traits_of(ScanForm form) {
  static const plan::CellTraits linear{.info = {"scan", "", 3, 1, true}, .text = {}};
  static const plan::CellTraits logarithmic{.info = {"log-scan", "", 3, 1, true}, .text = {}};
  return form == ScanForm::linear ? linear : logarithmic;
}

template <class Real>
class CpuScan final : public ScanPass {
 public:
  CpuScan(const ScanCallForm& form, const Target& target, bool backward)
      : form_(form),
        channels_(form.channels),
        backward_(backward),
        plan_(plan::make_plan(
            {&traits_of(form.form), target.rows, target.steps, channels_, 1, resolve_threads(target.execution.threads),
             target.execution.algorithm, target.execution.exact, backward ? backward_channels : forward_channels},
            cpu::machine())) {
    const auto states = static_cast<std::size_t>(target.rows * channels_);
    const std::size_t chunks =
        plan_.chunk == 0 ? 0 : static_cast<std::size_t>((target.steps + plan_.chunk - 1) / plan_.chunk);
    state_in_ = states;
    gains_ = state_in_ + (backward ? states : 0);
    of_effects_ = states * chunks;
    bytes_ = (gains_ + 3 * of_effects_) * sizeof(Real);
  }

  std::size_t workspace_bytes() const override { return bytes_; }
  std::string explain() const override { return plan_.explain(); }

  void forward(const Call& call, const ScanProgram::Forward& memory) override {
    Real* const carry = prepare(call, memory.terms, memory.workspace);
    batch_rows_.to_slots(static_cast<const Real*>(memory.h0.data), channels_, carry);
    const cpu::CellKernels<Real> kernels = given_kernels();
    cpu::ScanForward<Real> job;
    job.plan = batch_rows_.plan();
    describe(memory.terms, job.gate);
    job.y = rows<Real>(memory.h, of_h);
    run_parts(
        carry, kernels.lanes, [&](const cpu::ScanPart& part, Real* state) { kernels.scan_forward(job, part, state); },
        [&](const cpu::ScanPart& part, const cpu::ScanEffect<Real>& effect) {
          kernels.scan_forward_summary(job, part, effect);
        });
    batch_rows_.from_slots(carry, channels_, static_cast<Real*>(memory.hT.data));
    clear_padding(memory.h);
  }

  void backward(const Call& call, const ScanProgram::Backward& memory) override {
    Real* const carry = prepare(call, memory.terms, memory.workspace);
    Real* const state_in = carry + state_in_;
    batch_rows_.to_slots(static_cast<const Real*>(memory.dhT.data), channels_, carry);
    batch_rows_.to_slots(static_cast<const Real*>(memory.h0.data), channels_, state_in);
    const cpu::CellKernels<Real> kernels = given_kernels();
    cpu::ScanBackward<Real> job;
    job.plan = batch_rows_.plan();
    job.hidden = channels_;
    describe(memory.terms, job.gate);
    job.y = rows<const Real>(memory.h, of_h);
    job.state_in = state_in;
    job.dy = rows<const Real>(memory.dh, of_dh);
    const std::array gradients = in_order(memory.dterms);
    for (std::size_t i = 0; i < terms(); ++i) {
      job.dgate[i] = {rows<Real>(*gradients[i], of_da + static_cast<int>(i)), kernels.lanes, false};
    }
    run_parts(
        carry, kernels.lanes,
        [&](const cpu::ScanPart& part, Real* state) { kernels.scan_backward.run(job, part, state); },
        [&](const cpu::ScanPart& part, const cpu::ScanEffect<Real>& effect) {
          kernels.scan_backward.summary(job, part, effect);
        });
    batch_rows_.from_slots(carry, channels_, static_cast<Real*>(memory.dh0.data));
    for (std::size_t i = 0; i < terms(); ++i) clear_padding(*gradients[i]);
  }

 private:
  enum Map { of_a, of_b, of_factor, of_h, of_dh, of_da, of_db, of_dfactor };
  static_assert(int{of_dfactor} < int{BatchRows::map_count});

  /// Channels of one thread, at least. Forward a page of memory: with less, two threads' processors fetch ahead what
  /// the other one reads and writes, and both take up to three times as long as one alone would. In the backward pass,
  /// which they do not foresee, a cache line.
  static constexpr Index forward_channels = 4096 / sizeof(Real), backward_channels = 16;

  std::size_t terms() const { return form_.factor ? 3 : 2; }

  /// Returns the carry [B, C], where the workspace begins.
  Real* prepare(const Call& call, const ScanProgram::Terms& given, const Memory& workspace) {
    const SequenceStrides a = strides_of(given.a);
    batch_rows_.prepare(call.batch, a.row, a.step, channels_, form_.reverse, false);
    return static_cast<Real*>(workspace.data);
  }

  template <class Value>
  cpu::ChannelRows<Value> rows(const Tensor& sequence, int map) {
    const SequenceStrides at = strides_of(sequence);
    return {static_cast<Value*>(sequence.data), batch_rows_.map(map, at.row, at.step), 1};
  }

  void describe(const ScanProgram::Terms& given, cpu::ChannelRows<const Real>* gate) {
    const std::array all = in_order(given);
    for (std::size_t i = 0; i < terms(); ++i) gate[i] = rows<const Real>(*all[i], of_a + static_cast<int>(i));
  }

  void clear_padding(const Tensor& sequence) const {
    const SequenceStrides at = strides_of(sequence);
    batch_rows_.clear_padding(SequenceView<Real>{static_cast<Real*>(sequence.data), at.row, at.step}, channels_);
  }

  cpu::CellKernels<Real> given_kernels() const {
    return cpu::given_kernels<Real>(form_.form == ScanForm::linear ? cpu::Given::terms
                                    : form_.factor                 ? cpu::Given::signed_logs
                                                                   : cpu::Given::logs);
  }

  /// Calls run(part, carry), or in chunks summary(part, effect) before it, as the plan has it.
  template <class Run, class Summary>
  void run_parts(Real* carry, Index lanes, const Run& run, const Summary& summary) {
    const cpu::RowPlan& plan = batch_rows_.plan();
    if (plan_.algorithm == Algorithm::scan) {
      Real* const gains = carry + gains_;
      const ChunkSpace<Real> space{{gains, gains + of_effects_, gains + 2 * of_effects_}, channels_};
      return scan_in_chunks<Real>(
          {plan, batch_rows_.steps(), plan_.chunk, plan_.threads(), backward_}, carry, space,
          [](const cpu::ScanPart&, int) {}, summary, run);
    }
    const Index vectors = (channels_ + lanes - 1) / lanes;
    run_team(plan_.threads(), [&](int thread, int team) {
      const Share share = share_of(plan_.row_parts, plan_.channel_parts, thread, team);
      const Index begin = share.first_of(vectors) * lanes;
      const Index end = std::min(channels_, share.last_of(vectors) * lanes);
      const Index last = share.last_slot(plan, batch_rows_.cells());
      for (Index slot = share.first_slot(plan, batch_rows_.cells()); slot < last; ++slot) {
        run({slot, 0, plan.length[slot], begin, end}, carry + slot * channels_);
      }
    });
  }

  ScanCallForm form_;
  Index channels_;
  bool backward_;
  plan::Plan plan_;
  BatchRows batch_rows_;
  std::size_t state_in_ = 0, gains_ = 0;  // parts of the workspace begin there, in values
  std::size_t of_effects_ = 0;            // values of each of three parts from gains_ on
  std::size_t bytes_ = 0;
};

}  // namespace

std::unique_ptr<ScanPass> prepare_scan(const ScanCallForm& form, const Target& target, bool backward) {
  constexpr Index most = Index{1} << 30;
  check_enum("form", form.form, ScanForm::logarithmic);
  check_enum("precision", target.execution.precision, Precision::tf32);
  require_argument(form.channels >= 1 && form.channels <= most, "channels", form.channels, "1 to {}", most);
  require(form.form == ScanForm::logarithmic || !form.factor,
          "terms.factor belongs to the logarithmic form; the linear one has signs in a and b");
  if (target.execution.precision != Precision::full) {
    fail(ErrorCode::unsupported, "precision must be full for a scan, which multiplies no weights, not {}",
         to_string(target.execution.precision));
  }
  if (target.device.is_cuda()) return prepare_cuda_scan(form, target, backward);
  return with_real(target.dtype, [&](auto real) -> std::unique_ptr<ScanPass> {
    return std::make_unique<CpuScan<decltype(real)>>(form, target, backward);
  });
}

}  // namespace penstock::ops
