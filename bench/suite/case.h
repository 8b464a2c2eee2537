#pragma once

#include <string>
#include <string_view>

#include "penstock/types.h"

namespace penstock::bench {

/// Work of one timed call.
enum class Pass {
  forward,   ///< y from x
  training,  ///< y from x, then the gradients of x and of all weights from one of y
  step,      ///< one time step of a stream, its state carried from the last
};

std::string_view to_string(Pass pass);
Pass parse_pass(std::string_view text);

struct Shape {
  Index rows = 1;    ///< B
  Index steps = 1;   ///< T
  Index inputs = 1;  ///< I
  Index hidden = 1;  ///< H
  Index heads = 1;   ///< Heads of dense cells; must divide H

  bool operator==(const Shape&) const = default;
};

/// "16x200x256x256": B, T, I, H; with several heads their number behind them.
std::string to_string(const Shape& shape);
/// Throws Error(invalid_argument) unless all four are there and at least 1.
Shape parse_shape(const std::string& text);

/// One line of a table: a single recurrent layer with both biases, from states of zero.
struct Case {
  std::string cell = "lstm";
  Shape shape;
  Pass pass = Pass::forward;
  std::string dtype = "f32";   ///< Weights and sequences: "f32", "bf16", "bf16-weights" (and sequences f32), "f16".
  int threads = 1;             ///< At least 1.
  std::string device = "cpu";  ///< Or "cuda", where weights and sequences lie in memory in the dtype.
  bool each_call = false;      ///< Time every call by itself, for percentiles; else short ones in groups.

  bool on_gpu() const { return device == "cuda"; }

  /// Streams of one value answer with one value: a dense layer from H to 1 stands behind every step.
  bool has_head() const { return pass == Pass::step && shape.inputs == 1; }
  /// Channels C that are compared: h, and with a head its value behind them.
  Index compared() const { return shape.hidden + (has_head() ? 1 : 0); }
  /// "lstm 16x200x256x256 training f32, 2 threads", or "..., cuda"
  std::string label() const;
};

/// "scan" and "scan-log" are no cells but the linear recurrence by itself, see bench/suite/scan.h.
bool is_bare_scan(std::string_view cell);

/// Cells whose derivative jumps where an argument crosses zero: rounding may put a value on the other side.
bool has_kink(std::string_view cell);

}  // namespace penstock::bench
