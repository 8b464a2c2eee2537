#include <algorithm>
#include <bit>

#include "ops/pointwise/elementwise.h"
#include "ops/product/matmul.h"
#include "ops/recurrence/cpu_layer.h"
#include "ops/recurrence/cpu_layer_space.h"
#include "ops/recurrence/cpu_layer_team.h"

namespace penstock::ops {
namespace {

/// sums [columns], unless null, += the rows of a matrix [rows, columns] of bfloat16. In blocks of columns, each summed
/// from the first row to the last, so that the result does not depend on the number of threads.
void add_column_sums(Index rows, Index columns, const std::uint16_t* matrix, float* sums, int threads) {
  if (sums == nullptr) return;
  constexpr Index block = 64;
  for_range(threads, (columns + block - 1) / block, rows * block, [&](Index begin, Index end) {
    const Index first = begin * block, last = std::min(columns, end * block);
    for (Index r = 0; r < rows; ++r) {
      const std::uint16_t* row = matrix + r * columns;
      for (Index c = first; c < last; ++c) sums[c] += std::bit_cast<float>(std::uint32_t{row[c]} << 16);
    }
  });
}

}  // namespace

template <class Real>
void CpuLayer<Real>::backward(const BackwardPointers<Real>& call, Real* workspace, StepRange range) {
  BackwardSpace space = backward_space(workspace, nullptr);
  const cpu::RestartStates<Real> drestarts = enter_backward(call, space, range);
  if (cell_.info.scan) {
    const Tape kept = tape(const_cast<Real*>(call.tape()));
    if constexpr (std::is_same_v<Real, float>) {
      if (rounds_tape()) backward_scan(call, space, kept.rounded_wx, space.rounded_piece, drestarts);
    }
    if (!rounds_tape()) backward_scan(call, space, kept.wx, space.piece, drestarts);
  } else {
    backward_dense(call, space, range, drestarts);
  }
  leave_backward(call, space, range);
}

/// Before the first range: the gradients of the states after the last step, and zeros to which those at resets are
/// added. Returns where the engines add the latter.
template <class Real>
cpu::RestartStates<Real> CpuLayer<Real>::enter_backward(const BackwardPointers<Real>& call, const BackwardSpace& space,
                                                        StepRange range) const {
  const Index rows = batch_rows_.rows(), row_state = rows * hidden_;
  cpu::RestartStates<Real> to = restart_states(call.dstate_in(), call.form.state_pitch);
  const Index values = (entering_rows() - rows) * hidden_;  // of a state
  if (restarts_ == Restarts::one && to.data != nullptr) to = {space.drestarts, row_state, hidden_, 0};
  if (range.end < batch_rows_.steps()) return to;
  for (Index k = 0; k < S(); ++k) {
    load_state(state_block(call.dstate_out(), k, call.form.state_pitch, rows), space.dstate + k * row_state);
    if (to.data != nullptr)
      std::fill_n(to.data + k * to.state, restarts_ == Restarts::one ? row_state : values, Real(0));
  }
  return to;
}

/// After the last range: the gradients of the states before the first step, and of one that all rows share.
template <class Real>
void CpuLayer<Real>::leave_backward(const BackwardPointers<Real>& call, const BackwardSpace& space,
                                    StepRange range) const {
  if (range.begin > 0) return;
  const Index rows = batch_rows_.rows(), row_state = rows * hidden_;
  for (Index k = 0; k < S(); ++k) {
    Real* const block = state_block(call.dstate_in(), k, call.form.state_pitch, entering_rows());
    store_state(space.dstate + k * row_state, block);
    if (restarts_ != Restarts::one || block == nullptr) continue;
    Real* const sum = block + row_state;
    std::fill_n(sum, hidden_, Real(0));
    for (Index row = 0; row < rows; ++row) {
      const Real* const share = space.drestarts + k * row_state + row * hidden_;
      for (Index i = 0; i < hidden_; ++i) sum[i] += share[i];
    }
  }
}

template <class Real>
void CpuLayer<Real>::backward_dense(const BackwardPointers<Real>& call, BackwardSpace& space, StepRange range,
                                    const cpu::RestartStates<Real>& drestarts) {
  Tape kept = tape(const_cast<Real*>(call.tape()));
  cpu::CustomBackward<Real> job;
  job.custom = custom(call.bias_ih());
  job.dlearnt = space.dlearnt;
  job.plan = batch_rows_.plan();
  job.hidden = hidden_;
  const cpu::PanelShape panels = kernels_.backward_panels(hidden_, heads_);
  job.heads = panels.heads;
  job.mixed = panels.mixed;
  job.packed = call.panels();
  job.saved = kept.saved;
  job.prev = kept.prev;
  job.dy = call.dy().data;
  job.dy_bf16 = call.dy().bf16;
  job.dy_map = batch_rows_.map(BatchRows::gradient_map, call.dy().row_stride, call.dy().step_stride);
  if (call.dstates()) {
    job.dstates = call.dstates().data;
    job.dstates_map = batch_rows_.map(BatchRows::states_map, call.dstates().row_stride, call.dstates().step_stride);
  }
  job.clip = static_cast<Real>(call.form.gradient_clip);
  job.dstate = space.dstate;
  job.drestarts = drestarts;
  job.step_end = batch_rows_.steps();
  job.first_row = space.rows.first;
  job.dwx = space.dwx;
  job.drh = space.drh;
  job.gates_stride = gates_stride();
  job.operand = space.operand;
  job.rounded = space.rounded;
  if (!rounds_gradients()) return backward_pieces(call, job, space, range);
  for (std::uint16_t* step : job.rounded.step) std::fill_n(step, rounded_step(), std::uint16_t{0});
  run_dense(panels, [&](const cpu::DensePart& part, const Member&) { kernels_.dense_backward(job, part); });
  rounded_input_gradients(call, space);
  rounded_recurrent_gradients(call, space);
}

/// The piece of the sequence that ends with a range: pieces are counted from the last step.
template <class Real>
StepRange CpuLayer<Real>::piece_before(Index step_end) const {
  const Index length = gradient_steps(), last = batch_rows_.steps() - step_end;
  const Index end = batch_rows_.steps() - last / length * length;
  return {std::max<Index>(0, end - length), end};
}

/// Range after range from the end: the gates' gradients and those of the inputs; and once all steps of a piece have
/// been run, what they add to the gradients of weights, while they are still in the caches.
template <class Real>
void CpuLayer<Real>::backward_pieces(const BackwardPointers<Real>& call, const cpu::CustomBackward<Real>& job,
                                     BackwardSpace& space, StepRange range) {
  const cpu::RowMap x = batch_rows_.map(BatchRows::input_map, call.x().row_stride, call.x().step_stride);
  const cpu::RowMap dx = batch_rows_.map(BatchRows::input_gradient_map, call.dx().row_stride, call.dx().step_stride);
  run_dense(kernels_.backward_panels(hidden_, heads_), [&](const cpu::DensePart& part, const Member& member) {
    cpu::CustomBackward<Real> steps = job;
    steps.head = space.heads + member.thread * head_values();
    for (steps.step_end = range.end; steps.step_end > range.begin; steps.step_end = steps.step_begin) {
      const StepRange piece = piece_before(steps.step_end);
      steps.step_begin = std::max(range.begin, piece.begin);
      steps.first_row = space.rows.first + (steps.step_begin - piece.begin);
      if (member.thread == 0 && steps.step_end == piece.end) list_rows(piece, x, dx, call, job.prev, space);
      member.wait();
      kernels_.dense_backward(steps, part);
      member.wait();
      if (steps.step_begin == piece.begin) {
        weight_gradients(call, space, rows_before(space, piece, piece.end), member);
      }
      if (call.dx()) {
        input_gradients(call, space, rows_before(space, piece, steps.step_begin),
                        rows_before(space, piece, steps.step_end), member);
      }
      member.wait();
    }
  });
  if (call.dx() && range.begin == 0) clear_padding(call.dx(), input_);
}

/// Rows of a piece before those of a step.
template <class Real>
Index CpuLayer<Real>::rows_before(const BackwardSpace& space, StepRange piece, Index step) const {
  if (step < piece.end) return space.rows.first[step - piece.begin];
  const cpu::RowPlan& plan = batch_rows_.plan();
  const Index* const longer =
      std::partition_point(plan.length, plan.length + plan.rows, [step](Index length) { return length > step - 1; });
  return space.rows.first[step - 1 - piece.begin] + (longer - plan.length);
}

template <class Real>
void CpuLayer<Real>::list_rows(StepRange piece, const cpu::RowMap& x, const cpu::RowMap& dx,
                               const BackwardPointers<Real>& call, const Real* prev, BackwardSpace& space) const {
  const cpu::RowPlan& plan = batch_rows_.plan();
  const PieceRows& rows = space.rows;
  Index at = 0;
  for (Index step = piece.begin; step < piece.end; ++step) {
    rows.first[step - piece.begin] = at;
    for (Index slot = 0; slot < plan.rows && plan.length[slot] > step; ++slot, ++at) {
      const Index row = plan.row_of[slot], t = plan.time(slot, step);
      rows.x[at] = call.x().data + x.at(row, t);
      rows.h[at] = prev + plan.cells.at(row, t) * S() * hidden_;
      if (call.dx()) rows.dx[at] = call.dx().data + dx.at(row, t);
      if (cell_.phases == 2) rows.operand[at] = space.operand + at * hidden_;
    }
  }
}

/// A member's columns of gates: what the rows of a piece add to the gradients of W, R and the biases.
template <class Real>
void CpuLayer<Real>::weight_gradients(const BackwardPointers<Real>& call, const BackwardSpace& space, Index rows,
                                      const Member& member) const {
  constexpr Index line = 64 / sizeof(Real);
  const Index gates = G() * hidden_;
  const Index begin = gates * member.thread / member.team / line * line;
  const Index end = member.thread + 1 == member.team ? gates : gates * (member.thread + 1) / member.team / line * line;
  Real* const scratch = space.scratch + member.thread * products_.transposed_scratch(input_, hidden_);

  cpu::TransposedProduct<Real> product;
  product.rows = rows;
  product.a = space.dwx;
  product.a_stride = gates_stride();
  if (call.dweight_ih() != nullptr) {
    product.factors[0] = {space.rows.x, 0, input_, call.dweight_ih(), input_, 0};
  }
  product.sums[0] = call.dbias_ih();
  // Where one matrix serves all gates alike, both products read the same copies.
  const bool together = space.drh == space.dwx && heads_ == 1 && cell_.phases == 1;
  if (together && call.dweight_hh() != nullptr) {
    product.factors[1] = {space.rows.h, 0, hidden_, call.dweight_hh(), hidden_, 0};
  }
  if (together) product.sums[1] = call.dbias_hh();
  products_.add_transposed(product, begin, end, scratch);
  if (!together) recurrent_gradients(call, space, rows, begin, end, scratch);
  if (learnt() > 0) learnt_gradients(call, space, rows, member, scratch);
}

/// A member's share of what the rows of a piece add to the gradients of learnt vectors.
template <class Real>
void CpuLayer<Real>::learnt_gradients(const BackwardPointers<Real>& call, const BackwardSpace& space, Index rows,
                                      const Member& member, Real* scratch) const {
  if (call.dbias_ih() == nullptr) return;
  cpu::TransposedProduct<Real> product;
  product.rows = rows;
  product.a = space.dlearnt;
  product.a_stride = learnt();
  product.sums[0] = call.dbias_ih() + G() * hidden_;
  products_.add_transposed(product, learnt() * member.thread / member.team,
                           learnt() * (member.thread + 1) / member.team, scratch);
}

/// Calls visit(head, gate, gates) for the blocks of R whose gradient is one product: with one head the gates of a phase
/// lie side by side, a head's gates are H apart.
template <class Real>
template <class Visit>
void CpuLayer<Real>::for_recurrent_blocks(const Visit& visit) const {
  for (Index head = 0; head < heads_; ++head) {
    for (Index gate = 0, count = 0; gate < G(); gate += count) {
      const Index phase_end = gate < cell_.first_gates ? cell_.first_gates : G();
      count = heads_ == 1 ? phase_end - gate : 1;
      visit(head, gate, count);
    }
  }
}

/// Adds the gradients of R and its bias alone, for columns [begin, end) of gates.
template <class Real>
void CpuLayer<Real>::recurrent_gradients(const BackwardPointers<Real>& call, const BackwardSpace& space, Index rows,
                                         Index begin, Index end, Real* scratch) const {
  if (kernels_.narrow_gradient != nullptr && kernels_.backward_panels(hidden_, heads_).heads < heads_) {
    return narrow_gradients(call, space, rows, begin, end, scratch);
  }
  const Index head_size = hidden_ / heads_;
  for_recurrent_blocks([&](Index head, Index gate, Index gate_count) {
    const Index first = gate * hidden_ + head * head_size, last = first + gate_count * head_size;
    if (std::max(first, begin) >= std::min(last, end)) return;
    cpu::TransposedProduct<Real> product;
    product.rows = rows;
    product.a = space.drh;
    product.a_stride = gates_stride();
    if (call.dweight_hh() != nullptr) {
      Real* gradient = call.dweight_hh() + (head * G() + gate) * head_size * head_size;
      const Real* const* operand = gate < cell_.first_gates ? space.rows.h : space.rows.operand;
      product.factors[0] = {operand, head * head_size, head_size, gradient, head_size, first};
    }
    product.sums[0] = call.dbias_hh();
    products_.add_transposed(product, std::max(first, begin), std::min(last, end), scratch);
  });
}

/// Adds the gradients of R if a vector holds several heads. Columns begin at a line of them, and a line holds whole
/// heads.
template <class Real>
void CpuLayer<Real>::narrow_gradients(const BackwardPointers<Real>& call, const BackwardSpace& space, Index rows,
                                      Index begin, Index end, Real* scratch) const {
  cpu::TransposedProduct<Real> product;
  product.rows = rows;
  product.a = space.drh;
  product.a_stride = gates_stride();
  product.sums[0] = call.dbias_hh();
  if (call.dbias_hh() != nullptr) products_.add_transposed(product, begin, end, scratch);
  if (call.dweight_hh() == nullptr) return;
  const Index D = hidden_ / heads_;
  for (Index gate = begin / hidden_; gate * hidden_ < end; ++gate) {
    const Index first = gate * hidden_;
    cpu::NarrowGradient<Real> job;
    job.rows = rows;
    job.mixed = D;
    job.drh = space.drh + first;
    job.stride = gates_stride();
    job.operand = gate < cell_.first_gates ? space.rows.h : space.rows.operand;
    job.gradient = call.dweight_hh() + gate * D * D;
    job.head_stride = G() * D * D;
    kernels_.narrow_gradient(job, std::max(first, begin) - first, std::min(first + hidden_, end) - first);
  }
}

/// dx of a member's part of rows [first, last) of a piece.
template <class Real>
void CpuLayer<Real>::input_gradients(const BackwardPointers<Real>& call, const BackwardSpace& space, Index first,
                                     Index last, const Member& member) const {
  const Index rows = last - first;
  if (projected_) {
    for (Index row = first + rows * member.thread / member.team; row < first + rows * (member.thread + 1) / member.team;
         ++row) {
      std::copy_n(space.dwx + row * gates_stride(), input_, space.rows.dx[row]);
    }
    return;
  }
  cpu::PanelProduct<Real> product;
  product.a = space.dwx;
  product.a_stride = gates_stride();
  product.inner = G() * hidden_;
  product.columns = input_;
  product.panels = call.panels() + input_gradient_offset();
  product.c_row = space.rows.dx;
  products_.rows_times_panels(product, first + rows * member.thread / member.team,
                              first + rows * (member.thread + 1) / member.team);
}

/// Inputs, in bfloat16, of all cells.
template <class Real>
void CpuLayer<Real>::round_inputs(const BackwardPointers<Real>& call, std::uint16_t* rounded) {
  const cpu::RowMap x = batch_rows_.map(BatchRows::input_map, call.x().row_stride, call.x().step_stride);
  for_range(execution_.threads, batch_rows_.rows(), batch_rows_.steps() * input_, [&](Index begin, Index end) {
    for (Index row = begin; row < end; ++row) {
      for (Index t = 0; t < batch_rows_.length(row); ++t) {
        const Index cell = batch_rows_.plan().cells.at(row, t);
        if (call.x().bf16 != nullptr) {
          std::copy_n(call.x().bf16 + x.at(row, t), input_, rounded + cell * input_);
        } else {
          elements_.to_bf16(input_, call.x().data + x.at(row, t), rounded + cell * input_);
        }
      }
    }
  });
}

/// Computes, in bfloat16 and from dwx of all steps, the gradients of W, of its bias and of x.
template <class Real>
void CpuLayer<Real>::rounded_input_gradients(const BackwardPointers<Real>& call, const BackwardSpace& space) {
  if constexpr (std::is_same_v<Real, float>) {
    const Index cells = batch_rows_.cells(), gates = G() * hidden_;
    const std::uint16_t* dwx = space.rounded.dwx;
    if (!projected_) round_inputs(call, space.rounded_x);
    if (call.dweight_ih() != nullptr) {
      bf16_matmul<float>({gates, input_, cells}, {dwx, gates, true}, {space.rounded_x, input_},
                         {call.dweight_ih(), input_, true}, execution_);
    }
    add_column_sums(cells, gates, dwx, call.dbias_ih(), execution_.threads);
    if (!call.dx()) return;
    if (projected_) {
      elements_.from_bf16(cells * gates, dwx, space.dx);
      batch_rows_.scatter(space.dx, input_,
                          SequenceView<float>{call.dx().data, call.dx().row_stride, call.dx().step_stride});
      return clear_padding(call.dx(), input_);
    }
    // Where cells lie in dx as they do in x, the product writes them there.
    const bool in_place = !batch_rows_.gathered() && call.dx().row_stride == call.x().row_stride &&
                          call.dx().step_stride == call.x().step_stride;
    const auto* weight = reinterpret_cast<const std::uint16_t*>(call.panels() + input_gradient_offset());
    const auto write = [&]<class Element>(Element* to, Element* gathered, SequenceView<Element> sequence) {
      ProductResult<Element> result{to, batch_rows_.input_stride()};
      if (!in_place) result = {gathered, input_};
      bf16_matmul({cells, input_, gates}, {dwx, gates}, {weight, input_}, result, execution_);
      if (!in_place) batch_rows_.scatter(gathered, input_, sequence);
    };
    if (call.dx().bf16 != nullptr) {
      write(call.dx().bf16, reinterpret_cast<std::uint16_t*>(space.dx),
            {call.dx().bf16, call.dx().row_stride, call.dx().step_stride});
    } else {
      write(call.dx().data, space.dx, {call.dx().data, call.dx().row_stride, call.dx().step_stride});
    }
    clear_padding(call.dx(), input_);
  }
}

/// Computes, in bfloat16 and from drh of all steps, the gradients of R and of its bias.
template <class Real>
void CpuLayer<Real>::rounded_recurrent_gradients(const BackwardPointers<Real>& call, const BackwardSpace& space) {
  if constexpr (std::is_same_v<Real, float>) {
    const Index cells = batch_rows_.cells(), gates = G() * hidden_, head_size = hidden_ / heads_;
    add_column_sums(cells, gates, space.rounded.drh, call.dbias_hh(), execution_.threads);
    if (call.dweight_hh() == nullptr) return;
    for_recurrent_blocks([&](Index head, Index gate, Index gate_count) {
      const std::uint16_t* operand = gate < cell_.first_gates ? space.rounded.h : space.rounded.operand;
      bf16_matmul<float>(
          {gate_count * head_size, head_size, cells},
          {space.rounded.drh + gate * hidden_ + head * head_size, gates, true}, {operand + head * head_size, hidden_},
          {call.dweight_hh() + (head * G() + gate) * head_size * head_size, head_size, true}, execution_);
    });
  }
}

template void CpuLayer<float>::backward(const BackwardPointers<float>&, float*, StepRange);
template void CpuLayer<double>::backward(const BackwardPointers<double>&, double*, StepRange);

}  // namespace penstock::ops
