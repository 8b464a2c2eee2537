#include <algorithm>
#include <bit>

#include "ops/matmul.h"
#include "ops/recurrent.h"
#include "ops/recurrent_space.h"
#include "ops/recurrent_team.h"

namespace penstock::ops {
namespace {

/// sums [columns], unless null, += the rows of a matrix [rows, columns] of bfloat16. In blocks of columns, each summed
/// from the first row to the last, so that the result does not depend on the number of threads.
void add_column_sums(Index rows, Index columns, const std::uint16_t* matrix, float* sums, int threads) {
  if (sums == nullptr) return;
  constexpr Index block = 64;
  parallel_for(threads, (columns + block - 1) / block, 1, [&](Index begin, Index end) {
    const Index first = begin * block, last = std::min(columns, end * block);
    for (Index r = 0; r < rows; ++r) {
      const std::uint16_t* row = matrix + r * columns;
      for (Index c = first; c < last; ++c) sums[c] += std::bit_cast<float>(std::uint32_t{row[c]} << 16);
    }
  });
}

}  // namespace

template <class Real>
void RecurrentOp<Real>::backward(const BackwardArguments<Real>& call, Real* workspace) {
  BackwardSpace space = backward_space(workspace, nullptr);
  const Index row_state = geometry_.rows() * hidden_;
  for (Index k = 0; k < S(); ++k) {
    load_state(state_block(call.dstate_out, k, call.state_pitch), space.dstate + k * row_state);
  }
  if (cell_.info.scan) {
    const Tape kept = tape(const_cast<Real*>(call.tape));
    if constexpr (std::is_same_v<Real, float>) {
      if (rounds_tape()) backward_scan(call, space, kept.rounded_wx, space.rounded_piece);
    }
    if (!rounds_tape()) backward_scan(call, space, kept.wx, space.piece);
  } else {
    backward_dense(call, space);
  }
  for (Index k = 0; k < S(); ++k) {
    store_state(space.dstate + k * row_state, state_block(call.dstate_in, k, call.state_pitch));
  }
}

template <class Real>
void RecurrentOp<Real>::backward_dense(const BackwardArguments<Real>& call, BackwardSpace& space) {
  Tape kept = tape(const_cast<Real*>(call.tape));
  cpu::DenseBackward<Real> job;
  job.plan = geometry_.plan();
  job.hidden = hidden_;
  job.heads = heads_;
  job.packed = call.weights.packed;
  job.saved = kept.saved;
  job.prev = kept.prev;
  job.dy = call.dy.data;
  job.dy_map = geometry_.map(Geometry::gradient_map, call.dy.row_stride, call.dy.step_stride);
  if (call.dstates) {
    job.dstates = call.dstates.data;
    job.dstates_map = geometry_.map(Geometry::states_map, call.dstates.row_stride, call.dstates.step_stride);
  }
  job.clip = call.clip;
  job.dstate = space.dstate;
  job.step_end = geometry_.steps();
  job.first_row = space.rows.first;
  job.dwx = space.dwx;
  job.drh = space.drh;
  job.gates_stride = gates_stride();
  job.operand = space.operand;
  job.rounded = space.rounded;
  if (!rounds_gradients()) return backward_pieces(call, job, space);
  for (std::uint16_t* step : job.rounded.step) std::fill_n(step, rounded_step(), std::uint16_t{0});
  run_dense(kernels_.backward_panels(hidden_, heads_),
            [&](const cpu::DensePart& part, const Member&) { kernels_.dense_backward(job, part); });
  rounded_input_gradients(call, space);
  rounded_recurrent_gradients(call, space);
}

/// Piece after piece from the end: the gates' gradients, then what they add to the gradients of weights and inputs
/// while they are still in the caches.
template <class Real>
void RecurrentOp<Real>::backward_pieces(const BackwardArguments<Real>& call, const cpu::DenseBackward<Real>& job,
                                        BackwardSpace& space) {
  const cpu::RowMap x = geometry_.map(Geometry::input_map, call.x.row_stride, call.x.step_stride);
  const cpu::RowMap dx = geometry_.map(Geometry::input_gradient_map, call.dx.row_stride, call.dx.step_stride);
  run_dense(kernels_.backward_panels(hidden_, heads_), [&](const cpu::DensePart& part, const Member& member) {
    cpu::DenseBackward<Real> piece = job;
    for (; piece.step_end > 0; piece.step_end = piece.step_begin) {
      piece.step_begin = std::max<Index>(0, piece.step_end - gradient_steps());
      if (member.thread == 0) list_rows(piece, x, dx, call, space);
      member.wait();
      kernels_.dense_backward(piece, part);
      member.wait();
      weight_gradients(call, space, member);
      if (call.dx) input_gradients(call, space, member);
      member.wait();
    }
  });
  if (call.dx) geometry_.clear_padding(call.dx, input_);
}

template <class Real>
void RecurrentOp<Real>::list_rows(const cpu::DenseBackward<Real>& job, const cpu::RowMap& x, const cpu::RowMap& dx,
                                  const BackwardArguments<Real>& call, BackwardSpace& space) const {
  PieceRows& rows = space.rows;
  rows.count = 0;
  for (Index step = job.step_begin; step < job.step_end; ++step) {
    rows.first[step - job.step_begin] = rows.count;
    for (Index slot = 0; slot < job.plan.rows && job.plan.length[slot] > step; ++slot, ++rows.count) {
      const Index row = job.plan.row_of[slot], t = job.plan.time(slot, step);
      rows.x[rows.count] = call.x.data + x.at(row, t);
      rows.h[rows.count] = job.prev + job.plan.cells.at(row, t) * S() * hidden_;
      if (call.dx) rows.dx[rows.count] = call.dx.data + dx.at(row, t);
      if (cell_.phases == 2) rows.operand[rows.count] = space.operand + rows.count * hidden_;
    }
  }
}

/// A member's columns of gates: what a piece adds to the gradients of W, R and the biases.
template <class Real>
void RecurrentOp<Real>::weight_gradients(const BackwardArguments<Real>& call, const BackwardSpace& space,
                                         const Member& member) const {
  constexpr Index line = 64 / sizeof(Real);
  const Index gates = G() * hidden_;
  const Index begin = gates * member.thread / member.team / line * line;
  const Index end = member.thread + 1 == member.team ? gates : gates * (member.thread + 1) / member.team / line * line;
  Real* const scratch = space.scratch + member.thread * products_.transposed_scratch(input_, hidden_);

  cpu::TransposedProduct<Real> product;
  product.rows = space.rows.count;
  product.a = space.dwx;
  product.a_stride = gates_stride();
  if (call.gradients.weight_ih != nullptr) {
    product.factors[0] = {space.rows.x, 0, input_, call.gradients.weight_ih, input_, 0};
  }
  product.sums[0] = call.gradients.bias_ih;
  // Where one matrix serves all gates alike, both products read the same copies.
  const bool together = space.drh == space.dwx && heads_ == 1 && cell_.phases == 1;
  if (together && call.gradients.weight_hh != nullptr) {
    product.factors[1] = {space.rows.h, 0, hidden_, call.gradients.weight_hh, hidden_, 0};
  }
  if (together) product.sums[1] = call.gradients.bias_hh;
  products_.add_transposed(product, begin, end, scratch);
  if (!together) recurrent_gradients(call, space, begin, end, scratch);
}

/// Calls visit(head, gate, gates) for the blocks of R whose gradient is one product: with one head the gates of a phase
/// lie side by side, a head's gates are H apart.
template <class Real>
template <class Visit>
void RecurrentOp<Real>::for_recurrent_blocks(const Visit& visit) const {
  for (Index head = 0; head < heads_; ++head) {
    for (Index gate = 0, count = 0; gate < G(); gate += count) {
      const Index phase_end = gate < cell_.first_gates ? cell_.first_gates : G();
      count = heads_ == 1 ? phase_end - gate : 1;
      visit(head, gate, count);
    }
  }
}

/// The same of R and the bias beside it alone, for columns [begin, end) of gates.
template <class Real>
void RecurrentOp<Real>::recurrent_gradients(const BackwardArguments<Real>& call, const BackwardSpace& space,
                                            Index begin, Index end, Real* scratch) const {
  const Index head_size = hidden_ / heads_;
  for_recurrent_blocks([&](Index head, Index gate, Index gate_count) {
    const Index first = gate * hidden_ + head * head_size, last = first + gate_count * head_size;
    if (std::max(first, begin) >= std::min(last, end)) return;
    cpu::TransposedProduct<Real> product;
    product.rows = space.rows.count;
    product.a = space.drh;
    product.a_stride = gates_stride();
    if (call.gradients.weight_hh != nullptr) {
      Real* gradient = call.gradients.weight_hh + (head * G() + gate) * head_size * head_size;
      const Real* const* operand = gate < cell_.first_gates ? space.rows.h : space.rows.operand;
      product.factors[0] = {operand, head * head_size, head_size, gradient, head_size, first};
    }
    product.sums[0] = call.gradients.bias_hh;
    products_.add_transposed(product, std::max(first, begin), std::min(last, end), scratch);
  });
}

/// dx of a member's rows of a piece.
template <class Real>
void RecurrentOp<Real>::input_gradients(const BackwardArguments<Real>& call, const BackwardSpace& space,
                                        const Member& member) const {
  const Index rows = space.rows.count;
  cpu::PanelProduct<Real> product;
  product.a = space.dwx;
  product.a_stride = gates_stride();
  product.inner = G() * hidden_;
  product.columns = input_;
  product.panels = call.weights.packed + input_gradient_offset();
  product.c_row = space.rows.dx;
  products_.rows_times_panels(product, rows * member.thread / member.team, rows * (member.thread + 1) / member.team);
}

/// Inputs, rounded, of all cells.
template <class Real>
void RecurrentOp<Real>::round_inputs(const BackwardArguments<Real>& call, std::uint16_t* rounded) {
  const cpu::RowMap x = geometry_.map(Geometry::input_map, call.x.row_stride, call.x.step_stride);
  parallel_for(execution_.threads, geometry_.rows(), 1, [&](Index begin, Index end) {
    for (Index row = begin; row < end; ++row) {
      for (Index t = 0; t < geometry_.length(row); ++t) {
        const Index cell = geometry_.plan().cells.at(row, t);
        kernels_.round_row(call.x.data + x.at(row, t), input_, input_, rounded + cell * input_);
      }
    }
  });
}

/// In bfloat16, from dwx of all steps: the gradients of W, of the bias beside it and of x.
template <class Real>
void RecurrentOp<Real>::rounded_input_gradients(const BackwardArguments<Real>& call, const BackwardSpace& space) {
  if constexpr (std::is_same_v<Real, float>) {
    const Index cells = geometry_.cells(), gates = G() * hidden_;
    const std::uint16_t* dwx = space.rounded.dwx;
    round_inputs(call, space.rounded_x);
    if (call.gradients.weight_ih != nullptr) {
      matmul(gates, input_, cells, {dwx, gates, true}, {space.rounded_x, input_}, 1, call.gradients.weight_ih, input_,
             execution_);
    }
    add_column_sums(cells, gates, dwx, call.gradients.bias_ih, execution_.threads);
    if (!call.dx) return;
    // Where cells lie in dx as they do in x, the product writes them there.
    const bool in_place =
        !geometry_.gathered() && call.dx.row_stride == call.x.row_stride && call.dx.step_stride == call.x.step_stride;
    const auto* weight = reinterpret_cast<const std::uint16_t*>(call.weights.packed + input_gradient_offset());
    matmul(cells, input_, gates, {dwx, gates}, {weight, input_}, 0, in_place ? call.dx.data : space.dx,
           in_place ? geometry_.input_stride() : input_, execution_);
    if (!in_place) geometry_.scatter(space.dx, input_, call.dx);
    geometry_.clear_padding(call.dx, input_);
  }
}

/// In bfloat16, from drh of all steps: the gradients of R and of the bias beside it.
template <class Real>
void RecurrentOp<Real>::rounded_recurrent_gradients(const BackwardArguments<Real>& call, const BackwardSpace& space) {
  if constexpr (std::is_same_v<Real, float>) {
    const Index cells = geometry_.cells(), gates = G() * hidden_, head_size = hidden_ / heads_;
    add_column_sums(cells, gates, space.rounded.drh, call.gradients.bias_hh, execution_.threads);
    if (call.gradients.weight_hh == nullptr) return;
    for_recurrent_blocks([&](Index head, Index gate, Index gate_count) {
      const std::uint16_t* operand = gate < cell_.first_gates ? space.rounded.h : space.rounded.operand;
      matmul(gate_count * head_size, head_size, cells,
             {space.rounded.drh + gate * hidden_ + head * head_size, gates, true},
             {operand + head * head_size, hidden_}, 1,
             call.gradients.weight_hh + (head * G() + gate) * head_size * head_size, head_size, execution_);
    });
  }
}

#define PENSTOCK_INSTANTIATE(Real)                                                                                    \
  template void RecurrentOp<Real>::backward(const BackwardArguments<Real>&, Real*);                                   \
  template void RecurrentOp<Real>::backward_dense(const BackwardArguments<Real>&, BackwardSpace&);                    \
  template void RecurrentOp<Real>::backward_pieces(const BackwardArguments<Real>&, const cpu::DenseBackward<Real>&,   \
                                                   BackwardSpace&);                                                   \
  template void RecurrentOp<Real>::list_rows(const cpu::DenseBackward<Real>&, const cpu::RowMap&, const cpu::RowMap&, \
                                             const BackwardArguments<Real>&, BackwardSpace&) const;                   \
  template void RecurrentOp<Real>::weight_gradients(const BackwardArguments<Real>&, const BackwardSpace&,             \
                                                    const Member&) const;                                             \
  template void RecurrentOp<Real>::recurrent_gradients(const BackwardArguments<Real>&, const BackwardSpace&, Index,   \
                                                       Index, Real*) const;                                           \
  template void RecurrentOp<Real>::input_gradients(const BackwardArguments<Real>&, const BackwardSpace&,              \
                                                   const Member&) const;                                              \
  template void RecurrentOp<Real>::round_inputs(const BackwardArguments<Real>&, std::uint16_t*);                      \
  template void RecurrentOp<Real>::rounded_input_gradients(const BackwardArguments<Real>&, const BackwardSpace&);     \
  template void RecurrentOp<Real>::rounded_recurrent_gradients(const BackwardArguments<Real>&, const BackwardSpace&);
PENSTOCK_INSTANTIATE(float)
PENSTOCK_INSTANTIATE(double)
#undef PENSTOCK_INSTANTIATE

}  // namespace penstock::ops
