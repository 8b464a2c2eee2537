#pragma once

#include <memory>
#include <string>
#include <vector>

#include "penstock/penstock.h"
#include "shim.h"

namespace penstock::torch_ops {

/// The positions of a PackedSequence: all rows of step 0, all of step 1, ... So a CPU takes them (Batch::by_steps); on
/// a GPU the library has rows one after the other.
class PackedRows {
 public:
  PackedRows(const TorchTensor& batch_sizes, bool on_gpu);

  Index rows() const { return static_cast<Index>(cu_seqlens_.size()) - 1; }
  Index total() const { return cu_seqlens_.back(); }
  Index longest() const { return longest_; }
  /// Of each step [longest], in the host's memory.
  const Index* sizes() const { return sizes_; }

  /// int64 [B + 1] on the device of `like`.
  TorchTensor cu_seqlens(const TorchTensor& like) const;
  /// [total, ...] as the library has them from the order of the PackedSequence.
  TorchTensor by_rows(TorchTensor tensor) const;
  /// The reverse.
  TorchTensor by_steps(TorchTensor tensor) const;

 private:
  /// Where each position of the rows lies among those of the steps, on a GPU; made when it is wanted first.
  const TorchTensor& sources(const TorchTensor& like) const;
  /// The reverse.
  const TorchTensor& places(const TorchTensor& like) const;

  bool on_gpu_;
  const Index* sizes_;             // [T], the caller's
  std::vector<Index> starts_;      // [T] of the steps' positions
  std::vector<Index> cu_seqlens_;  // [B + 1]
  mutable TorchTensor sources_, places_;
  Index longest_ = 0;
};

/// The arguments that forward and backward passes of the op share, and what follows from them.
struct RecurrentCall {
  TorchTensor x, state, lengths, batch_sizes, reset;
  std::vector<TorchTensor> weights;
  bool batch_first = false, every_state = false;
  bool one_step = false;  // x is [B, I], or [I] of a single row
  std::unique_ptr<PackedRows> packed;
  RecurrentSpec spec;
  Index rows = 0, steps = 0, states = 0;

  void take_tensors(Arguments& arguments);
  /// The last of these: lengths, batch_sizes and reset.
  void take_rows(Arguments& arguments);
  void take_form(Arguments& arguments);
  /// Checks everything that the library does not see: shapes, types and devices of tensors. Fills in the rest.
  void validate();

  /// Nothing to compute?
  bool empty() const { return packed == nullptr && rows == 0; }
  Sizes y_sizes() const { return sequence_sizes(spec.output_size()); }
  /// Of all states but the output; of no elements unless they are asked for.
  Sizes every_state_sizes() const;
  Sizes state_sizes() const { return {states, slots(), rows, spec.hidden_size}; }

 private:
  Sizes sequence_sizes(Index channels) const;
  Index slots() const { return spec.layers * spec.directions(); }
  void validate_weights(const CellInfo& cell);
  void validate_state() const;
  void validate_rows() const;
  void validate_devices() const;
};

/// Each is 0 to T; of contiguous lengths that the host can read without waiting for a GPU.
void check_lengths(const TorchTensor& lengths, Index steps);

/// What decides how large a tape is, by numbers alone, for those who have the shapes of tensors only.
struct TapeForm {
  const char* cell;
  std::int64_t input, hidden, heads, layers, bidirectional, biases;
  std::int64_t type, weight_type;  // f32, f64, bf16, f16
  std::int64_t rows, steps, lengths, reset, batch_first, every_state;
  std::int64_t cuda;  // number of the GPU; -1: the CPU
};

}  // namespace penstock::torch_ops
