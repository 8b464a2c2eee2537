#pragma once

#include <cstddef>
#include <cstdint>
#include <type_traits>

#include "backend/cpu/product_kernels.h"
#include "base/threads.h"
#include "penstock/types.h"

namespace penstock::cpu {

/// Places of the steps of a batch's rows in a buffer: step t of row b is at element first[b] + t * step, or first[b] +
/// steps[t] if each step has a place of its own.
struct RowMap {
  const Index* first = nullptr;  // [B]
  Index step = 0;
  const Index* steps = nullptr;  // [T] or null

  Index at(Index row, Index t) const { return first[row] + (steps != nullptr ? steps[t] : t * step); }
};

/// States with which rows start again after a reset, or gradients of them: state k before step t of row b begins at
/// data + k * state + b * row + t * step. Strides of 0 share states. Null data: zeros, or gradients nobody wants.
template <class Real>
struct RestartStates {
  Real* data = nullptr;
  Index state = 0, row = 0, step = 0;

  /// Returns state 0 of a row before step t, or null.
  Real* at(Index b, Index t) const { return data == nullptr ? nullptr : data + b * row + t * step; }
};

/// bfloat16 in memory, const where Real is.
template <class Real>
using Bf16Of = std::conditional_t<std::is_const_v<Real>, const std::uint16_t, std::uint16_t>;

/// A matrix of int8: row r is scales[r] * values[r].
struct Int8Matrix {
  const std::int8_t* values = nullptr;
  const float* scales = nullptr;
};

/// Weights as somebody else stores them: Reals or, where `bf16` is there instead, bfloat16, which only kernels that
/// round what they multiply read. Kernels of int8 read `int8`.
template <class Real>
struct StoredWeights {
  const Real* reals = nullptr;
  const std::uint16_t* bf16 = nullptr;
  Int8Matrix int8 = {};
};

/// Batch as all engines know it. "Slots" are the rows sorted by decreasing length, so that the rows that still run at a
/// step are always the first ones; states lie in slot order.
struct RowPlan {
  Index rows = 0;                 // B
  const Index* row_of = nullptr;  // [B] slot -> row of the batch
  const Index* length = nullptr;  // [B] slot -> number of steps, decreasing
  bool reverse = false;           // step s of a row is t = length - 1 - s
  RowMap cells;                   // numbers the (row, t) pairs: a buffer [cells, C] holds step t of row at cells.at()
  const std::uint8_t* reset = nullptr;  // at reset_map, or null
  RowMap reset_map;

