#pragma once

#include <cmath>
#include <cstdint>
#include <string_view>

#include "penstock/types.h"

namespace penstock::custom {
struct DerivedCell;
}

namespace penstock::network {

/// Functions of one number, with up to two parameters.
enum class Unary : int {
  none,
  negate,
  absolute,
  square,
  square_root,
  exponential,
  logarithm,
  reciprocal,
  floor,
  ceil,
  round,
  sign,
  sine,
  cosine,
  erf,
  relu,
  leaky_relu,
  thresholded_relu,
  elu,  // alpha (e^(x / beta) - 1) below 0, and x above
  selu,
  sigmoid,
  hard_sigmoid,
  tanh,
  softplus,
  softsign,
  hard_swish,
  gelu,
  gelu_tanh,
  mish,
  swish,
  clip,
  affine,  // alpha x + beta
};

enum class Binary : int { add, subtract, multiply, divide, maximum, minimum, prelu, power, modulo, remainder };

/// Returns the remainder of a division that is rounded down. It has the sign of b.
template <class Real>
Real floored_remainder(Real a, Real b) {
  const Real rest = std::fmod(a, b);
  return rest != 0 && (rest < 0) != (b < 0) ? rest + b : rest;
}

enum class Reduction : int { sum, maximum, minimum, product, absolutes, squares };

/// Products that are summed before c takes the sum: rounding errors grow with the length of sums. A part of a panel
/// stays in the first cache for all rows.
constexpr Index kPartOfProduct = 128;

/// c [rows, columns] = a [rows, inner] b [inner, columns] + a bias.
struct Product {
  Index rows = 0, columns = 0, inner = 0;
  /// The first product, a multiple of kPartOfProduct: c has the bias already, and products before it are zeros.
  Index begin = 0;
  const float* a = nullptr;
  Index a_stride = 0;
  /// Row k of b is at b + offset[k], or without those at b + k * b_row; column n is so many times b_column further on:
  /// 1, or of panels (see pack_product) `inner`.
  const float* b = nullptr;
  const Index* offset = nullptr;
  Index b_row = 0, b_column = 1;
  const float* row_bias = nullptr;     ///< [rows], with offsets only; or null
  const float* column_bias = nullptr;  ///< [columns], without offsets only; or null
  float* c = nullptr;
  Index c_stride = 0;
  /// Without offsets: takes panels of b from the last to the first. A product that is repeated finds some of b in a
  /// near cache where it takes turns.
  bool backwards = false;
  /// With offsets: so many products of one row and up to kPartOfProduct products each. The next one has the next row
  /// of a, its bias, and the next `columns` of c; its b is `b_group` further on.
  Index groups = 1, b_group = 0;
};

/// c [rows, columns] = bias + ((a + shift) b + more) scale, with whole numbers a [rows, inner] and b [inner, columns]
/// of 8 bits.
struct ByteProduct {
  /// The terms of one row.
  struct Row {
    std::int32_t sum;    ///< Of the numbers of a.
    std::int32_t shift;  ///< Added to each number of a.
    float scale;         ///< Multiplies `column_scale`.
    std::int32_t more;   ///< Added to each product.
  };
  Index rows = 0, columns = 0, inner = 0;
  const std::int8_t* a = nullptr;  ///< Rows `a_stride` apart, filled up to a multiple of four by zeros.
  const Row* of_rows = nullptr;    ///< [rows]
  Index a_stride = 0;
  const float* panels = nullptr;                                ///< b, as Kernels::pack_bytes has it.
  const float *column_scale = nullptr, *column_bias = nullptr;  ///< [columns]
  float* c = nullptr;
  Index c_stride = 0;
};

/// A step of a row of a cell, from sums that are there. The states go on; y [H] is the first of them.
struct GateStep {
  Index hidden = 0;
  const float *wx = nullptr, *rh = nullptr;  ///< [G, H]: W x + bias, R h + bias.
  float* state[4] = {};                      ///< [H] each.
  float* y = nullptr;
  float *operand = nullptr, *kept = nullptr;       ///< Of cells with two phases: [H], and the first gates [first, H].
  const custom::DerivedCell* equations = nullptr;  ///< Of a custom cell.
  const float* learnt = nullptr;                   ///< [K, H] of a custom cell.
};

/// Steps of one sequence, in turn.
struct RowSteps {
  Index steps = 0, input = 0, hidden = 0;                ///< T, I, H
  const float *of_input = nullptr, *of_state = nullptr;  ///< W and R with their biases, as RowKernels::pack has them.
  const float* x = nullptr;                              ///< [T, I], x_step from row to row.
  float* y = nullptr;                                    ///< [T, H], y_step from row to row.
  Index x_step = 0, y_step = 0;
  const float* first[4] = {};   ///< [H] each: the states before, or null: zero.
  float* last[4] = {};          ///< [H] each: those after, or null.
  bool in_place = false;        ///< Each `last` is its `first`, with room for padded H.
  bool backwards = false;       ///< The first step begins at the last units; in turns, to find them in the cache.
  const float* head = nullptr;  ///< [H] or null: y [T] is the product of each step's state with it, plus the bias.
  float head_bias = 0;
  float* spare = nullptr;  ///< [S + 1, padded H]
};

/// How a cell of one phase takes such steps.
struct RowKernels {
  Index (*padded)(Index hidden) = nullptr;
  /// Packs weights [G * H, inner] and a bias [G * H], or null, to [inner + 1, G, padded H].
  void (*pack)(Index inner, Index hidden, const float* weight, const float* bias, float* to) = nullptr;
  void (*run)(RowSteps& job) = nullptr;
};

/// How a cell steps from such sums.
struct CellGates {
  using Run = void (*)(const GateStep& job);
  Index gates = 0, states = 0;
  Index first = 0;          ///< Of a cell with two phases: gates before `operand`, which the other rows of rh come of.
  Run run_first = nullptr;  ///< Makes `operand`.
  Run run = nullptr;
  RowKernels row;  ///< Of some built-in cells with one phase; null: of none.
};

class Preparation;
struct Windows;
/// See network/spectrum.h.
using PrepareSpectrum = bool (*)(Preparation& p, const Windows& windows, const float* weights);

/// The loops of float operators for one instruction set.
struct Kernels {
  /// y [n] = f(x [n]); y may be x.
  void (*unary)(Unary op, Index n, const float* x, float* y, float alpha, float beta) = nullptr;
  /// y [n] = f(a, b). The steps of a and b are 1, or 0 to repeat one element; y may be a or b.
  void (*binary)(Binary op, Index n, const float* a, Index a_step, const float* b, Index b_step, float* y) = nullptr;
  /// Returns the reduction of x [n].
  float (*reduce)(Reduction op, Index n, const float* x) = nullptr;
  /// y [n] = e^(x - shift), or not written if it is null; returns the sum.
  float (*exponentials)(Index n, float shift, const float* x, float* y) = nullptr;
  /// y [n] = (x - mean) / sqrt(variance + epsilon); with a mean of 0 unless `centred`.
  void (*normalise)(Index n, bool centred, float epsilon, const float* x, float* y) = nullptr;

