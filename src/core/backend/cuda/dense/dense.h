#pragma once

#include <span>
#include <string>
#include <vector>

#include "backend/cuda/scan/scan.h"
#include "plan/cell_table.h"
#include "plan/gpu/dense.h"

/// Layers of dense cells on a GPU, in one direction: the recurrence h_t = cell(W x_t, R h_{t-1}, state), the product of
/// the input given. Every algorithm (plan::DenseAlgorithm) answers the same calls.
namespace penstock::cuda {

/// What a kernel is told before it is compiled.
namespace given {
#include "backend/cuda/kernels/dense/pass.h"
}

struct DenseSpec {
  std::string cell = "lstm";
  Index hidden = 1;  ///< H
  Index heads = 1;   ///< Which divide H into parts of D units.
  plan::Storage storage = plan::Storage::bf16;
  bool reverse = false;  ///< The recurrence runs from the last step of a row to the first.
  plan::DenseAlgorithm algorithm = plan::DenseAlgorithm::automatic;
  bool exact = false;  ///< Forward: the bits of a row depend neither on its batch nor on where its steps are cut.
  bool tf32 = false;   ///< f32 storage only: products may round their factors to 10 bits of mantissa.
  /// Values from position to position of the tape's sums and of the gradients of W x and R h, at least G * H; 0: G * H.
  Index gate_pitch = 0;
  /// For tests: decreasing numbers of rows, for which sorted rows have plans, however short their stages are. Empty:
  /// only plans that are worth it.
  std::vector<Index> stage_rows = {};
};

/// Rows and steps of a batch.
struct DenseBatch {
  Index rows = 1;             ///< B
  Index steps = 1;            ///< T; packed rows: the steps of all rows together.
  DeviceAddress lengths = 0;  ///< int64 [B] or 0; what lies beyond a row's length is never read, and zero in outputs.
  DeviceAddress cu_seqlens = 0;  ///< int64 [B + 1] or 0, instead of lengths.
  Index longest = 0;             ///< Packed rows: no row is longer than this; 0: `steps`.
  /// Packed rows of which none is longer than the one before. `sizes`: in the host's memory, of a call how many rows
  /// have each step, `longest` numbers.
  bool sorted = false;
  std::span<const Index> sizes = {};
  /// True if tensors without gaps over all positions (tapes, gradients of products) have time as the first axis, as x
  /// has.
  bool time_first = false;
  Index tape_steps = 0;     ///< Steps of a row in memory of the tape, of which these are some; 0: `steps`.
  Index tape_begin = 0;     ///< The first of these steps among those.
  DeviceAddress reset = 0;  ///< uint8 [B, T] or 0: nonzero clears the state before a step.
  Index reset_row_stride = 0, reset_step_stride = 0;
  RestartStates restarts = {};

