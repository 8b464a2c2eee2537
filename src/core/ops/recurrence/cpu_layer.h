#pragma once

#include <cstddef>

#include "backend/cpu/custom/custom.h"
#include "backend/cpu/element_kernels.h"
#include "backend/cpu/machine.h"
#include "backend/cpu/product_kernels.h"
#include "base/threads.h"
#include "ops/batch_rows.h"
#include "ops/recurrence/layer_pointers.h"
#include "ops/scan/scan_pieces.h"
#include "penstock/recurrent.h"
#include "plan/plan.h"

namespace penstock::ops {

/// One thread of a team whose members wait for each other.
struct Member {
  int thread = 0, team = 1;
  SpinBarrier* barrier = nullptr;  // null in a team of one

  void wait() const {
    if (barrier != nullptr) barrier->wait();
  }
};

/// Returns the planner's problem for one layer in one direction on a CPU.
plan::Problem layer_problem(const plan::CellTraits& cell, Index input, Index hidden, Index heads, Index rows,
                            Index steps, const Execution& execution, bool int8);

/// One recurrent layer in one direction on a CPU: prepare() checks the problem, makes the plan and states the
/// sizes; the calls after it allocate nothing and can be repeated for any data of that shape.
template <class Real>
class CpuLayer {
 public:
  using StoredWeights = cpu::StoredWeights<Real>;

  /// Makes a layer of this form, whose strides are with_strides(). Only one made for exact mode may be prepared for an
  /// exact execution. `packed`: forward passes read panels; otherwise, for dense cells in full precision, the weights
  /// themselves.
  explicit CpuLayer(const Recurrence& form, Precision precision = Precision::full, bool exact = true,
                    bool packed = true);

  /// Panels, for the instruction set in use, of the matrix that the engines multiply with themselves: the recurrent
  /// one, or of a scan cell the input's.
  std::size_t packed_forward_size() const;
  std::size_t packed_backward_size() const;
  /// Returns the Reals of the packed weights of a step: both matrices and the biases, in an order of its own.
  std::size_t packed_step_size() const;
  void pack_forward(const StoredWeights& weight_ih, const StoredWeights& weight_hh, Real* packed, int threads) const;
  void pack_backward(const StoredWeights& weight_ih, const StoredWeights& weight_hh, Real* packed, int threads) const;
  void pack_step(const cpu::StepWeights<Real>& weights, Real* packed) const;

  void prepare(const Batch& batch, const Execution& execution);
  const plan::Plan& plan() const { return plan_; }

  /// Numbers of Reals, for the batch that was prepared.
  std::size_t tape_size() const;
  /// Returns whether forward (or backward) passes read and write sequences of bfloat16, and pack weights from bfloat16.
  bool takes_bf16_forward() const { return packed_ && !int8_ && kernels_.rounded_inputs != nullptr; }
  bool takes_bf16_backward() const { return rounds_gradients(); }
  /// Returns whether a tape holds bfloat16: then the backward pass must use bfloat16, too.
  bool rounds_tape() const { return cell_.info.scan && rounds_gradients(); }
  std::size_t forward_workspace() const;
  std::size_t backward_workspace() const;

  /// Returns the job of step(), with panels of pack_step(); the caller sets x, y, the states and the direction.
  /// `workspace` [step_workspace()] stays in use.
  cpu::CustomStep<Real> step_job(const Real* packed, Real* workspace) const;
  std::size_t step_workspace() const;
  void step(const cpu::CellStep<Real>& job) const { kernels_.step(job); }

  /// All steps, or a range of those of a dense cell: forward from the first range to the last, backward from the last
  /// to the first, with the same pointers and nobody else in the workspace until all are done. However the steps are
  /// cut, the results are the same bits. Backward passes in bfloat16 have products over all steps, hence one range.
  void forward(const ForwardPointers<Real>& call, Real* workspace, StepRange range);
  void backward(const BackwardPointers<Real>& call, Real* workspace, StepRange range);
  StepRange all_steps() const { return {0, batch_rows_.steps()}; }
  const BatchRows& batch_rows() const { return batch_rows_; }

 private:
  struct Tape;
  struct ForwardSpace;
  struct ScanSpace;
  struct PieceRows;
  struct BackwardSpace;
  template <class Stored>
  struct PieceSpace;

  Index G() const { return cell_.info.gates; }
  Index S() const { return cell_.info.states; }
  /// Values of the learnt vectors, K*H.
  Index learnt() const { return cell_.learnt * hidden_; }
  /// Returns the Reals that a thread needs to compute a head of a cell whose units read means; 0 for other cells.
  Index head_values() const;
  /// The equations of a custom cell, with learnt vectors as they lie behind the gates of bias_ih.
  cpu::CellProgram<Real> custom(const Real* bias_ih) const {
    return {cell_.custom, bias_ih == nullptr ? nullptr : bias_ih + G() * hidden_, hidden_};
  }
  /// Dense cells: whether the input product is made step by step with the recurrent one, instead of for a piece of
  /// piece_steps() beforehand; every sum runs in the same order.
  bool input_on_the_way() const;
  Index piece_steps() const;
  Index gates_stride() const;
  Index gradient_steps() const;
  Index rounded_states() const;
  std::size_t step_values() const;
  Index rounded_step() const;
  /// Returns whether the backward pass multiplies in bfloat16.
  bool rounds_gradients() const { return kernels_.rounded_gradients != nullptr; }
  /// Channels of all gates in a row of rounded gradients of a scan cell.
  Index rounded_channels() const { return kernels_.rounded_gradients(G() * channel_vectors() * kernels_.lanes); }
  /// Returns the offset of weight_ih for the gradient of x behind the transposed panels: panels, or in bfloat16 its
  /// rows.
  std::size_t input_gradient_offset() const { return kernels_.backward_panels(hidden_, heads_).size; }
  template <class First, class Second>
  void pack_both(int threads, const First& of_state, const Second& of_input) const;
  void pack_input_gradient(const StoredWeights& weight_ih, Real* packed) const;
  /// Returns the offset of the panels of weight_ih behind the recurrent ones.
  std::size_t input_panels_offset() const;
  Index chunk_count() const;
  Index piece_capacity() const;
  Index channel_vectors() const { return (hidden_ + kernels_.lanes - 1) / kernels_.lanes; }
  Tape tape(Real* memory) const;
  ForwardSpace forward_space(Real* memory, std::size_t* size) const;
  ScanSpace scan_space(Real* memory, std::size_t* size) const;
  BackwardSpace backward_space(Real* memory, std::size_t* size) const;