  /// Returns how the built-in dense cell of that name steps; without gates if there is none.
  CellGates (*gates)(std::string_view cell) = nullptr;
  /// That of custom cells.
  CellGates::Run custom_gates = nullptr;

  void (*multiply)(const Product& job) = nullptr;
  /// Makes the factors of n tiles of Winograd's algorithm from their 4 x 4 inputs. Input (r, c) of the tiles is at
  /// planes + (r % 2 * 2 + c % 2) * plane + r / 2 * row + c / 2, [n]; their factor (r, c) goes to
  /// `to` + (4 r + c) * apart, [n].
  void (*to_tiles)(Index n, const float* planes, Index plane, Index row, float* to, Index apart) = nullptr;
  /// Makes the results of n tiles from such products and a bias: rows `upper` and `lower` [2 n], with room for one
  /// vector more.
  void (*from_tiles)(Index n, const float* products, Index apart, float bias, float* upper, float* lower) = nullptr;
  /// Columns that lie side by side in a panel: panels of b [inner, columns] hold a row of so many after the other.
  Index panel_columns = 0;

  /// Null where products of floats have to do.
  void (*multiply_bytes)(const ByteProduct& job) = nullptr;
  /// Packs whole numbers [columns, inner] of -128 to 127 to byte_panels(inner, columns) floats.
  void (*pack_bytes)(Index inner, Index columns, const float* weights, float* to) = nullptr;
  Index (*byte_panels)(Index inner, Index columns) = nullptr;
  /// y [n] = x / scale + zero - 128, rounded, within 8 bits; zero - 128 for NaN. Null where products of bytes are not
  /// faster than those of floats whose windows overlap.
  void (*round_to_bytes)(float scale, float zero, Index n, const float* x, std::int8_t* y) = nullptr;

  /// Finds the least and the largest of x [n] and 0. The latter is infinite if a number is not finite. Null where there
  /// are no products of bytes, as the next two.
  void (*find_range)(Index n, const float* x, float* low, float* high) = nullptr;
  /// y [n] = x * inverse, rounded, plus `offset`, within 8 bits. Returns the sum of y.
  std::int32_t (*round_range)(Index n, const float* x, float inverse, std::int32_t offset, std::int8_t* y) = nullptr;
  /// y [columns, rows] = x [rows, columns], whose rows lie so far apart.
  void (*transpose)(Index rows, Index columns, const float* x, Index x_stride, float* y, Index y_stride) = nullptr;

  PrepareSpectrum prepare_spectrum = nullptr;  ///< Null where convolutions are products.
};

// Each fills in its own members for the instruction set in use.
void FillPointwise(Kernels& kernels);
void FillProducts(Kernels& kernels);
void FillGates(Kernels& kernels);
/// There are two of this function: the C runtime's fills in nothing.
void FillBytes(Kernels& kernels);

inline Kernels kernels_in_use() {
  Kernels kernels;
  FillPointwise(kernels);
  FillProducts(kernels);
  FillGates(kernels);
  FillBytes(kernels);
  return kernels;
}

}  // namespace penstock::network
