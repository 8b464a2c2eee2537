#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "penstock/types.h"

/// Networks of any structure as data, such as published models: nodes over tensors of any shape.
///
/// A Network is plain data that was checked when it was read. Its operators are those of ONNX in the form of their
/// newest version (opset 24), whatever the file had: axes, pads and sizes are inputs, not attributes. Types in
/// attributes (Cast's "to") are the numbers of ONNX; half precision has become float. In addition:
///
///     Recurrent  a layer of a cell, instead of LSTM, GRU and RNN (see RecurrentRead)
///     Expand     also instead of ConstantOfShape
///     Identity   also instead of Dropout
///     Resize     also instead of Upsample
///
/// Loop and Scan have one more attribute, "states": the number of values that each step hands to the next;
/// DynamicQuantizeLinear has "rows" where each position of this axis has a range (row_ranges.h).
///
/// Prepared for the shapes of its inputs (program.h), it has fixed shapes and planned memory, and runs.
namespace penstock::network {

/// Type of a tensor's elements.
enum class Type : std::uint8_t { f32, f64, i8, u8, i32, i64, boolean };

/// Extents of a tensor; empty: a scalar. In a Network, -1 is an extent that the caller chooses.
using Shape = std::vector<Index>;

/// A tensor with its elements, row-major.
struct Constant {
  Type type = Type::f32;
  Shape shape;
  /// Little-endian, aligned to 64 bytes unless they lie in a file in memory. `owner` keeps them alive.
  std::span<const std::byte> bytes;
  std::shared_ptr<const void> owner = {};
};

/// A value that nodes read and at most one node writes.
struct Value {
  std::string name;
  Type type = Type::f32;
  Shape shape = {};                    ///< Of inputs. That of other values follows when the network is prepared.
  std::vector<std::string> axes = {};  ///< Of inputs: names of extents; equal names have equal extents. Empty: none.
  int constant = -1;                   ///< Its number in Network::constants; -1: not a constant.
};

struct Attribute {
  std::string name;
  std::vector<Index> integers = {};  ///< Also of a single integer.
  std::vector<float> numbers = {};
  std::string text = {};
};

struct Node;

/// An input whose next value is an output: h and c of a cell, the last samples of a convolution.
struct State {
  int input = 0, output = 0;  ///< Positions in Network::inputs and Network::outputs.
};

struct Network {
  std::vector<Value> values;
  std::vector<Constant> constants;
  std::vector<Node> nodes;  ///< In an order in which they can run.
  std::vector<int> inputs, outputs;
  std::vector<State> states = {};
  double sample_rate = 0;  ///< Of a stream of sound, in Hz; 0: unknown, or none.
};

struct Node {
  std::string op;               ///< "Conv"
  std::string name;             ///< For messages: as in the file.
  std::vector<int> reads = {};  ///< Numbers of values; -1: absent.
  std::vector<int> writes = {};
  std::vector<Attribute> attributes = {};
  /// Branches of If (then, else); the body of Loop and Scan. A body sees only its inputs: those of the operator, then
  /// the values that it captures, which follow the operator's own in `reads`.
  std::vector<Network> bodies = {};

  const Attribute* find(std::string_view attribute) const;
};

/// Returns the number of values in all constants, those of bodies included.
Index count_parameters(const Network& network);

/// Returns whether an input (&State::input) or an output (&State::output) at a position is that of a state.
bool is_state(const Network& network, int State::*end, std::size_t position);

/// What a Recurrent node reads. Attributes: "cell", a built-in cell's name or a custom cell as JSON; "direction"
/// (forward, reverse, bidirectional); "quantised" (1: inputs and states are rounded to eight bits, with one range for
/// the batch; RowRecurrent, which the C runtime has not: for each row). Behind the states are four more reads, or
/// absent: the lengths [B] of the sequences, and the first step of all [1]; steps outside leave the states and write
/// zeros. If quantised, the scales of W and R [directions, G * H], which then are whole numbers. Weights are those of a
/// layer of Penstock, a direction after the other. The cell is dense and reads no means. Writes: y [T, B, directions *
/// H], then the last value of each state [directions, B, H].
enum RecurrentRead : int {
  kRecurrentX,           ///< [T, B, I]
  kRecurrentWeightIh,    ///< [directions, G * H, I]
  kRecurrentWeightHh,    ///< [directions, G * H, H]
  kRecurrentBiasIh,      ///< [directions, (G + K) * H], or absent; K learnt vectors of a custom cell follow the gates
  kRecurrentBiasHh,      ///< [directions, G * H], or absent
  kRecurrentFirstState,  ///< [directions, B, H] for each state, or absent: zero
};

}  // namespace penstock::network