  /// The time index of step s of a slot.
  Index time(Index slot, Index s) const { return reverse ? length[slot] - 1 - s : s; }
  /// Returns whether the state starts again before step s of a slot.
  bool resets(Index slot, Index s) const {
    return reset != nullptr && reset[reset_map.at(row_of[slot], time(slot, s))] != 0;
  }
};

/// Operands of products in bfloat16: rounded once, then read for every block of units. Rows of inputs and of each head
/// are filled up with zeros to what CellKernels::rounded_inputs() says. Behind the last row there is room for
/// kRoundedRows more, which tiles read and throw away. Kernels of int8 keep their operands here too, two in 16 bits: of
/// states only h[0], for each member of a part by itself (panel_int8.inl).
struct RoundedOperands {
  std::uint16_t* x = nullptr;                // [piece * B, inputs]
  std::uint16_t* h[2] = {nullptr, nullptr};  // [B, heads, inputs] of DenseForward::h
  std::uint16_t* operand = nullptr;          // [B, heads, inputs] of DenseForward::operand
};
constexpr Index kRoundedRows = 15;

/// Place of a row at one step: unit 0 in every buffer that its gates touch. Computed once a step, for all blocks of
/// units.
template <class Real>
struct RowPlace {
  const Real* wx = nullptr;          // [G, H], or null
  const Real* h = nullptr;           // [H]: state 0 entering the step
  const Real* others = nullptr;      // the other states, each [H], B * H apart
  Real* y = nullptr;                 // [H]
  std::uint16_t* y_bf16 = nullptr;   // [H], instead of y
  Real* next_h = nullptr;            // [H]: where state 0 leaves to
  Real* next_others = nullptr;       // the other states, as above
  Real* saved = nullptr;             // [N, H], or null in inference
  Real* prev = nullptr;              // [S, H], or null in inference
  Real* every_state = nullptr;       // [S - 1, H]: states but h after the step, or null
  Real* operand = nullptr;           // [H], two-phase cells
  Real* between = nullptr;           // [N, H], two-phase cells
  std::uint16_t* rounded = nullptr;  // [heads, inputs] of next_h, where operands are rounded
  std::uint16_t* rounded_operand = nullptr;
  bool restarts = false;          // a reset comes before the next step
  const Real* restart = nullptr;  // [H]: state 0 that the next step starts with then, or null for zeros
};

/// A dense cell over a batch, forward. The input product is made for a piece of the sequence at a time, or step by step
/// on the way.
template <class Real>
struct DenseForward {
  RowPlan plan;
  Index hidden = 0, heads = 1;  // H, heads as PanelShape says
  Index mixed = 0;              // units of a head, whose states a unit's product reads: D
  // Steps [step_begin, step_end) of the sequence. Those before them have been run in the same buffers.
  Index step_begin = 0, step_end = 0;
  Index piece = 0;     // steps of a piece, counted from step_begin
  Real* wx = nullptr;  // [piece, B, wx_stride], each [G, H], in slot order: W x + bias; null: made on the way
  Index wx_stride = 0;
  Index input = 0;                        // I
  const Real* x = nullptr;                // at x_map
  const std::uint16_t* x_bf16 = nullptr;  // instead of x, where operands are rounded
  RowMap x_map;
  const Real* packed_input = nullptr;  // panels of weight_ih; null with wx: x holds W x, without the bias
  const Real* bias_ih = nullptr;       // [G, H]
  const Real* bias_hh = nullptr;       // [G, H]
  const Real* packed = nullptr;        // recurrent panels, see panel.inl
  // Instead of panels, the weights where the caller has them; kernels of floats and doubles only, and no wx.
  const Real* weight_ih = nullptr;  // [G*H, I]
  const Real* weight_hh = nullptr;  // [G*H, H], heads > 1: [heads, G*D, D]
  Real* y = nullptr;                // output, at y_map
  std::uint16_t* y_bf16 = nullptr;  // instead of y, where operands are rounded
  RowMap y_map;
  Real* h[2] = {nullptr, nullptr};  // [B, H] in slot order: state 0 entering an even and an odd step
  Real* state = nullptr;            // [S - 1, B, H] in slot order: the other states, in place
  Real* last = nullptr;             // [S, B, H] in slot order: states after the last step of each row
  RestartStates<const Real> restarts;
  Real* every_state = nullptr;  // [S - 1, H] at every_state_map: states but h after each step, or null
  RowMap every_state_map;
  Real* operand = nullptr;           // [B, H] in slot order, two-phase cells: what the second product multiplies
  Real* between = nullptr;           // [B, N, H] in slot order, two-phase cells: saved values from phase to phase
  Real* saved = nullptr;             // [cells, N, H] or null in inference
  Real* prev = nullptr;              // [cells, S, H] states entering each step, or null in inference
  bool streams = false;              // both go past the caches, where vectors are lines of those
  RoundedOperands rounded;           // where panels are multiplied with rounded operands
  RowPlace<Real>* places = nullptr;  // [members of a part, B] in slot order, scratch

