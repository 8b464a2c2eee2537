#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "penstock/device.h"

/// Basic types, the list of cells, and how a call is executed.
///
/// Axis letters mean the same everywhere: T sequence length, B batch (rows), I input size, H hidden size, O outputs of
/// a model, G gates of a cell, S states of a cell, D head dimension (H / heads), C any number of channels.
namespace penstock {

using Index = std::int64_t;

/// Direction of a recurrent layer along the time axis. `reverse` starts at the last valid step of every row.
enum class Direction { forward, reverse, bidirectional };

/// Bias vectors of a recurrent layer. single: `bias_ih`. both: `bias_ih` and, for cells with recurrent weights,
/// `bias_hh`, as in PyTorch.
enum class Bias { none, single, both };

/// Execution of the recurrence over T. Dense cells (LSTM, GRU, ...) support `sequential` only.
enum class Algorithm {
  automatic,   ///< The planner chooses.
  sequential,  ///< One step after the other.
  scan,        ///< Parallel over fixed chunks of T; scan cells only.
};

/// Precision of the products of an f32 layer. Sums and states are always floats. On a GPU, bf16 and f16 are also the
/// types of activations in memory; weights have a float master copy.
enum class Precision {
  full,          ///< Floats.
  bf16_weights,  ///< CPU only: weights are rounded to bfloat16 (8 bits of precision), which halves their memory
                 ///< traffic.
  /// Weights are rounded to bfloat16, and, if the chip has instructions for it, so is the other operand of each
  /// product, gradients of gates in backward passes, and the gates that scan cells save for them. Gates of dense cells
  /// have an error of at most 2^-19.
  bf16,
  f16,  ///< GPU only: IEEE half precision, with loss scaling in training. Throws Error(unsupported) on a CPU.
  /// GPU only, f32: products may round their factors to 10 bits of mantissa, as PyTorch's `allow_tf32` permits. In
  /// exact mode it has no effect.
  tf32,
};

/// Says how and where a call is executed. Only `precision` changes the results beyond the rounding of sums.
struct Execution {
  int threads = 0;  ///< CPU threads; 0: all of the machine.
  Algorithm algorithm = Algorithm::automatic;
  /// Exact mode: results are bit for bit the same for any split of a sequence and any batch around a row. On a GPU this
  /// holds for forward passes and steps in memory aligned to 16 bytes; gradients are those of the fast mode.
  bool exact = false;
  /// Precision of forward passes and steps. In backward passes only bf16 and tf32 apply, and not in exact mode;
  /// otherwise gradients are computed in full precision with the unrounded weights.
  Precision precision = Precision::full;
  Device device = {};  ///< Device of models and programs. A Recurrent or Scan has its own.

  bool operator==(const Execution&) const = default;
};

/// Properties of a cell.
struct CellInfo {
  std::string_view name;         ///< As in `--cell`: "lstm", "mingru", ...
  std::string_view description;  ///< One line for a person.
  Index gates;                   ///< G
  Index states;                  ///< S; state 0 is the output h.
  bool scan;              ///< h_t = a_t h_{t-1} + b_t with a_t and b_t from the input alone: no recurrent weights.
  bool has_kink = false;  ///< Its derivative is discontinuous somewhere; rounding may flip a gradient there.

  bool operator==(const CellInfo&) const = default;
};

/// Returns the cells that Penstock brings along.
const std::vector<CellInfo>& cells();

/// Returns the cell of that name, which may be one of your own (penstock/cell.h). Throws Error(invalid_argument) that
/// lists the names.
const CellInfo& find_cell(std::string_view name);

/// to_string() returns the name of a value; parse_...() returns the value of a name and throws Error(invalid_argument)
/// that lists the names.
std::string_view to_string(Direction direction);
std::string_view to_string(Bias bias);
std::string_view to_string(Algorithm algorithm);
std::string_view to_string(Precision precision);
Direction parse_direction(std::string_view text);
Bias parse_bias(std::string_view text);
Algorithm parse_algorithm(std::string_view text);
Precision parse_precision(std::string_view text);

}  // namespace penstock
