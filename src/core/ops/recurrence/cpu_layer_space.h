#pragma once

// How CpuLayer lays out its workspaces and its tape. Private to src/core/ops.

#include "ops/product/matmul.h"
#include "ops/recurrence/cpu_layer.h"
#include "ops/scan/scan_chunks.h"

namespace penstock::ops {

/// Hands out pieces of a block of memory; with null memory it only counts.
template <class Real>
class Carver {
 public:
  explicit Carver(Real* memory) : memory_(memory) {}
  Real* take(Index count) {
    Real* piece = memory_ == nullptr ? nullptr : memory_ + used_;
    // Whole cache lines, so that no two pieces share one.
    used_ += (static_cast<std::size_t>(count) + 15) / 16 * 16;
    return piece;
  }
  /// Takes items of any implicit-lifetime type: a plain assignment begins their life.
  template <class Item>
  Item* take_items(Index count) {
    static_assert(std::is_trivially_destructible_v<Item>);
    return reinterpret_cast<Item*>(
        take(static_cast<Index>((static_cast<std::size_t>(count) * sizeof(Item) + sizeof(Real) - 1) / sizeof(Real))));
  }
  /// Takes values of 16 bits.
  std::uint16_t* take_rounded(Index count) {
    return reinterpret_cast<std::uint16_t*>(take(static_cast<Index>(reals(count))));
  }
  /// Reals that hold so many values of 16 bits.
  static constexpr std::size_t reals(Index count) {
    constexpr Index each = sizeof(Real) / sizeof(std::uint16_t);
    return static_cast<std::size_t>((count + each - 1) / each);
  }
  std::size_t used() const { return used_; }

 private:
  Real* memory_;
  std::size_t used_ = 0;
};

template <class Real>
ChunkSpace<Real> chunk_space(Carver<Real>& carver, Index chunks, Index channels) {
  const Index values = chunks * channels;
  return {{carver.take(values), carver.take(values), carver.take(values)}, channels};
}

template <class Real>
template <class Value>
cpu::RestartStates<Value> CpuLayer<Real>::restart_states(Value* states, Index pitch) const {
  if (states == nullptr || restarts_ == Restarts::zeros) return {};
  const Index row = restarts_ == Restarts::one ? 0 : restarts_ == Restarts::rows ? 1 : batch_rows_.steps();
  return {.data = states + batch_rows_.rows() * hidden_,
          .state = pitch * entering_rows() * hidden_,
          .row = row * hidden_,
          .step = restarts_ == Restarts::steps ? hidden_ : 0};
}

template <class Real>
struct CpuLayer<Real>::Tape {
  Real* saved = nullptr;                // dense [cells, N, H]
  Real* prev = nullptr;                 // dense [cells, S, H]
  Real* wx = nullptr;                   // scan [cells, G, H], with the bias
  std::uint16_t* rounded_wx = nullptr;  // instead of wx, where gradients are rounded
  std::size_t size = 0;
};

/// Memory of the backward pass through a scan cell for one piece; layouts in gradient.inl and gradient_bf16.inl.
template <class Real>
template <class Stored>
struct CpuLayer<Real>::PieceSpace {
  Stored* dwx = nullptr;
  Stored* x_packed = nullptr;
  Stored* columns = nullptr;  // [threads, kColumns, column_stride()], of bfloat16 only
};

/// Memory of the forward pass of a dense cell.
template <class Real>
struct CpuLayer<Real>::ForwardSpace {
  Real* zeros = nullptr;  // [G, H], stands in for absent biases
  Real* wx = nullptr;     // [piece_steps(), B, gates_stride()]
  Real* h[2] = {nullptr, nullptr};
  Real* state = nullptr;  // [S - 1, B, H]
  Real* last = nullptr;   // [S, B, H]
  Real* operand = nullptr;
  Real* between = nullptr;
  cpu::RoundedOperands rounded;
  cpu::RowPlace<Real>* places = nullptr;  // [channel parts, B]
  Real* sums = nullptr;                   // [B, 2, G, H], cells whose units read means
  Real* heads = nullptr;                  // [threads, head_values()]
};

/// Memory of the forward pass of a scan cell.
template <class Real>
struct CpuLayer<Real>::ScanSpace {
  Real* carry = nullptr;             // [B, H] in slot order
  Real* wx = nullptr;                // [cells, G, H], in chunks only
  ChunkSpace<Real> chunks;           // [B, chunks, H]
  std::uint16_t* rounded = nullptr;  // inputs of all threads
};

/// Places of the rows of a piece of the sequence, slot after slot of each step.
template <class Real>
struct CpuLayer<Real>::PieceRows {
  Index* first = nullptr;          // [gradient_steps()]: that of a step's slot 0
  const Real** x = nullptr;        // [rows], each [I]
  Real** dx = nullptr;             // [rows], each [I]
  const Real** h = nullptr;        // [rows], each [H]: state 0 entering the step
  const Real** operand = nullptr;  // [rows], each [H], two-phase cells
};

template <class Real>
struct CpuLayer<Real>::BackwardSpace {
  // Values of one piece of the sequence.
  Real* dwx = nullptr;                      // [rows, gates_stride()]
  Real* drh = nullptr;                      // [rows, gates_stride()] or dwx
  Real* dlearnt = nullptr;                  // [rows, K, H]
  Real* heads = nullptr;                    // [threads, head_values()], cells whose units read means
  Real* operand = nullptr;                  // [rows, H], two-phase cells
  PieceRows rows;                           // dense
  PieceSpace<Real> piece;                   // scan
  PieceSpace<std::uint16_t> rounded_piece;  // scan, instead, where gradients are rounded
  Real* scratch = nullptr;                  // [threads, transposed_scratch()]
  Real* dstate = nullptr;                   // [S, B, H]
  Real* drestarts = nullptr;                // [S, B, H], of a state that all rows share: the share of each row
  Real* state_in = nullptr;                 // scan [B, H] in slot order
  ChunkSpace<Real> chunks;                  // scan, in chunks [chunks of a piece, H]
  cpu::RoundedGradients rounded;            // of all steps, instead of dwx, drh and operand
  Real* dx = nullptr;                       // [cells, I]
  std::uint16_t* rounded_x = nullptr;       // [cells, I]
};

}  // namespace penstock::ops