  /// The row of wx that belongs to a step of a slot.
  Index wx_row(Index slot, Index step) const { return step_of_piece(step) * plan.rows + slot; }
  Index step_of_piece(Index step) const { return (step - step_begin) % piece; }
  /// Returns whether the rows of an input product's tile are the steps of one slot in turn. Otherwise they are the
  /// slots of one step, as in products made on the way.
  bool along_steps() const { return wx != nullptr && piece >= plan.rows; }
  /// The row of rounded.x: rows of a tile lie one after the other.
  Index rounded_row(Index slot, Index step) const {
    return along_steps() ? slot * piece + step_of_piece(step) : wx_row(slot, step);
  }
};

/// Most states a cell may have.
constexpr int kMostStates = 4;

/// Weights of a step's panels; absent ones are null.
template <class Real>
struct StepWeights {
  const Real* weight_ih = nullptr;        // [G*H, I]
  const Real* weight_hh = nullptr;        // [G*H, H], heads > 1: [heads, G*D, D]; of dense cells
  const Real* bias_ih = nullptr;          // [G, H]
  const Real* bias_hh = nullptr;          // [G, H], of dense cells
  Int8Matrix int8_ih = {}, int8_hh = {};  // instead of weight_ih and weight_hh, for kernels of int8
};

/// One step of one row, of a dense or a scan cell; no lengths, no resets.
template <class Real>
struct CellStep {
  Index input = 0, hidden = 0;     // I, H
  Index heads = 1, head_size = 0;  // D = H / heads
  const Real* packed = nullptr;    // of pack_step()
  Real* operand = nullptr;         // [H], scratch of two-phase cells
  Real* between = nullptr;         // [N, H], scratch of two-phase cells
  std::int8_t* rounded = nullptr;  // operands of kernels of int8: of x, then of the heads; as rounded_inputs() says
  bool backwards = false;          // the way through the panels; should change from step to step
  bool far = false;                // the panels are larger than the caches of a core
  const Real* x = nullptr;         // [I]
  Real* y = nullptr;               // [H]; neither x nor a state
  Real* state[kMostStates] = {};   // [H] each
};

/// Gradients that a backward pass in bfloat16 leaves for the products over all steps, instead of floats, and multiplies
/// itself.
struct RoundedGradients {
  std::uint16_t* dwx = nullptr;      // [cells, G, H]
  std::uint16_t* drh = nullptr;      // [cells, G, H]; may be dwx itself where they are equal
  std::uint16_t* h = nullptr;        // [cells, H]: state 0 entering each step
  std::uint16_t* operand = nullptr;  // [cells, H], two-phase cells
  /// [B + kRoundedRows, heads, G, inputs] in slot order: drh of an even and of an odd step, since who shares a slot may
  /// be at the next step already.
  std::uint16_t* step[2] = {nullptr, nullptr};
};

template <class Real>
struct DenseBackward {
  RowPlan plan;
  Index hidden = 0, heads = 1, mixed = 0;  // as DenseForward's
  const Real* packed = nullptr;            // transposed recurrent panels
  const Real* saved = nullptr;             // [cells, N, H]
  const Real* prev = nullptr;              // [cells, S, H]
  const Real* dy = nullptr;                // at dy_map
  const std::uint16_t* dy_bf16 = nullptr;  // instead of dy, where gradients are rounded
  RowMap dy_map;
  const Real* dstates = nullptr;  // [S - 1, H] at dstates_map: gradients of the states but h after each step, or null
  RowMap dstates_map;
  Real clip = 0;                  // limit of the gradient that a step passes to the h before it; 0: none
  Real* dstate = nullptr;         // [S, B, H] in slot order: gradient of the states after (then before) a step
  RestartStates<Real> drestarts;  // to which the gradients of the states before a step are added at resets
  // Steps [step_begin, step_end), the last first, are a piece of the sequence; the rows of what it leaves follow each
  // other step by step.
  Index step_begin = 0, step_end = 0;
  const Index* first_row = nullptr;  // [step_end - step_begin]: that of slot 0
  Real* dwx = nullptr;               // [rows of the piece, gates_stride], each [G, H]
  Real* drh = nullptr;               // likewise; may be dwx itself where they are equal
  Index gates_stride = 0;
  Real* operand = nullptr;   // [rows of the piece, H] two-phase cells: what the second product multiplied, written anew
  RoundedGradients rounded;  // instead of the last three, where panels are multiplied with rounded operands

