// The public scan over given terms.

#include "penstock/scan.h"

#include <algorithm>
#include <vector>

#include "base/check.h"
#include "base/per_thread.h"
#include "ops/geometry.h"
#include "ops/recurrent_team.h"
#include "ops/scan_chunks.h"
#include "plan/plan.h"

namespace penstock {
namespace {

/// What the planner has to know: a scan cell with so many gates.
plan::CellTraits traits_of(ScanForm form) {
  plan::CellTraits traits;
  traits.info = {form == ScanForm::linear ? "scan" : "log-scan", "", 3, 1, true, false};
  return traits;
}

}  // namespace

namespace ops {

/// What one call computes with: every thread has its own.
template <class Real>
struct ScanWork {
  using Terms = typename Scan<Real>::Terms;
  enum Map { of_a, of_b, of_factor, of_h, of_dh, of_da, of_db, of_dfactor };
  static_assert(int{of_dfactor} < int{ops::Geometry::map_count});

  /// Channels of one thread, at least. Forward a page of memory: with less, two threads' processors fetch ahead what
  /// the other one reads and writes, and both take up to three times as long as one alone would. On the way back, which
  /// they do not foresee, a cache line.
  static constexpr Index forward_channels = 4096 / sizeof(Real), backward_channels = 16;

  Index channels;
  ScanForm form;
  bool reverse;
  plan::CellTraits traits;
  ops::Geometry geometry;
  plan::Plan plan;
  std::vector<Real> carry, state_in, gains, offsets;

  ScanWork(Index c, ScanForm f, bool r) : channels(c), form(f), reverse(r), traits(traits_of(f)) {
    constexpr Index most = Index{1} << 30;
    check_enum("form", f, ScanForm::logarithmic);
    require(c >= 1 && c <= most, "channels must be 1 to {}, not {}", most, c);
  }

  void check(const Terms& terms) const {
    require(static_cast<bool>(terms.a), "terms.a is missing");
    require(static_cast<bool>(terms.b), "terms.b is missing");
    require(form == ScanForm::logarithmic || !terms.factor,
            "terms.factor belongs to the logarithmic form; the linear one has signs in a and b");
  }

  void prepare(const Batch& batch, const Terms& terms, const Execution& execution, Index channels_each) {
    check(terms);
    check_enum("precision", execution.precision, Precision::f16);
    if (execution.precision != Precision::full) {
      fail(ErrorCode::unsupported, "precision must be full for a scan, which multiplies no weights, not {}",
           to_string(execution.precision));
    }
    geometry.prepare(batch, terms.a.row_stride, terms.a.step_stride, channels, reverse);
    plan = plan::make_plan({&traits, batch.rows, batch.steps, channels, 1, resolve_threads(execution.threads),
                            execution.algorithm, execution.exact, channels_each});
    const auto states = static_cast<std::size_t>(batch.rows * channels);
    grow(carry, states);
    if (plan.chunk > 0) {
      const auto chunks = static_cast<std::size_t>((batch.steps + plan.chunk - 1) / plan.chunk);
      grow(gains, states * chunks);
      grow(offsets, states * chunks);
    }
  }

  static void grow(std::vector<Real>& memory, std::size_t size) {
    if (memory.size() < size) memory.resize(size);
  }

  template <class Value>
  cpu::ChannelRows<Value> rows(SequenceView<Value> view, Map map) {
    return {view.data, geometry.map(map, view.row_stride, view.step_stride), 1};
  }

  void describe(const Terms& terms, cpu::ChannelRows<const Real>* gate) {
    gate[0] = rows(terms.a, of_a);
    gate[1] = rows(terms.b, of_b);
    if (terms.factor) gate[2] = rows(terms.factor, of_factor);
  }

  cpu::CellKernels<Real> kernels(const Terms& terms) const {
    return cpu::given_kernels<Real>(form == ScanForm::linear ? cpu::Given::terms
                                    : terms.factor           ? cpu::Given::signed_logs
                                                             : cpu::Given::logs);
  }

  /// Calls run(part, carry), or in chunks summary(part, gain, offset) before it, as the plan has it.
  template <class Run, class Summary>
  void walk(bool backward, Index lanes, const Run& run, const Summary& summary) {
    const cpu::RowPlan& rows = geometry.plan();
    if (plan.algorithm == Algorithm::scan) {
      return ops::scan_in_chunks<Real>(
          rows, geometry.steps(), channels, plan.chunk, plan.threads(), backward, carry.data(),
          {gains.data(), offsets.data()}, [](const cpu::ScanPart&, int) {}, summary, run, ops::Overflow::walk_early);
    }
    const Index vectors = (channels + lanes - 1) / lanes;
    run_team(plan.threads(), [&](int thread, int team) {
      const ops::Share share = ops::share_of(plan.row_parts, plan.channel_parts, thread, team);
      const Index begin = share.first_of(vectors) * lanes;
      const Index end = std::min(channels, share.last_of(vectors) * lanes);
      const Index last = share.last_slot(rows, geometry.cells());
      for (Index slot = share.first_slot(rows, geometry.cells()); slot < last; ++slot) {
        run({slot, 0, rows.length[slot], begin, end}, carry.data() + slot * channels);
      }
    });
  }

