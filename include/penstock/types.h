#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "penstock/device.h"

/// Axis letters mean the same everywhere: T sequence length, B batch (rows), I input size, H hidden size,
/// G gates of a cell, S states of a cell, D head dimension (H / heads), C any number of channels.
namespace penstock {

using Index = std::int64_t;

/// How the time axis is walked. `reverse` starts at the last valid step of every row.
enum class Direction { forward, reverse, bidirectional };

/// Which bias vectors a recurrent layer has: none, `bias_ih` only, or `bias_ih` and, of cells with recurrent weights,
/// `bias_hh` as PyTorch has.
enum class Bias { none, single, both };

/// How the recurrence over T is executed. Cells with memory mixing (LSTM, GRU, ...) know `sequential` only.
enum class Algorithm {
  automatic,   ///< The planner chooses.
  sequential,  ///< One step after the other.
  scan,        ///< Parallel over fixed chunks of T; cells of kind `scan` only.
};

/// In how many bits a layer of floats multiplies. Sums and states are floats always. On a GPU bf16 and f16 are also how
/// activations lie in memory; weights have a float master copy.
enum class Precision {
  full,          ///< Floats, as they come.
  bf16_weights,  ///< Weights are rounded to bfloat16 (8 bits of precision), which halves their memory traffic.
  /// What they are multiplied with is rounded too, where the chip has instructions for that, and so are gradients of
  /// gates in backward passes, and what scan cells keep of gates until then; gates of dense cells are within 2^-19.
  bf16,
  f16,  ///< GPUs only: IEEE's halves, with the loss scaled in training. The CPU refuses it.
};

/// How an operation runs; nothing but `precision` changes what is computed beyond the rounding of sums.
struct Execution {
  int threads = 0;  ///< 0: as many as the machine offers.
  Algorithm algorithm = Algorithm::automatic;
  /// Exact mode: results are the same to the bit for any split of a sequence and for any batch a row sits in.
  bool exact = false;
  /// Of forward passes and steps; of gradients `bf16` alone, and not in exact mode: all others are computed in full, at
  /// the weights as they are.
  Precision precision = Precision::full;
  Device device = {};  ///< Of models: where they compute.
};

/// What a cell of the list looks like from outside.
struct CellInfo {
  std::string_view name;         ///< As in `--cell`: "lstm", "mingru", ...
  std::string_view description;  ///< One line for a person.
  Index gates;                   ///< G
  Index states;                  ///< S; state 0 is the output h.
  bool scan;                     ///< h_t = a_t h_{t-1} + b_t with a, b of the input alone: no recurrent weights.
  bool has_kink = false;         ///< Its slope jumps somewhere: there gradients hang on the last digit of a sum.
};

/// All cells, in the order of the list.
const std::vector<CellInfo>& cells();

/// The cell of that name; throws Error(invalid_argument) that lists the names there are.
const CellInfo& find_cell(std::string_view name);

std::string_view to_string(Direction direction);
std::string_view to_string(Bias bias);
std::string_view to_string(Algorithm algorithm);
std::string_view to_string(Precision precision);
Direction parse_direction(std::string_view text);
Bias parse_bias(std::string_view text);
Algorithm parse_algorithm(std::string_view text);
Precision parse_precision(std::string_view text);

}  // namespace penstock
