#pragma once

#include <memory>
#include <vector>

#include "penstock/penstock.h"
#include "shim.h"

namespace penstock::torch_ops {

/// Packed positions: those of a PackedSequence, ordered by steps (all rows of step 0, all rows of step 1, ...), or row
/// after row. The CPU reads both orders (Batch::by_steps); on a GPU the library needs positions ordered by rows.
class PackedRows {
 public:
  PackedRows(const TorchTensor& batch_sizes, bool on_gpu);
  /// Row after row: `offsets`, int64 [B + 1], are the rows' first of `total` positions; `most` bounds their lengths.
  PackedRows(const TorchTensor& offsets, const TorchTensor& most, Index total);

  Index rows() const { return offsets_ ? offsets_.size(0) - 1 : static_cast<Index>(cu_seqlens_.size()) - 1; }
  Index total() const { return total_; }
  Index longest() const { return longest_; }
  /// Returns whether the positions are ordered by steps.
  bool is_by_steps() const { return !offsets_; }
  /// Returns the number of rows of each step, [longest], in host memory.
  const Index* sizes() const { return sizes_; }

  /// Returns cu_seqlens, int64 [B + 1], on the device of `like`.
  TorchTensor cu_seqlens(const TorchTensor& like) const;
  /// Converts [total, ...] from the order of the PackedSequence to the order of the library.
  TorchTensor by_rows(TorchTensor tensor) const;
  /// Converts [total, ...] from the order of the library to the order of the PackedSequence.
  TorchTensor by_steps(TorchTensor tensor) const;

 private:
  /// Returns, for each position in row order, its index in step order, on a GPU. Computed at the first call.
  const TorchTensor& sources(const TorchTensor& like) const;
  /// Returns, for each position in step order, its index in row order.
  const TorchTensor& places(const TorchTensor& like) const;

  bool on_gpu_;
  const Index* sizes_ = nullptr;   // [T], owned by the caller
  std::vector<Index> starts_;      // [T], first position of each step
  std::vector<Index> cu_seqlens_;  // [B + 1]
  mutable TorchTensor sources_, places_;
  TorchTensor offsets_;  // row after row alone
  Index longest_ = 0, total_ = 0;
};

/// The arguments that forward and backward passes of the op share, and values derived from them.
struct RecurrentCall {
  TorchTensor x, state, lengths, batch_sizes, reset;
  std::vector<TorchTensor> weights;
  bool batch_first = false, every_state = false;
  bool one_step = false;  // x is [B, I], or [I] of a single row
  std::unique_ptr<PackedRows> packed;
  RecurrentSpec spec;
  Index rows = 0, steps = 0, states = 0;
  Restarts restarts = Restarts::zeros;

  void take_tensors(Arguments& arguments);
  /// Takes lengths, batch_sizes and reset.
  void take_rows(Arguments& arguments);
  void take_form(Arguments& arguments);
  /// Checks shapes, types and devices of tensors, which the library does not see, and computes the derived members.
  void validate();

  /// Finds out from the rows of the states before the call which ones resets start again with.
  void take_restarts(Index entering_rows);

  /// Returns true if there are no rows.
  bool empty() const { return packed == nullptr && rows == 0; }
  Sizes y_sizes() const { return sequence_sizes(spec.output_size()); }
  /// Returns the sizes of the states other than the output after each step; [0] unless every_state is set.
  Sizes every_state_sizes() const;
  Sizes state_sizes() const { return {states, slots(), rows, spec.hidden_size}; }
  Sizes entering_sizes() const { return {states, slots(), state_rows(restarts, rows, steps), spec.hidden_size}; }

 private:
  Sizes sequence_sizes(Index channels) const;
  Index slots() const { return spec.layers * spec.directions(); }
  void validate_weights(const CellInfo& cell);
  void validate_state();
  void validate_rows() const;
  void validate_devices() const;
};

/// Checks that lengths are 0 to T. Skips lengths on a GPU, which the host cannot read without synchronising. `lengths`
/// is contiguous.
void check_lengths(const TorchTensor& lengths, Index steps);

/// Returns the resets of a sequence [B, T, ...], contiguous. Throws unless they are bool [B, T] on its device; `name`
/// is that of the sequence.
TorchTensor ready_reset(const TorchTensor& reset, const TorchTensor& sequence, const char* name);

}  // namespace penstock::torch_ops
