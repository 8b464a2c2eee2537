// Scan layers: the input product and the recurrence in one walk, and what flows back piece by piece.

#include <algorithm>

#include "ops/recurrent.h"
#include "ops/recurrent_space.h"
#include "ops/recurrent_team.h"
#include "ops/scan_chunks.h"

namespace penstock::ops {

template <class Real>
void RecurrentOp<Real>::forward_scan(const ForwardArguments<Real>& call, const ForwardSpace& space) {
  cpu::ScanLayer<Real> layer;
  layer.plan = geometry_.plan();
  layer.input = input_;
  layer.hidden = hidden_;
  layer.gates = G();
  layer.x = call.x.data;
  layer.x_map = geometry_.map(Geometry::input_map, call.x.row_stride, call.x.step_stride);
  layer.packed = call.weights.packed;
  layer.bias = call.weights.bias_ih;
  layer.wx = call.tape != nullptr ? tape(call.tape).wx : nullptr;
  layer.y = {call.y.data, geometry_.map(Geometry::output_map, call.y.row_stride, call.y.step_stride), 1};
  layer.carry = space.last;
  layer.rounded = space.rounded.x;
  load_states(call.state_in, space.last, 0);
  if (plan_.algorithm == Algorithm::scan) {
    if (layer.wx == nullptr) layer.wx = space.wx;
    forward_chunks(layer, space);
  } else {
    const Index blocks = channel_vectors();
    run_team(plan_.threads(), [&](int thread, int team) {
      const Share share = share_of(plan_.row_parts, plan_.channel_parts, thread, team);
      cpu::ScanLayerPart part;
      part.slot_begin = share.first_slot(layer.plan, geometry_.cells());
      part.slot_end = share.last_slot(layer.plan, geometry_.cells());
      part.end = geometry_.steps();
      part.thread = thread;
      part.block_begin = share.first_of(blocks);
      part.block_end = share.last_of(blocks);
      kernels_.scan_layer(layer, part);
    });
  }
  store_states(space.last, call.state_out, 0);
}

/// The job that walks gates [cells, G, H] which are there already.
template <class Real>
cpu::ScanForward<Real> RecurrentOp<Real>::scan_from(const Real* wx) const {
  cpu::ScanForward<Real> job;
  job.plan = geometry_.plan();
  for (Index g = 0; g < G(); ++g) job.gate[g] = {wx + g * hidden_, job.plan.cells, G() * hidden_};
  return job;
}

/// Gates are written, chunk by chunk, and then walked from each chunk's true carry.
template <class Real>
void RecurrentOp<Real>::forward_chunks(cpu::ScanLayer<Real>& layer, const ForwardSpace& space) const {
  cpu::ScanForward<Real> job = scan_from(layer.wx);
  job.y = layer.y;
  layer.y.data = nullptr;
  scan_in_chunks<Real>(
      layer.plan, geometry_.steps(), hidden_, plan_.chunk, plan_.threads(), false, layer.carry,
      {space.gains, space.offsets},
      [&](const cpu::ScanPart& part, int thread) {
        kernels_.scan_layer(layer, {part.slot, part.slot + 1, part.begin, part.end, 0, channel_vectors(), thread});
      },
      [&](const cpu::ScanPart& part, Real* gain, Real* offset) {
        kernels_.scan_forward_summary(job, part, gain, offset);
      },
      [&](const cpu::ScanPart& part, Real* carry) { kernels_.scan_forward(job, part, carry); });
}

/// The gates' gradients of one piece, by a member of the team. A plan in chunks has a single span, whose chunks are
/// summarised side by side before they are walked side by side.
template <class Real>
void RecurrentOp<Real>::scan_piece(const cpu::ScanBackward<Real>& job, const BackwardSpace& space,
                                   const Member& member) {
  const Index blocks = channel_vectors();
  if (plan_.algorithm != Algorithm::scan) {
    const Index tasks = static_cast<Index>(pieces_.spans().size()) * blocks;
    const Index last = tasks * (member.thread + 1) / member.team;
    for (Index task = tasks * member.thread / member.team; task < last;) {
      const auto& span = pieces_.spans()[static_cast<std::size_t>(task / blocks)];
      const Index begin = task % blocks, end = std::min(blocks, begin + last - task);
      const Index channel_end = std::min(end * kernels_.lanes, hidden_);
      kernels_.scan_backward(job, {span.slot, span.begin, span.end, begin * kernels_.lanes, channel_end},
                             space.dstate + span.slot * hidden_);
      task += end - begin;
    }
    return;
  }
  const auto& span = pieces_.spans().front();
  const Index chunks = (span.end - span.begin + plan_.chunk - 1) / plan_.chunk;
  const auto part_of = [&](Index chunk) {
    const Index begin = span.begin + chunk * plan_.chunk;
    return cpu::ScanPart{span.slot, begin, std::min(begin + plan_.chunk, span.end), 0, hidden_};
  };
  const Index mine = chunks * member.thread / member.team, end = chunks * (member.thread + 1) / member.team;
  for (Index chunk = std::max<Index>(mine, 1); chunk < end; ++chunk) {
    kernels_.scan_backward_summary(job, part_of(chunk), space.gains + chunk * hidden_, space.offsets + chunk * hidden_);
  }
  member.wait();
  if (member.thread == 0) {
    Real* running = space.dstate + span.slot * hidden_;
    for (Index chunk = chunks - 1; chunk >= 0; --chunk) {
      for (Index c = 0; c < hidden_; ++c) {
        const Real entering = running[c];
        if (chunk > 0) running[c] = space.gains[chunk * hidden_ + c] * entering + space.offsets[chunk * hidden_ + c];
        space.offsets[chunk * hidden_ + c] = entering;
      }
    }
  }
  member.wait();
  for (Index chunk = mine; chunk < end; ++chunk) {
    kernels_.scan_backward(job, part_of(chunk), space.offsets + chunk * hidden_);
  }
  member.wait();
  if (member.thread == 0) std::copy_n(space.offsets, hidden_, space.dstate + span.slot * hidden_);
}

template <class Real>
void RecurrentOp<Real>::backward_scan(const BackwardArguments<Real>& call, const BackwardSpace& space) {
  const cpu::RowPlan& rows = geometry_.plan();
  const Index capacity = piece_capacity();
  const Index vectors = G() * channel_vectors();
  pieces_.prepare(rows, capacity, plan_.algorithm != Algorithm::scan);
  load_states(call.state_in, space.state_in, 0);

  cpu::ScanBackward<Real> job;
  const cpu::ScanForward<Real> gates = scan_from(tape(const_cast<Real*>(call.tape)).wx);
  job.plan = rows;
  job.hidden = hidden_;
  std::copy(std::begin(gates.gate), std::end(gates.gate), job.gate);
  job.y = {call.y.data, geometry_.map(Geometry::output_map, call.y.row_stride, call.y.step_stride), 1};
  job.dy = {call.dy.data, geometry_.map(Geometry::gradient_map, call.dy.row_stride, call.dy.step_stride), 1};
  job.state_in = space.state_in;
  for (Index g = 0; g < G(); ++g) {
    Real* dwx = space.dwx + g * channel_vectors() * capacity * kernels_.lanes;
    job.dgate[g] = {{dwx, pieces_.map(), kernels_.lanes}, capacity * kernels_.lanes, true};
  }
  cpu::ScanGradient<Real> gradient;
  gradient.capacity = capacity;
  gradient.input = input_;
  gradient.hidden = hidden_;
  gradient.gates = G();
  gradient.blocks = channel_vectors();
  gradient.dwx = space.dwx;
  gradient.x_packed = space.x_packed;
  gradient.weight_panels = call.weights.packed;
  gradient.x_row = pieces_.x_rows();
  gradient.dx_row = pieces_.dx_rows();
  gradient.weight_gradient = call.gradients.weight_ih;
  gradient.bias_gradient = call.gradients.bias_ih;

  const cpu::RowMap x_map = geometry_.map(Geometry::input_map, call.x.row_stride, call.x.step_stride);
  const cpu::RowMap dx_map = geometry_.map(Geometry::input_gradient_map, call.dx.row_stride, call.dx.step_stride);
  run_meeting_team(plan_.threads(), [&](const Member& member) {
    for (;;) {
      if (member.thread == 0) {
        pieces_.advance(call.x.data, x_map, call.dx.data, dx_map);
        gradient.cells = pieces_.cells();
      }
      member.wait();
      const Index cells = gradient.cells;
      if (cells == 0) return;
      const Index begin = cells * member.thread / member.team, end = cells * (member.thread + 1) / member.team;
      kernels_.pack_scan_input(gradient, begin, end);
      scan_piece(job, space, member);
      member.wait();
      kernels_.scan_weight_gradient(gradient, vectors * member.thread / member.team,
                                    vectors * (member.thread + 1) / member.team);
      if (call.dx) kernels_.scan_input_gradient(gradient, begin, end);
      member.wait();
    }
  });
  if (call.dx) geometry_.clear_padding(call.dx, input_);
}

#define PENSTOCK_INSTANTIATE(Real)                                                                                  \
  template void RecurrentOp<Real>::forward_scan(const ForwardArguments<Real>&, const ForwardSpace&);                \
  template void RecurrentOp<Real>::forward_chunks(cpu::ScanLayer<Real>&, const ForwardSpace&) const;                \
  template cpu::ScanForward<Real> RecurrentOp<Real>::scan_from(const Real*) const;                                  \
  template void RecurrentOp<Real>::scan_piece(const cpu::ScanBackward<Real>&, const BackwardSpace&, const Member&); \
  template void RecurrentOp<Real>::backward_scan(const BackwardArguments<Real>&, const BackwardSpace&);
PENSTOCK_INSTANTIATE(float)
PENSTOCK_INSTANTIATE(double)
#undef PENSTOCK_INSTANTIATE

}  // namespace penstock::ops