  bool ragged() const { return lengths != 0 || cu_seqlens != 0; }
  /// Positions (row, step) that have memory.
  Index positions() const { return cu_seqlens != 0 ? steps : rows * steps; }
  /// Positions of the tape that lie before the first of row 0, where there are no packed rows.
  Index tape_position() const { return tape_begin * (time_first ? rows : 1); }
};

/// [heads, G, D, D] in the storage (of one head: [G * H, H]); biases float [G * H] or 0. The K learnt vectors of a cell
/// lie behind the gates of bias_ih: [(G + K) * H].
struct DenseWeights {
  DeviceAddress recurrent = 0;
  DeviceAddress bias_ih = 0, bias_hh = 0;
};

/// Tape: what a forward pass keeps for its backward pass, over all positions. Both parts are written.
struct DenseTape {
  /// [P, gate pitch] in the storage. A row begins with G * H values: arguments of the gates, or R h where R h does not
  /// enter as a sum with W x alone.
  DeviceAddress sums = 0;
  /// float [P, taped_floats()]: states but the output that entered each step, [S - 1, H]; then, of cells that read
  /// means over their heads, those of the step, for each head.
  DeviceAddress states = 0;
};

/// wx [B, T, G * H], gate by gate; y [B, T, H]. States are float [S, B, H], or 0 for zeros (in) or if not wanted (out).
struct DenseForward {
  DenseBatch batch;
  DeviceSequence wx, y;
  DenseWeights weights;
  DeviceAddress state_in = 0;
  DeviceAddress state_out = 0;  ///< May be state_in.
  DenseTape tape;  ///< Both or, where no backward pass follows, neither. `states`: of cells with S > 1 or means.
  /// float [B, T, (S - 1) * H]: the states but the output after each step, zeros beyond lengths; no data: not wanted.
  DeviceSequence every_state;
};

struct DenseBackward {
  DenseBatch batch;
  DeviceSequence wx;     ///< As of the forward pass, of cells whose gradients are split (GRU); others: not read.
  DeviceSequence y, dy;  ///< y as of the forward pass; dy without data: zeros.
  DenseWeights weights;
  DenseTape tape;
  /// [P, gate pitch]. The first G * H values of a row are written, zeros beyond lengths.
  DeviceAddress dwx = 0;
  /// Gradient of R h, for cells whose gradients are split; 0 for others, for which dwx is both. Not written by
  /// plan::DenseAlgorithm::diagonal, which needs no product of it.
  DeviceAddress drh = 0;
  DenseWeights gradients;      ///< float, written: of recurrent, bias_ih and bias_hh; each 0: not wanted.
  DeviceAddress state_in = 0;  ///< As of the forward pass; h alone is read.
  DeviceAddress dstate_out = 0;
  DeviceAddress dstate_in = 0;  ///< Written unless 0.
  DeviceAddress drestarts = 0;  ///< Gradients of DenseBatch::restarts, which lie as those do: written unless 0.
  DeviceSequence dstates;       ///< float [B, T, (S - 1) * H], gradients of DenseForward::every_state; no data: zeros.
  /// The gradient that a step passes to the output before it is limited to -clip .. clip, each element by itself; 0: as
  /// it is.
  float clip = 0;
};

/// The part of a pass that runs `steps` steps from `begin` on, of rows that all have as many. States that enter and
/// leave are those of the whole pass still.
DenseForward steps_of(const DenseForward& whole, const DenseSpec& spec, Index begin, Index steps);
DenseBackward steps_of(const DenseBackward& whole, const DenseSpec& spec, Index begin, Index steps);

/// The learnt vectors behind the gates of bias_ih, or of its gradient; 0 if there are none.
DeviceAddress learnt_of(const DenseWeights& weights, const std::string& cell, Index hidden);

/// What the kernels of all algorithms, and of those that keep a matrix on the chip, are told.
given::DensePass dense_pass(const plan::GpuDenseProblem& problem);
given::HeldMatrix held_matrix(const plan::GpuDenseProblem& problem, const plan::GpuDensePlan& plan);
/// Returns the kernel of a pass by an algorithm, such as "head", which is told `pass`.
KernelSource pass_source(const plan::GpuDenseProblem& problem, const plan::GpuDensePlan& plan,
                         const std::string& algorithm, Constant pass);

/// Returns the planner's problem of a call. Throws Error(invalid_argument) if the call does not fit the spec.
plan::GpuDenseProblem problem_of(const DenseForward& call, const DenseSpec& spec);
plan::GpuDenseProblem problem_of(const DenseBackward& call, const DenseSpec& spec);
/// Returns whether what was prepared for a problem runs a call of another one, which differs in addresses or steps
/// alone.
bool can_run(const plan::GpuDenseProblem& prepared, const plan::GpuDenseProblem& call);

/// Returns the floats of DenseTape::states of a position.
Index taped_floats(const plan::CellTraits& cell, Index hidden, Index heads);

/// Values from position to position of the tape's sums and of the gradients of W x and R h.
Index gate_pitch(const DenseSpec& spec);

/// Bytes of both parts of a tape.
struct DenseTapeBytes {
  std::size_t sums = 0, states = 0;
};
DenseTapeBytes tape_bytes(const DenseSpec& spec, const DenseBatch& batch);

}  // namespace penstock::cuda
