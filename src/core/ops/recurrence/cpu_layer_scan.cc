// Scan layers: the input projection and the recurrence in one pass, and what flows back piece by piece.

#include <algorithm>

#include "ops/recurrence/cpu_layer.h"
#include "ops/recurrence/cpu_layer_space.h"
#include "ops/recurrence/cpu_layer_team.h"
#include "ops/scan/scan_chunks.h"

namespace penstock::ops {

template <class Real>
void CpuLayer<Real>::forward_scan(const ForwardPointers<Real>& call, const ScanSpace& space) {
  const cpu::RowPlan& rows = batch_rows_.plan();
  const cpu::RowMap x_map = batch_rows_.map(BatchRows::input_map, call.x().row_stride, call.x().step_stride);
  const cpu::RowMap y_map = batch_rows_.map(BatchRows::output_map, call.y().row_stride, call.y().step_stride);
  const Tape kept = call.tape() != nullptr ? tape(call.tape()) : Tape{};
  // All members are given, as zeroing them first would take a twentieth of a short call.
  cpu::CustomLayer<Real> layer{{.plan = rows,
                                .restarts = restart_states(call.state_in(), call.form.state_pitch),
                                .input = input_,
                                .hidden = hidden_,
                                .gates = G(),
                                .x = call.x().data,
                                .x_bf16 = call.x().bf16,
                                .x_map = x_map,
                                .packed = call.panels(),
                                .bias = call.bias_ih(),
                                .wx = kept.wx,
                                .rounded_wx = kept.rounded_wx,
                                .y = {call.y().data, y_map, 1},
                                .y_bf16 = {call.y().bf16, y_map, 1},
                                .carry = space.carry,
                                .rounded = space.rounded},
                               custom(call.bias_ih())};
  load_state(call.state_in(), space.carry);
  if (plan_.algorithm == Algorithm::scan) {
    if (layer.wx == nullptr) layer.wx = space.wx;
    forward_chunks(layer, space);
  } else {
    const Index blocks = channel_vectors();
    run_team(plan_.threads(), [&](int thread, int team) {
      const Share share = share_of(plan_.row_parts, plan_.channel_parts, thread, team);
      cpu::ScanLayerPart part;
      part.slot_begin = share.first_slot(layer.plan, batch_rows_.cells());
      part.slot_end = share.last_slot(layer.plan, batch_rows_.cells());
      part.end = batch_rows_.steps();
      part.thread = thread;
      part.block_begin = share.first_of(blocks);
      part.block_end = share.last_of(blocks);
      kernels_.scan_layer(layer, part);
    });
  }
  store_state(space.carry, call.state_out());
}

/// Sets `gate` to the rows of each gate in wx [cells, G, H].
template <class Real>
template <class Stored>
void CpuLayer<Real>::gates_from(const Stored* wx, cpu::ChannelRows<const Stored>* gate) const {
  for (Index g = 0; g < G(); ++g) gate[g] = {wx + g * hidden_, batch_rows_.plan().cells, G() * hidden_};
}

/// Gates are written, chunk by chunk, and then scanned from each chunk's true carry.
template <class Real>
void CpuLayer<Real>::forward_chunks(cpu::CustomLayer<Real>& layer, const ScanSpace& space) const {
  cpu::CustomScanForward<Real> job;
  job.custom = layer.custom;
  job.plan = layer.plan;
  job.restarts = layer.restarts;
  gates_from<Real>(layer.wx, job.gate);
  job.y = layer.y;
  job.y_bf16 = layer.y_bf16;
  layer.y.data = nullptr;
  layer.y_bf16.data = nullptr;
  scan_in_chunks<Real>(
      {layer.plan, batch_rows_.steps(), plan_.chunk, plan_.threads()}, layer.carry, space.chunks,
      [&](const cpu::ScanPart& part, int thread) {
        kernels_.scan_layer(layer, {part.slot, part.slot + 1, part.begin, part.end, 0, channel_vectors(), thread});
      },
      [&](const cpu::ScanPart& part, const cpu::ScanEffect<Real>& effect) {
        kernels_.scan_forward_summary(job, part, effect);
      },
      [&](const cpu::ScanPart& part, Real* carry) { kernels_.scan_forward(job, part, carry); });
}

template <class Real>
template <class Stored>
const cpu::ScanBackwardKernels<Real, Stored>& CpuLayer<Real>::scan_backward_kernels() const {
  if constexpr (std::is_same_v<Stored, Real>) {
    return kernels_.scan_backward;
  } else {
    return kernels_.rounded_scan_backward;
  }
}

/// The gates' gradients of one piece, by a member of the team. A plan in chunks has a single span, whose chunks are
/// summarised in parallel before they are scanned in parallel.
template <class Real>
template <class Stored>
void CpuLayer<Real>::scan_piece(const cpu::CustomScanBackward<Real, Stored>& job, const BackwardSpace& space,
                                const Member& member) {
  const cpu::ScanBackwardKernels<Real, Stored>& kernels = scan_backward_kernels<Stored>();
  const Index blocks = channel_vectors();
  if (plan_.algorithm != Algorithm::scan) {
    const Index tasks = static_cast<Index>(pieces_.spans().size()) * blocks;
    const Index last = tasks * (member.thread + 1) / member.team;
    for (Index task = tasks * member.thread / member.team; task < last;) {
      const auto& span = pieces_.spans()[static_cast<std::size_t>(task / blocks)];
      const Index begin = task % blocks, end = std::min(blocks, begin + last - task);
      const Index channel_end = std::min(end * kernels_.lanes, hidden_);
      kernels.run(job, {span.slot, span.begin, span.end, begin * kernels_.lanes, channel_end},
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
    kernels.summary(job, part_of(chunk), space.chunks.at(chunk));
  }
  member.wait();
  cpu::CustomScanBackward<Real, Stored> part_job = job;
  if (member.thread == 0) {
    // A chunk that is scanned at once is scanned again below, to the same bits: its offsets stay what enters it.
    part_job.drestarts = {};
    for (Index chunk = chunks - 1; chunk >= 0; --chunk) {
      pass_chunk(space.chunks.at(chunk), chunk > 0, hidden_, space.dstate + span.slot * hidden_,
                 [&](Real* state) { kernels.run(part_job, part_of(chunk), state); });
    }
  }
  member.wait();
  // Chunks of a row whose gradients at resets make one sum keep theirs where their gains were.
  const bool sums = job.drestarts.data != nullptr && job.drestarts.step == 0;
  part_job.drestarts = job.drestarts;
  for (Index chunk = mine; chunk < end; ++chunk) {
    if (sums) {
      part_job.drestarts = {space.chunks.at(chunk).gain, 0, 0, 0};
      std::fill_n(part_job.drestarts.data, hidden_, Real(0));
    }
    kernels.run(part_job, part_of(chunk), space.chunks.at(chunk).offset);
  }
  member.wait();
  if (member.thread > 0) return;
  std::copy_n(space.chunks.at(0).offset, hidden_, space.dstate + span.slot * hidden_);
  Real* const sum = sums ? job.drestarts.at(job.plan.row_of[span.slot], 0) : nullptr;
  for (Index chunk = chunks; sum != nullptr && chunk-- > 0;) {
    for (Index i = 0; i < hidden_; ++i) sum[i] += space.chunks.at(chunk).gain[i];
  }
}

/// `wx` is what the forward pass kept of the gates.
template <class Real>
template <class Stored>
void CpuLayer<Real>::backward_scan(const BackwardPointers<Real>& call, const BackwardSpace& space, const Stored* wx,
                                   const PieceSpace<Stored>& piece, const cpu::RestartStates<Real>& drestarts) {
  const cpu::ScanBackwardKernels<Real, Stored>& kernels = scan_backward_kernels<Stored>();
  const cpu::RowPlan& rows = batch_rows_.plan();
  const Index capacity = piece_capacity();
  const Index vectors = cell_.bias_vectors() * channel_vectors();
  pieces_.prepare(rows, capacity, plan_.algorithm != Algorithm::scan);
  load_state(call.state_in(), space.state_in);

  cpu::CustomScanBackward<Real, Stored> job;
  job.custom = custom(call.bias_ih());
  job.plan = rows;
  job.hidden = hidden_;
  gates_from(wx, job.gate);
  const cpu::RowMap y_map = batch_rows_.map(BatchRows::output_map, call.y().row_stride, call.y().step_stride);
  const cpu::RowMap dy_map = batch_rows_.map(BatchRows::gradient_map, call.dy().row_stride, call.dy().step_stride);
  job.y = {call.y().data, y_map, 1};
  job.dy = {call.dy().data, dy_map, 1};
  job.y_bf16 = {call.y().bf16, y_map, 1};
  job.dy_bf16 = {call.dy().bf16, dy_map, 1};
  job.state_in = space.state_in;
  job.restarts = restart_states(call.state_in(), call.form.state_pitch);
  job.drestarts = drestarts;
  // Elements from a cell of the piece to the next, and from a vector of channels to the next.
  constexpr bool rounded = !std::is_same_v<Stored, Real>;
  const Index cell_stride = rounded ? rounded_channels() : kernels_.lanes;
  const Index vector_stride = rounded ? kernels_.lanes : capacity * kernels_.lanes;
  for (Index g = 0; g < G(); ++g) {
    Stored* dwx = piece.dwx + g * channel_vectors() * vector_stride;
    job.dgate[g] = {{dwx, pieces_.map(), cell_stride}, vector_stride, true};
  }
  if constexpr (!rounded) {
    job.learnt_stride = channel_vectors() * vector_stride;
    job.dlearnt = {{piece.dwx + G() * job.learnt_stride, pieces_.map(), cell_stride}, vector_stride, true};
  }
  if constexpr (rounded) std::fill_n(piece.dwx, capacity * cell_stride, Stored(0));  // for the padding's sake
  cpu::ScanGradient<Real, Stored> gradient;
  gradient.capacity = capacity;
  gradient.input = input_;
  gradient.hidden = hidden_;
  gradient.gates = G();
  gradient.blocks = channel_vectors();
  gradient.dwx = piece.dwx;
  gradient.x_packed = piece.x_packed;
  gradient.weight_panels = call.panels();
  gradient.x_row = pieces_.x().reals.data();
  gradient.dx_row = pieces_.dx().reals.data();
  if (call.x().bf16 != nullptr) gradient.x_row_bf16 = pieces_.x().bf16.data();
  if (call.dx().bf16 != nullptr) gradient.dx_row_bf16 = pieces_.dx().bf16.data();
  gradient.weight_gradient = call.dweight_ih();
  gradient.bias_gradient = call.dbias_ih();

  const cpu::RowMap x_map = batch_rows_.map(BatchRows::input_map, call.x().row_stride, call.x().step_stride);
  const cpu::RowMap dx_map =
      batch_rows_.map(BatchRows::input_gradient_map, call.dx().row_stride, call.dx().step_stride);
  run_meeting_team(plan_.threads(), [&](const Member& member) {
    for (;;) {
      if (member.thread == 0) {
        pieces_.advance(call.x(), x_map, call.dx(), dx_map);
        gradient.cells = pieces_.cells();
      }
      member.wait();
      cpu::ScanGradient<Real, Stored> mine = gradient;
      if (mine.cells == 0) return;
      mine.columns = piece.columns + member.thread * cpu::kColumns * cpu::column_stride(capacity);
      // Two rows make a pair in bfloat16, which nobody may share.
      const auto first_of = [&](int thread) {
        return thread == member.team ? mine.cells : mine.cells * thread / member.team / 2 * 2;
      };
      const Index begin = first_of(member.thread), end = first_of(member.thread + 1);
      kernels.pack_input(mine, begin, end);
      scan_piece(job, space, member);
      member.wait();
      kernels.weight_gradient(mine, vectors * member.thread / member.team, vectors * (member.thread + 1) / member.team);
      if (call.dx()) kernels.input_gradient(mine, begin, end);
      member.wait();
    }
  });
  if (call.dx()) clear_padding(call.dx(), input_);
}

#define PENSTOCK_INSTANTIATE(Real, Stored)                                                                        \
  template void CpuLayer<Real>::backward_scan(const BackwardPointers<Real>&, const BackwardSpace&, const Stored*, \
                                              const PieceSpace<Stored>&, const cpu::RestartStates<Real>&);
PENSTOCK_INSTANTIATE(float, float)
PENSTOCK_INSTANTIATE(float, std::uint16_t)
PENSTOCK_INSTANTIATE(double, double)
#undef PENSTOCK_INSTANTIATE
template void CpuLayer<float>::forward_scan(const ForwardPointers<float>&, const ScanSpace&);
template void CpuLayer<double>::forward_scan(const ForwardPointers<double>&, const ScanSpace&);

}  // namespace penstock::ops