  /// One state from or to the first block of [B, H] of it.
  void load_state(const Real* block, Real* slots) const { batch_rows_.to_slots(block, hidden_, slots); }
  void store_state(const Real* slots, Real* block) const { batch_rows_.from_slots(slots, hidden_, block); }
  /// The block [B, H] of a state, or null. `blocks`: rows of the blocks that the states lie in.
  template <class Value>
  Value* state_block(Value* states, Index state, Index pitch, Index blocks) const {
    return states == nullptr ? nullptr : states + state * pitch * blocks * hidden_;
  }
  /// Rows of the blocks of state_in and dstate_in.
  Index entering_rows() const { return state_rows(restarts_, batch_rows_.rows(), batch_rows_.steps()); }
  /// The states behind the initial ones in state_in, or their gradients in dstate_in.
  template <class Value>
  cpu::RestartStates<Value> restart_states(Value* states, Index pitch) const;
  bool streams_tape(const Real* tape) const;
  void forward_dense(const ForwardPointers<Real>& call, const ForwardSpace& space, StepRange range);
  cpu::RestartStates<Real> enter_backward(const BackwardPointers<Real>& call, const BackwardSpace& space,
                                          StepRange range) const;
  void leave_backward(const BackwardPointers<Real>& call, const BackwardSpace& space, StepRange range) const;
  void enter_forward(const ForwardPointers<Real>& call, const cpu::DenseForward<Real>& job);
  void forward_scan(const ForwardPointers<Real>& call, const ScanSpace& space);
  void backward_dense(const BackwardPointers<Real>& call, BackwardSpace& space, StepRange range,
                      const cpu::RestartStates<Real>& drestarts);
  template <class Stored>
  void backward_scan(const BackwardPointers<Real>& call, const BackwardSpace& space, const Stored* wx,
                     const PieceSpace<Stored>& piece, const cpu::RestartStates<Real>& drestarts);
  void backward_pieces(const BackwardPointers<Real>& call, const cpu::CustomBackward<Real>& job, BackwardSpace& space,
                       StepRange range);
  StepRange piece_before(Index step_end) const;
  Index rows_before(const BackwardSpace& space, StepRange piece, Index step) const;
  void list_rows(StepRange piece, const cpu::RowMap& x, const cpu::RowMap& dx, const BackwardPointers<Real>& call,
                 const Real* prev, BackwardSpace& space) const;
  void weight_gradients(const BackwardPointers<Real>& call, const BackwardSpace& space, Index rows,
                        const Member& member) const;
  void learnt_gradients(const BackwardPointers<Real>& call, const BackwardSpace& space, Index rows,
                        const Member& member, Real* scratch) const;
  void recurrent_gradients(const BackwardPointers<Real>& call, const BackwardSpace& space, Index rows, Index begin,
                           Index end, Real* scratch) const;
  void narrow_gradients(const BackwardPointers<Real>& call, const BackwardSpace& space, Index rows, Index begin,
                        Index end, Real* scratch) const;
  void input_gradients(const BackwardPointers<Real>& call, const BackwardSpace& space, Index first, Index last,
                       const Member& member) const;
  void round_inputs(const BackwardPointers<Real>& call, std::uint16_t* rounded);
  void rounded_input_gradients(const BackwardPointers<Real>& call, const BackwardSpace& space);
  void rounded_recurrent_gradients(const BackwardPointers<Real>& call, const BackwardSpace& space);
  template <class Visit>
  void for_recurrent_blocks(const Visit& visit) const;
  template <class Stored>
  void gates_from(const Stored* wx, cpu::ChannelRows<const Stored>* gate) const;
  template <class Stored>
  void scan_piece(const cpu::CustomScanBackward<Real, Stored>& job, const BackwardSpace& space, const Member& member);
  template <class Stored>
  const cpu::ScanBackwardKernels<Real, Stored>& scan_backward_kernels() const;

  void clear_padding(const StoredView<Real>& sequence, Index channels) const;
  template <class Body>
  void run_dense(const cpu::PanelShape& shape, const Body& body) const;
  void forward_chunks(cpu::CustomLayer<Real>& layer, const ScanSpace& space) const;

  const plan::CellTraits& cell_;
  SequenceStrides x_strides_;
  Index input_, hidden_, heads_;
  bool reverse_, projected_, packed_, int8_;
  Restarts restarts_;
  Execution execution_;
  plan::CpuModel machine_ = cpu::machine();  // as it is when the layer is made
  plan::Problem problem_;
  plan::Plan plan_;
  BatchRows batch_rows_;
  ScanPieces<Real> pieces_;  // scan cells: how the backward pass cuts the batch
  cpu::CellKernels<Real> kernels_;
  cpu::ProductKernels<Real> products_;
  cpu::ElementKernels<Real> elements_;
  unsigned isa_generation_;
};

}  // namespace penstock::ops
