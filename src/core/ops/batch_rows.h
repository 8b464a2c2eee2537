#pragma once

#include <algorithm>
#include <vector>

#include "backend/cpu/kernels.h"
#include "penstock/recurrent.h"

namespace penstock::ops {

/// Steps [begin, end) of a sequence, counted in the direction in which it is read.
struct StepRange {
  Index begin = 0, end = 0;
};

/// Which steps exist and where: a Batch and the layout of its input, in the form that the engines want.
///
/// "Cells" number the (row, step) pairs that exist. Where all rows have T steps and the input's rows can be seen as one
/// matrix, cells follow the input's own order and the input product is one matrix product on it; otherwise the valid
/// steps are gathered, row after row or, for engines that run all rows step by step, step after step.
class BatchRows {
 public:
  /// Throws Error(invalid_argument) for impossible sizes, lengths or cu_seqlens.
  static void check(const Batch& batch);

  /// Checks the batch; reuses its memory. `step_by_step`: the engine runs all rows at once.
  void prepare(const Batch& batch, Index x_row_stride, Index x_step_stride, Index input, bool reverse,
               bool step_by_step);

  Index rows() const { return rows_; }
  Index steps() const { return steps_; }
  Index cells() const { return cells_; }
  bool gathered() const { return gathered_; }
  /// Elements between the rows of the input matrix [cells, I], when it is not gathered.
  Index input_stride() const { return input_stride_; }
  Index length(Index row) const { return length_of_row_[static_cast<std::size_t>(row)]; }
  const cpu::RowPlan& plan() const { return plan_; }

  /// Returns the places of the steps of each row in a tensor of these strides. Valid until the next call with the same
  /// `which`.
  enum Which { input_map, output_map, gradient_map, input_gradient_map, states_map, map_count = 8 };
  cpu::RowMap map(int which, Index row_stride, Index step_stride);

  /// Calls visit(offset) for each row's positions at some steps, in a tensor of these strides.
  template <class Visit>
  void for_positions(StepRange range, Index row_stride, Index step_stride, const Visit& visit) const {
    for (Index slot = 0; slot < rows_ && plan_.length[slot] > range.begin; ++slot) {
      const Index row = plan_.row_of[slot];
      for (Index s = range.begin; s < std::min(range.end, plan_.length[slot]); ++s) {
        const Index t = plan_.time(slot, s);
        visit(packed_ ? position(row, t) * step_stride : row * row_stride + t * step_stride);
      }
    }
  }

  /// Copies [cells, C] to the valid steps of a tensor [B, T, C].
  template <class Real>
  void scatter(const Real* from, Index channels, SequenceView<Real> to);
  /// One state [B, C] in the order of rows into that of slots, and back. Null states are zeros, or are not wanted.
  template <class Real>
  void to_slots(const Real* states, Index channels, Real* slots) const;
  template <class Real>
  void from_slots(const Real* slots, Index channels, Real* states) const;
  /// Zeros the steps of a tensor [B, T, C] beyond each row's length.
  template <class Real>
  void clear_padding(SequenceView<Real> tensor, Index channels) const;

 private:
  void read_lengths(const Batch& batch);
  void order_rows();
  void count_steps();
  void number_cells(const Batch& batch, Index x_row_stride, Index x_step_stride, Index input, bool step_by_step);
  /// Returns the place of step t of a packed row among all positions.
  Index position(Index row, Index t) const { return by_steps_ ? step_start_[t] + row : start_of_row_[row] + t; }

  /// Arguments of prepare() for a batch whose rows all have T steps, without resets. The same again need no work.
  struct WholeRows {
    bool whole = false, reverse = false, step_by_step = false;
    Index rows = 0, steps = 0, x_row_stride = 0, x_step_stride = 0, input = 0;
    bool operator==(const WholeRows&) const = default;
  };

  WholeRows last_;
  Index rows_ = 0, steps_ = 0, cells_ = 0, input_stride_ = 0;
  bool gathered_ = false, packed_ = false, by_steps_ = false;
  std::vector<Index> length_of_row_, start_of_row_, row_of_slot_, length_of_slot_, first_cell_, first_reset_;
  std::vector<Index> step_start_;  // [T] positions that exist at the steps before
  std::vector<Index> map_first_[map_count], map_steps_[map_count];
  cpu::RowPlan plan_;
};

}  // namespace penstock::ops
