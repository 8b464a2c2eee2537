#include <algorithm>

#include "ops/matmul.h"
#include "ops/recurrent.h"
#include "ops/recurrent_space.h"
#include "ops/recurrent_team.h"

namespace penstock::ops {
namespace {

/// sums [columns] += the rows of a matrix [rows, columns]. In blocks of columns, each summed from the first row to the
/// last, so that the result does not depend on the number of threads.
template <class Real>
void add_column_sums(Index rows, Index columns, const Real* matrix, Real* sums, int threads) {
  constexpr Index block = 64;
  parallel_for(threads, (columns + block - 1) / block, 1, [&](Index begin, Index end) {
    const Index first = begin * block, last = std::min(columns, end * block);
    for (Index r = 0; r < rows; ++r) {
      const Real* row = matrix + r * columns;
      for (Index c = first; c < last; ++c) sums[c] += row[c];
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
    backward_scan(call, space);
  } else {
    backward_dense(call, space);
    recurrent_gradients(call, space);
    input_gradients(call, space);
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
  run_dense(job, kernels_.backward_panels(hidden_, heads_), kernels_.dense_backward);
}

/// From dwx: the gradients of W, of the bias beside it and of x.
template <class Real>
void RecurrentOp<Real>::input_gradients(const BackwardArguments<Real>& call, const BackwardSpace& space) {
  const Index cells = geometry_.cells();
  const Index gates = G() * hidden_;
  Execution fast = execution_;
  fast.exact = false;  // sums over the whole batch; no row's result hangs on their order
  Matrix<Real> x{call.x.data, geometry_.input_stride()};
  if (geometry_.gathered()) {
    geometry_.gather(call.x, input_, space.gathered);
    x = {space.gathered, input_};
  }
  if (call.gradients.weight_ih != nullptr) {
    matmul<Real>(gates, input_, cells, {space.dwx, gates, true}, x, Real(1), call.gradients.weight_ih, input_, fast);
  }
  if (call.gradients.bias_ih != nullptr) {
    add_column_sums(cells, gates, space.dwx, call.gradients.bias_ih, execution_.threads);
  }
  if (!call.dx) return;
  matmul<Real>(cells, input_, gates, {space.dwx, gates}, {call.weights.weight_ih, input_}, Real(0), space.dx, input_,
               execution_);
  geometry_.scatter(space.dx, input_, call.dx);
  geometry_.clear_padding(call.dx, input_);
}

/// From drh: the gradients of R and of the bias beside it.
template <class Real>
void RecurrentOp<Real>::recurrent_gradients(const BackwardArguments<Real>& call, const BackwardSpace& space) {
  const Index cells = geometry_.cells();
  const Index gates = G() * hidden_;
  const Index head_size = hidden_ / heads_;
  Execution fast = execution_;
  fast.exact = false;
  if (call.gradients.bias_hh != nullptr) {
    add_column_sums(cells, gates, space.drh, call.gradients.bias_hh, execution_.threads);
  }
  if (call.gradients.weight_hh == nullptr) return;

  const Tape kept = tape(const_cast<Real*>(call.tape));
  const auto add_product = [&](Index head, Index first_gate, Index gate_count, const Real* operand, Index stride) {
    // With one head the gates lie side by side and are one product; a head's gates are H apart.
    const Index together = heads_ == 1 ? gate_count : 1;
    for (Index gate = first_gate; gate < first_gate + gate_count; gate += together) {
      const Real* drh = space.drh + gate * hidden_ + head * head_size;
      Real* gradient = call.gradients.weight_hh + (head * G() + gate) * head_size * head_size;
      matmul<Real>(together * head_size, head_size, cells, {drh, gates, true}, {operand + head * head_size, stride},
                   Real(1), gradient, head_size, fast);
    }
  };
  for (Index head = 0; head < heads_; ++head) {
    add_product(head, 0, cell_.first_gates, kept.prev, S() * hidden_);
    if (cell_.phases == 2) add_product(head, cell_.first_gates, G() - cell_.first_gates, space.operand, hidden_);
  }
}

#define PENSTOCK_INSTANTIATE(Real)                                                                        \
  template void RecurrentOp<Real>::backward(const BackwardArguments<Real>&, Real*);                       \
  template void RecurrentOp<Real>::backward_dense(const BackwardArguments<Real>&, const BackwardSpace&);  \
  template void RecurrentOp<Real>::input_gradients(const BackwardArguments<Real>&, const BackwardSpace&); \
  template void RecurrentOp<Real>::recurrent_gradients(const BackwardArguments<Real>&, const BackwardSpace&);
PENSTOCK_INSTANTIATE(float)
PENSTOCK_INSTANTIATE(double)
#undef PENSTOCK_INSTANTIATE

}  // namespace penstock::ops