  cpu::GateSink<Real> sink(SequenceView<Real> view, Map map, Index lanes) { return {rows(view, map), lanes, false}; }
};

}  // namespace ops

template <class Real>
struct Scan<Real>::Impl {
  Impl(Index channels, ScanForm form, bool reverse)
      : works([=] { return std::make_unique<ops::ScanWork<Real>>(channels, form, reverse); }) {
    works.get();  // which checks the arguments
  }
  PerThread<ops::ScanWork<Real>> works;
};

namespace {

template <class Impl>
auto& work_of(const std::unique_ptr<Impl>& impl) {
  require(impl != nullptr, "the scan must not have been moved from");
  return impl->works.get();
}

}  // namespace

template <class Real>
Scan<Real>::Scan(Index channels, ScanForm form, bool reverse)
    : impl_(std::make_unique<Impl>(channels, form, reverse)) {}
template <class Real>
Scan<Real>::~Scan() = default;
template <class Real>
Scan<Real>::Scan(Scan&&) noexcept = default;
template <class Real>
Scan<Real>& Scan<Real>::operator=(Scan&&) noexcept = default;

template <class Real>
void Scan<Real>::forward(const Batch& batch, const Terms& terms, SequenceView<Real> h, const Real* h0, Real* hT,
                         const Execution& execution) const {
  ops::ScanWork<Real>& work = work_of(impl_);
  require(static_cast<bool>(h), "h is missing");
  work.prepare(batch, terms, execution, ops::ScanWork<Real>::forward_channels);
  work.geometry.to_slots(h0, work.channels, work.carry.data());
  const cpu::CellKernels<Real> kernels = work.kernels(terms);
  cpu::ScanForward<Real> job;
  job.plan = work.geometry.plan();
  work.describe(terms, job.gate);
  job.y = work.rows(h, ops::ScanWork<Real>::of_h);
  work.walk(
      false, kernels.lanes, [&](const cpu::ScanPart& part, Real* carry) { kernels.scan_forward(job, part, carry); },
      [&](const cpu::ScanPart& part, Real* gain, Real* offset) {
        kernels.scan_forward_summary(job, part, gain, offset);
      });
  work.geometry.from_slots(work.carry.data(), work.channels, hT);
  work.geometry.clear_padding(h, work.channels);
}

template <class Real>
void Scan<Real>::backward(const Batch& batch, const Terms& terms, SequenceView<const Real> h, const Real* h0,
                          SequenceView<const Real> dh, const Real* dhT, const TermGradients& gradients, Real* dh0,
                          const Execution& execution) const {
  ops::ScanWork<Real>& work = work_of(impl_);
  require(static_cast<bool>(h), "h is missing");
  require(static_cast<bool>(dh), "dh is missing");
  require(static_cast<bool>(gradients.a), "gradients.a is missing");
  require(static_cast<bool>(gradients.b), "gradients.b is missing");
  require(static_cast<bool>(gradients.factor) == static_cast<bool>(terms.factor),
          "gradients.factor must be there exactly when terms.factor is");
  work.prepare(batch, terms, execution, ops::ScanWork<Real>::backward_channels);
  ops::ScanWork<Real>::grow(work.state_in, static_cast<std::size_t>(batch.rows * work.channels));
  work.geometry.to_slots(dhT, work.channels, work.carry.data());
  work.geometry.to_slots(h0, work.channels, work.state_in.data());
  const cpu::CellKernels<Real> kernels = work.kernels(terms);
  cpu::ScanBackward<Real> job;
  job.plan = work.geometry.plan();
  job.hidden = work.channels;
  work.describe(terms, job.gate);
  job.y = work.rows(h, ops::ScanWork<Real>::of_h);
  job.state_in = work.state_in.data();
  job.dy = work.rows(dh, ops::ScanWork<Real>::of_dh);
  job.dgate[0] = work.sink(gradients.a, ops::ScanWork<Real>::of_da, kernels.lanes);
  job.dgate[1] = work.sink(gradients.b, ops::ScanWork<Real>::of_db, kernels.lanes);
  if (terms.factor) job.dgate[2] = work.sink(gradients.factor, ops::ScanWork<Real>::of_dfactor, kernels.lanes);
  work.walk(
      true, kernels.lanes,
      [&](const cpu::ScanPart& part, Real* carry) { kernels.scan_backward.walk(job, part, carry); },
      [&](const cpu::ScanPart& part, Real* gain, Real* offset) {
        kernels.scan_backward.summary(job, part, gain, offset);
      });
  work.geometry.from_slots(work.carry.data(), work.channels, dh0);
  work.geometry.clear_padding(gradients.a, work.channels);
  work.geometry.clear_padding(gradients.b, work.channels);
  if (terms.factor) work.geometry.clear_padding(gradients.factor, work.channels);
}

template class Scan<float>;
template class Scan<double>;

}  // namespace penstock