  Index row_of(Index slot, Index step) const { return first_row[step - step_begin] + slot; }
};

/// Job that adds rows to the gradient of one gate's matrices. Heads are narrow: a vector holds several.
template <class Real>
struct NarrowGradient {
  Index rows = 0, mixed = 0;  // D
  const Real* drh = nullptr;  // [rows, stride], of the gate
  Index stride = 0;
  const Real* const* operand = nullptr;  // [rows], each [H]: what the matrices multiply
  Real* gradient = nullptr;              // [D, D] of the gate in the first head
  Index head_stride = 0;                 // to that in the next head
};

/// A part of a dense job: slots and unit blocks of one member of a team. Members that share slots share a barrier.
struct DensePart {
  Index slot_begin = 0, slot_end = 0;
  Index block_begin = 0, block_end = 0;
  SpinBarrier* barrier = nullptr;
  int member = 0, members = 1;  // of those who share the slots
};

/// A value for every step and channel: channel c of step t of a row is data[map.at(row, t) * scale + c].
template <class Real>
struct ChannelRows {
  Real* data = nullptr;
  RowMap map;
  Index scale = 1;

  Real* at(Index row, Index t) const { return data + map.at(row, t) * scale; }
};

/// Destination of the gradients of gates. Vectors of channels lie `vector_stride` apart, so that a step's channels need
/// not be contiguous; `padded` says that the last vector has room for all its lanes.
template <class Stored>
struct GateSink {
  ChannelRows<Stored> rows;
  Index vector_stride = 0;
  bool padded = false;
};

constexpr int kMostScanGates = 3;

/// h_t = a_t h_{t-1} + b_t from gates that are there, forward.
template <class Real>
struct ScanForward {
  RowPlan plan;
  RestartStates<const Real> restarts;
  ChannelRows<const Real> gate[kMostScanGates];
  ChannelRows<Real> y;
  ChannelRows<std::uint16_t> y_bf16;  // instead of y
};

/// Backward: a and b are formed from the gates again, so that only gates and y need keeping. Gates and their gradients
/// are kept as `Stored`: Reals, or bfloat16.
template <class Real, class Stored = Real>
struct ScanBackward {
  RowPlan plan;
  Index hidden = 0;
  ChannelRows<const Stored> gate[kMostScanGates];
  ChannelRows<const Real> y;       // output of the forward pass
  const Real* state_in = nullptr;  // [B, H] in slot order
  RestartStates<const Real> restarts;
  RestartStates<Real> drestarts;  // as DenseBackward's
  ChannelRows<const Real> dy;
  ChannelRows<const std::uint16_t> y_bf16, dy_bf16;  // instead of y and dy, where gates are bfloat16
  GateSink<Stored> dgate[kMostScanGates];
};

/// Steps [begin, end) of one slot and channels [channel_begin, channel_end).
struct ScanPart {
  Index slot = 0;
  Index begin = 0, end = 0;
  Index channel_begin = 0, channel_end = 0;
};

/// A layer of a scan cell with its input product, forward. Without y the gates alone are computed.
template <class Real>
struct ScanLayer {
  RowPlan plan;
  RestartStates<const Real> restarts;
  Index input = 0, hidden = 0, gates = 0;  // I, H, G
  const Real* x = nullptr;                 // at x_map
  const std::uint16_t* x_bf16 = nullptr;   // instead of x, where operands are rounded
  RowMap x_map;
  const Real* packed = nullptr;         // panels of weight_ih, see layer.inl
  const Real* bias = nullptr;           // [G, H] or null
  Real* wx = nullptr;                   // [cells, G, H], W x + bias, or null
  std::uint16_t* rounded_wx = nullptr;  // the same in bfloat16, where operands are rounded, or null
  ChannelRows<Real> y;
  ChannelRows<std::uint16_t> y_bf16;  // instead of y, where operands are rounded
  Real* carry = nullptr;              // [B, H] in slot order: the state entering the part, then the one leaving it
  std::uint16_t* rounded = nullptr;   // [threads, kScanSites + kRoundedRows, rounded_inputs()], scratch, or null

