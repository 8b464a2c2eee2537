#include <algorithm>
#include <bit>

#include "ops/matmul.h"
#include "ops/recurrent.h"
#include "ops/recurrent_space.h"
#include "ops/recurrent_team.h"

namespace penstock::ops {
namespace {

template <class Real>
Real value_of(Real x) {
  return x;
}
/// Of a bfloat16.
float value_of(std::uint16_t bits) { return std::bit_cast<float>(std::uint32_t{bits} << 16); }

/// sums [columns] += the rows of a matrix [rows, columns]. In blocks of columns, each summed from the first row to the
/// last, so that the result does not depend on the number of threads.
template <class Element, class Real>
void add_column_sums(Index rows, Index columns, const Element* matrix, Real* sums, int threads) {
  constexpr Index block = 64;
  parallel_for(threads, (columns + block - 1) / block, 1, [&](Index begin, Index end) {
    const Index first = begin * block, last = std::min(columns, end * block);
    for (Index r = 0; r < rows; ++r) {
      const Element* row = matrix + r * columns;
      for (Index c = first; c < last; ++c) sums[c] += value_of(row[c]);
    }
  });
}

}  // namespace

template <class Real>
void RecurrentOp<Real>::backward(const BackwardArguments<Real>& call, Real* workspace) {
  const BackwardSpace space = backward_space(workspace, nullptr);
  const Index row_state = geometry_.rows() * hidden_;
  for (Index k = 0; k < S(); ++k) load_states(call.dstate_out, space.dstate + k * row_state, k);
  if (cell_.info.scan) {
    const Tape kept = tape(const_cast<Real*>(call.tape));
    if constexpr (std::is_same_v<Real, float>) {
      if (rounds_tape()) backward_scan(call, space, kept.rounded_wx, space.rounded_piece);
    }
    if (!rounds_tape()) backward_scan(call, space, kept.wx, space.piece);
  } else {
    backward_dense(call, space);
    summed_gradients(call, space);
  }
  for (Index k = 0; k < S(); ++k) store_states(space.dstate + k * row_state, call.dstate_in, k);
}

template <class Real>
void RecurrentOp<Real>::backward_dense(const BackwardArguments<Real>& call, const BackwardSpace& space) {
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
  job.dstate = space.dstate;
  job.dwx = space.dwx;
  job.drh = space.drh;
  job.operand = space.operand;
  job.rounded = space.rounded;
  for (std::uint16_t* step : job.rounded.step) {
    if (step != nullptr) std::fill_n(step, rounded_step(), std::uint16_t{0});
  }
  run_dense(job, kernels_.backward_panels(hidden_, heads_), kernels_.dense_backward);
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

/// From dwx: the gradients of W, of the bias beside it and of x.
template <class Real>
template <class Element>
void RecurrentOp<Real>::input_gradients(const BackwardArguments<Real>& call, const Factors<Element>& factors,
                                        Real* dx) {
  const Index cells = geometry_.cells();
  const Index gates = G() * hidden_;
  Execution fast = execution_;
  fast.exact = false;  // sums over the whole batch; no row's result hangs on their order
  if (call.gradients.weight_ih != nullptr) {
    matmul(gates, input_, cells, Matrix<Element>{factors.dwx, gates, true}, factors.x, Real(1),
           call.gradients.weight_ih, input_, fast);
  }
  if (call.gradients.bias_ih != nullptr) {
    add_column_sums(cells, gates, factors.dwx, call.gradients.bias_ih, execution_.threads);
  }
  if (!call.dx) return;
  // Where cells lie in dx as they do in x, the product writes them there.
  const bool in_place =
      !geometry_.gathered() && call.dx.row_stride == call.x.row_stride && call.dx.step_stride == call.x.step_stride;
  matmul(cells, input_, gates, Matrix<Element>{factors.dwx, gates}, factors.weight_ih, Real(0),
         in_place ? call.dx.data : dx, in_place ? geometry_.input_stride() : input_, execution_);
  if (!in_place) geometry_.scatter(dx, input_, call.dx);
  geometry_.clear_padding(call.dx, input_);
}

/// From drh: the gradients of R and of the bias beside it.
template <class Real>
template <class Element>
void RecurrentOp<Real>::recurrent_gradients(const BackwardArguments<Real>& call, const Factors<Element>& factors) {
  const Index cells = geometry_.cells();
  const Index gates = G() * hidden_;
  const Index head_size = hidden_ / heads_;
  Execution fast = execution_;
  fast.exact = false;
  if (call.gradients.bias_hh != nullptr) {
    add_column_sums(cells, gates, factors.drh, call.gradients.bias_hh, execution_.threads);
  }
  if (call.gradients.weight_hh == nullptr) return;

  const auto add_product = [&](Index head, Index first_gate, Index gate_count, const Matrix<Element>& operand) {
    // With one head the gates lie side by side and are one product; a head's gates are H apart.
    const Index together = heads_ == 1 ? gate_count : 1;
    for (Index gate = first_gate; gate < first_gate + gate_count; gate += together) {
      const Element* drh = factors.drh + gate * hidden_ + head * head_size;
      Real* gradient = call.gradients.weight_hh + (head * G() + gate) * head_size * head_size;
      matmul(together * head_size, head_size, cells, Matrix<Element>{drh, gates, true},
             Matrix<Element>{operand.data + head * head_size, operand.stride}, Real(1), gradient, head_size, fast);
    }
  };
  for (Index head = 0; head < heads_; ++head) {
    add_product(head, 0, cell_.first_gates, factors.h);
    if (cell_.phases == 2) add_product(head, cell_.first_gates, G() - cell_.first_gates, factors.operand);
  }
}

/// What all steps add up to.
template <class Real>
void RecurrentOp<Real>::summed_gradients(const BackwardArguments<Real>& call, const BackwardSpace& space) {
  if constexpr (std::is_same_v<Real, float>) {
    if (rounds_gradients()) {
      round_inputs(call, space.rounded_x);
      const auto* weight = reinterpret_cast<const std::uint16_t*>(call.weights.packed + rounded_weight_offset());
      const Factors<std::uint16_t> factors{space.rounded.dwx,          space.rounded.drh,
                                           {space.rounded.h, hidden_}, {space.rounded.operand, hidden_},
                                           {space.rounded_x, input_},  {weight, input_}};
      recurrent_gradients(call, factors);
      return input_gradients(call, factors, space.dx);
    }
  }
  Matrix<Real> x{call.x.data, geometry_.input_stride()};
  if (geometry_.gathered()) {
    geometry_.gather(call.x, input_, space.gathered);
    x = {space.gathered, input_};
  }
  const Real* h = tape(const_cast<Real*>(call.tape)).prev;
  const Factors<Real> factors{
      space.dwx, space.drh, {h, S() * hidden_}, {space.operand, hidden_}, x, {call.weights.weight_ih, input_}};
  recurrent_gradients(call, factors);
  input_gradients(call, factors, space.dx);
}

#define PENSTOCK_INSTANTIATE(Real)                                                                       \
  template void RecurrentOp<Real>::backward(const BackwardArguments<Real>&, Real*);                      \
  template void RecurrentOp<Real>::round_inputs(const BackwardArguments<Real>&, std::uint16_t*);         \
  template void RecurrentOp<Real>::backward_dense(const BackwardArguments<Real>&, const BackwardSpace&); \
  template void RecurrentOp<Real>::summed_gradients(const BackwardArguments<Real>&, const BackwardSpace&);
PENSTOCK_INSTANTIATE(float)
PENSTOCK_INSTANTIATE(double)
#undef PENSTOCK_INSTANTIATE

}  // namespace penstock::ops
