#include <algorithm>
#include <cstdint>

#include "ops/recurrence/cpu_layer.h"
#include "ops/recurrence/cpu_layer_space.h"
#include "ops/recurrence/cpu_layer_team.h"

namespace penstock::ops {

template <class Real>
void CpuLayer<Real>::forward(const ForwardPointers<Real>& call, Real* workspace, StepRange range) {
  if (cell_.info.scan) {
    forward_scan(call, scan_space(workspace, nullptr));
  } else {
    forward_dense(call, forward_space(workspace, nullptr), range);
  }
  if (range.end < batch_rows_.steps()) return;
  clear_padding(call.y(), hidden_);
  if (call.every_state()) batch_rows_.clear_padding(call.every_state(), (S() - 1) * hidden_);
}

/// Zeros the steps of a sequence beyond each row's length.
template <class Real>
void CpuLayer<Real>::clear_padding(const StoredView<Real>& sequence, Index channels) const {
  const auto clear = [&](auto* data) {
    batch_rows_.clear_padding(
        SequenceView<std::remove_pointer_t<decltype(data)>>{data, sequence.row_stride, sequence.step_stride}, channels);
  };
  return sequence.bf16 != nullptr ? clear(sequence.bf16) : clear(sequence.data);
}

/// Returns whether a dense layer's tape is so large that it leaves the caches before it is read: then its stores bypass
/// them. Units of a head must be whole lines.
template <class Real>
bool CpuLayer<Real>::streams_tape(const Real* tape) const {
  constexpr std::size_t line = 64;
  const auto large = static_cast<std::size_t>(machine_.cached(machine_.costs.streamed_share, sizeof(Real)));
  const bool lines = hidden_ / heads_ * sizeof(Real) % line == 0 && reinterpret_cast<std::uintptr_t>(tape) % line == 0;
  return lines && tape_size() >= large;
}

template <class Real>
void CpuLayer<Real>::forward_dense(const ForwardPointers<Real>& call, const ForwardSpace& space, StepRange range) {
  std::fill_n(space.zeros, G() * hidden_, Real(0));
  cpu::CustomForward<Real> job;
  job.custom = custom(call.bias_ih());
  job.plan = batch_rows_.plan();
  job.restarts = restart_states(call.state_in(), call.form.state_pitch);
  job.hidden = hidden_;
  const cpu::PanelShape panels = kernels_.forward_panels(hidden_, heads_);
  job.heads = panels.heads;
  job.mixed = panels.mixed;
  job.step_begin = range.begin;
  job.step_end = range.end;
  job.piece = piece_steps();
  job.wx = space.wx;
  job.wx_stride = gates_stride();
  job.bias_ih = call.bias_ih() != nullptr ? call.bias_ih() : space.zeros;
  job.bias_hh = call.bias_hh() != nullptr ? call.bias_hh() : space.zeros;
  if (packed_) {
    job.packed = call.panels();
    if (!projected_) job.packed_input = call.panels() + input_panels_offset();
  } else {
    job.weight_ih = call.weight_ih();
    job.weight_hh = call.weight_hh();
  }
  job.input = input_;
  job.x = call.x().data;
  job.x_bf16 = call.x().bf16;
  job.x_map = batch_rows_.map(BatchRows::input_map, call.x().row_stride, call.x().step_stride);
  job.y = call.y().data;
  job.y_bf16 = call.y().bf16;
  job.y_map = batch_rows_.map(BatchRows::output_map, call.y().row_stride, call.y().step_stride);
  std::copy(std::begin(space.h), std::end(space.h), job.h);
  job.state = space.state;
  job.last = space.last;
  if (call.every_state()) {
    job.every_state = call.every_state().data;
    job.every_state_map =
        batch_rows_.map(BatchRows::states_map, call.every_state().row_stride, call.every_state().step_stride);
  }
  job.operand = space.operand;
  job.between = space.between;
  job.rounded = space.rounded;
  job.places = space.places;
  job.sums = space.sums;
  if (call.tape() != nullptr) {
    const Tape kept = tape(call.tape());
    job.saved = kept.saved;
    job.prev = kept.prev;
    job.streams = streams_tape(call.tape());
  }

  if (range.begin == 0) enter_forward(call, job);
  run_dense(panels, [&](const cpu::DensePart& part, const Member& member) {
    cpu::CustomForward<Real> own = job;
    own.head = space.heads + member.thread * head_values();
    kernels_.dense_forward(own, part);
  });
  if (range.end < batch_rows_.steps()) return;
  for (Index k = 0; k < S(); ++k) {
    store_state(job.last + k * batch_rows_.rows() * hidden_,
                state_block(call.state_out(), k, call.form.state_pitch, batch_rows_.rows()));
  }
}

/// The states that enter the first step.
template <class Real>
void CpuLayer<Real>::enter_forward(const ForwardPointers<Real>& call, const cpu::DenseForward<Real>& job) {
  for (std::uint16_t* states : {job.rounded.h[0], job.rounded.h[1], job.rounded.operand}) {
    if (states != nullptr) std::fill_n(states, rounded_states(), std::uint16_t{0});  // what no unit fills is zero
  }
  // Rows without a step keep the state they came with: it goes to `last` first.
  const Index row_state = batch_rows_.rows() * hidden_;
  for (Index k = 0; k < S(); ++k) {
    Real* entering = k == 0 ? job.h[0] : job.state + (k - 1) * row_state;
    load_state(state_block(call.state_in(), k, call.form.state_pitch, entering_rows()), entering);
    std::copy_n(entering, row_state, job.last + k * row_state);
    for (Index slot = 0; slot < batch_rows_.rows(); ++slot) {
      if (job.plan.length[slot] == 0 || !job.plan.resets(slot, 0)) continue;
      const Real* restart = job.restarts.at(job.plan.row_of[slot], job.plan.time(slot, 0));
      Real* const to = entering + slot * hidden_;
      if (restart == nullptr) {
        std::fill_n(to, hidden_, Real(0));
      } else {
        std::copy_n(restart + k * job.restarts.state, hidden_, to);
      }
    }
  }
}

#define PENSTOCK_INSTANTIATE(Real)                                                   \
  template void CpuLayer<Real>::clear_padding(const StoredView<Real>&, Index) const; \
  template void CpuLayer<Real>::forward(const ForwardPointers<Real>&, Real*, StepRange);
PENSTOCK_INSTANTIATE(float)
PENSTOCK_INSTANTIATE(double)
#undef PENSTOCK_INSTANTIATE

}  // namespace penstock::ops