  bool has_outputs() const { return y.data != nullptr || y_bf16.data != nullptr; }
};

/// Steps of a scan layer whose inputs are used for all channels before going on: they stay in the second-level cache.
constexpr Index kScanSites = 128;

/// Steps [begin, end) of slots [slot_begin, slot_end) and vectors of channels [block_begin, block_end).
struct ScanLayerPart {
  Index slot_begin = 0, slot_end = 0;
  Index begin = 0, end = 0;
  Index block_begin = 0, block_end = 0;
  int thread = 0;  // whose scratch it may use
};

/// A piece of a scan layer's batch in its backward pass from the gates; layouts in gradient.inl, and of bfloat16
/// in gradient_bf16.inl.
template <class Real, class Stored = Real>
struct ScanGradient {
  Index cells = 0, capacity = 0;                       // rows of the piece, and for how many there is room
  Index input = 0, hidden = 0, gates = 0, blocks = 0;  // I, H, G, ceil(H / lanes)
  const Stored* dwx = nullptr;
  Stored* x_packed = nullptr;
  Stored* columns = nullptr;  // [kColumns, column_stride(capacity)], scratch of a thread, of bfloat16 only
  const Real* weight_panels = nullptr;
  const Real* const* x_row = nullptr;  // [cells], each [I]
  Real* const* dx_row = nullptr;       // [cells], each [I]
  // Instead of these, where gates are bfloat16.
  const std::uint16_t* const* x_row_bf16 = nullptr;
  std::uint16_t* const* dx_row_bf16 = nullptr;
  Real* weight_gradient = nullptr;  // [G*H, I] or null
  Real* bias_gradient = nullptr;    // [(G + K)*H] with learnt vectors of a custom cell, or null
};

/// Channels whose gradients, turned around, wait for their product over the rows of a piece; and from one to the next,
/// an odd number of the cache's lines, or they would all fall into the same places of it.
constexpr Index kColumns = 32;
constexpr Index column_stride(Index capacity) { return ((capacity + 31) / 32 | 1) * 32; }

/// Shape of the recurrent panels of one cell on one instruction set. Heads that a vector holds several of are taken as
/// one head of all units, each of which mixes only `mixed` of them.
struct PanelShape {
  Index heads = 1, mixed = 0;
  Index blocks = 0;  // unit blocks over all heads
  Index blocks_per_head = 0;
  Index units = 0;       // units in a block (the last one of a head may be partly padding)
  std::size_t size = 0;  // Reals
};

/// Effect of some steps on the state that enters them: carry' = (gain + gain_rest) carry + offset, each [H]. The sum of
/// two numbers keeps the digits of a product of many gains close to 1.
template <class Real>
struct ScanEffect {
  Real* gain = nullptr;
  Real* gain_rest = nullptr;
  Real* offset = nullptr;
};

/// The backward pass through a scan cell whose gates, and the gradients of them, are kept as `Stored`. The summary is
/// that of CellKernels::scan_forward_summary. Rows and vectors are those of a piece.
template <class Real, class Stored = Real>
struct ScanBackwardKernels {
  using Job = ScanBackward<Real, Stored>;
  using Piece = ScanGradient<Real, Stored>;
  void (*run)(const Job& job, const ScanPart& part, Real* carry) = nullptr;
  void (*summary)(const Job& job, const ScanPart& part, const ScanEffect<Real>& effect) = nullptr;
  std::size_t (*panels)(Index gates, Index input, Index hidden) = nullptr;
  void (*pack)(Index gates, Index input, Index hidden, StoredWeights<Real> weight_ih, Real* packed) = nullptr;
  void (*pack_input)(const Piece& piece, Index begin, Index end) = nullptr;
  void (*input_gradient)(const Piece& piece, Index begin, Index end) = nullptr;
  void (*weight_gradient)(const Piece& piece, Index begin, Index end) = nullptr;
};

/// Entry points for one cell, all of one instruction set.
template <class Real>
struct CellKernels {
  std::size_t (*step_panels)(Index input, Index hidden, Index heads) = nullptr;  // number of Reals
  void (*pack_step)(Index input, Index hidden, Index heads, const StepWeights<Real>& weights, Real* packed) = nullptr;
  void (*step)(const CellStep<Real>& job) = nullptr;
  /// Returns the number of inputs to which a row of rounded operands is filled up; null if panels are multiplied with
  /// Reals.
  Index (*rounded_inputs)(Index inputs) = nullptr;
  // Dense cells.
  PanelShape (*forward_panels)(Index hidden, Index heads) = nullptr;
  PanelShape (*backward_panels)(Index hidden, Index heads) = nullptr;
  void (*pack_forward)(Index hidden, Index heads, StoredWeights<Real> weight_hh, Real* packed) = nullptr;
  void (*pack_backward)(Index hidden, Index heads, StoredWeights<Real> weight_hh, Real* packed) = nullptr;
  std::size_t (*dense_input_panels)(Index input, Index hidden, Index heads) = nullptr;
  void (*pack_dense_input)(Index input, Index hidden, Index heads, StoredWeights<Real> weight_ih,
                           Real* packed) = nullptr;
  void (*dense_forward)(const DenseForward<Real>& job, const DensePart& part) = nullptr;
  void (*dense_backward)(const DenseBackward<Real>& job, const DensePart& part) = nullptr;
  /// Units [begin, end), whole heads; where the panels' shape has fewer heads than the layer.
  void (*narrow_gradient)(const NarrowGradient<Real>& job, Index begin, Index end) = nullptr;
  /// Like rounded_inputs(), but for the backward pass; its gradients are rounded if this is not null.
  Index (*rounded_gradients)(Index inputs) = nullptr;
  // Scan cells. `carry` [H] is the state entering the part and then leaving it. The summaries give the part's effect on
  // any carry without writing outputs.
  Index lanes = 1;  // channels in a vector
  std::size_t (*scan_panels)(Index input, Index hidden) = nullptr;
  void (*pack_scan)(Index input, Index hidden, StoredWeights<Real> weight_ih, Real* packed) = nullptr;
  void (*scan_layer)(const ScanLayer<Real>& job, const ScanLayerPart& part) = nullptr;
  void (*scan_forward)(const ScanForward<Real>& job, const ScanPart& part, Real* carry) = nullptr;
  void (*scan_forward_summary)(const ScanForward<Real>& job, const ScanPart& part,
                               const ScanEffect<Real>& effect) = nullptr;
  ScanBackwardKernels<Real> scan_backward;
  ScanBackwardKernels<Real, std::uint16_t> rounded_scan_backward;  // where rounded_gradients is not null
};

// Each fills in its own members for the instruction set in use; defined by the file of that engine.
void FillDenseForward(int cell, CellKernels<float>& kernels);
void FillDenseForward(int cell, CellKernels<double>& kernels);
void FillDenseBackward(int cell, CellKernels<float>& kernels);
void FillDenseBackward(int cell, CellKernels<double>& kernels);
void FillScan(int cell, CellKernels<float>& kernels);
void FillScan(int cell, CellKernels<double>& kernels);
/// Instead of the others' forward passes: over weights of int8.
void FillInt8(int cell, CellKernels<float>& kernels);
void FillInt8Dot(int cell, CellKernels<float>& kernels);    // where has_int8_products()
void FillInt8Tiles(int cell, CellKernels<float>& kernels);  // where has_bf16_tiles()
/// Instead of the others' forward passes: for AVX-512 BF16 and anything else, and for AMX.
void FillBf16(int cell, Precision precision, CellKernels<float>& kernels);
void FillBf16Tiles(int cell, CellKernels<float>& kernels);
/// Instead of the others' backward passes, for chips with AVX-512 BF16 or AMX: of dense and of scan cells.
void FillBf16Backward(int cell, bool tiles, CellKernels<float>& kernels);
void FillBf16ScanBackward(int cell, bool tiles, CellKernels<float>& kernels);

/// Scans whose terms are given instead of coming from a cell (cells/given.h).
enum class Given { terms, logs, signed_logs };
void FillGiven(Given given, CellKernels<float>& kernels);
void FillGiven(Given given, CellKernels<double>& kernels);
template <class Real>
CellKernels<Real> given_kernels(Given given);

/// Kernels of the instruction set in use, `cell` as numbered by the list of cells. Those for exact mode sum the
/// products of a row in one order, whatever runs beside it, and have no rounded gradients. Throws Error(unsupported)
/// for a precision that there is not.
template <class Real>
CellKernels<Real> cell_kernels(int cell, Precision precision = Precision::full, bool exact = true);
/// Kernels of forward passes over weights of int8. The sums of products are exact, hence the same bits everywhere.
/// Those of kInt8Product compute W x + bias as the layer of a scan cell with one gate, and have no more than it needs.
constexpr int kInt8Product = -1;
CellKernels<float> int8_kernels(int cell);

}  // namespace penstock::cpu
