#include "bench/suite/problem.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdlib>

#include "base/check.h"
#include "base/random.h"
#include "bench/suite/scan.h"
#include "penstock/error.h"
#include "penstock/recurrent.h"

namespace penstock::bench {
namespace {

std::vector<float> uniform(Random& random, Index count, double bound) {
  std::vector<float> values(static_cast<std::size_t>(count));
  for (float& value : values) value = static_cast<float>(random.uniform(-bound, bound));
  return values;
}

/// Multiply-adds of one row up to which a second row is worth the wait: on a GPU the wait is all that there is.
double oracle_budget(const Case& test) { return test.on_gpu() ? 5e8 : 4e9; }

double row_work(const Case& test) {
  const auto& [rows, steps, inputs, hidden, heads] = test.shape;
  if (is_bare_scan(test.cell)) return static_cast<double>(steps) * static_cast<double>(hidden);
  const double gates = static_cast<double>(find_cell(test.cell).gates);
  return gates * static_cast<double>(steps) * static_cast<double>(hidden) *
         static_cast<double>(inputs + hidden / heads);
}

Index count(const Array& array) {
  Index product = 1;
  for (const Index extent : array.shape) product *= extent;
  return product;
}

/// The weights that the layer says it has, and the head's.
std::vector<Array> draw_weights(const Case& test, Random& random) {
  const double bound = 1.0 / std::sqrt(static_cast<double>(test.shape.hidden));
  Recurrent<float> layer({.cell = test.cell,
                          .input_size = test.shape.inputs,
                          .hidden_size = test.shape.hidden,
                          .heads = test.shape.heads,
                          .bias = Bias::both});
  std::vector<Array> weights;
  for (const auto& parameter : layer.parameters()) weights.push_back({parameter.name, parameter.shape, {}});
  if (test.has_head()) {
    weights.push_back({"head_weight", {1, test.shape.hidden}, {}});
    weights.push_back({"head_bias", {1}, {}});
  }
  for (Array& array : weights) array.values = uniform(random, count(array), bound);
  return weights;
}

/// Rounds to the nearest number with `bits` bits of mantissa; all values are far from the ends of any range.
void round_all(std::vector<float>& values, int bits) {
  for (float& value : values) {
    int exponent = 0;
    const float fraction = std::frexp(value, &exponent);
    value = std::ldexp(std::nearbyint(std::ldexp(fraction, bits)), exponent - bits);
  }
}

/// Rounds the numbers of a GPU's problem to the dtype: all contenders get numbers that it holds exactly, so that only
/// their arithmetic differs.
void round_to_dtype(Problem& problem) {
  if (!problem.test.on_gpu() || problem.test.dtype == "f32") return;
  const int bits = problem.test.dtype == "f16" ? 11 : 8;
  for (Array& array : problem.weights) round_all(array.values, bits);
  round_all(problem.x, bits);
  round_all(problem.dy, bits);
}

}  // namespace

Problem make_problem(const Case& test, std::uint64_t seed) {
  const auto& [rows, steps, inputs, hidden, heads] = test.shape;
  Random random(seed);
  const bool bare = is_bare_scan(test.cell);
  require(!bare || heads == 1, "shapes: {} is a scan by itself, which has no heads", to_string(test.shape));
  Problem problem{.test = test,
                  .weights = bare ? draw_terms(test, random) : draw_weights(test, random),
                  .x = {},
                  .dy = {},
                  .rows = {0}};
  const double bound = std::sqrt(3.0);  // a variance of 1
  if (!bare) problem.x = uniform(random, rows * steps * inputs, bound);
  if (test.pass == Pass::training) problem.dy = uniform(random, rows * steps * hidden, bound);
  if (rows > 1 && row_work(test) <= oracle_budget(test)) problem.rows.push_back(rows - 1);
  round_to_dtype(problem);
  return problem;
}

std::vector<Array> Problem::weights_for(const std::string& contender) const {
  std::vector<Array> copy = weights;
  const char* fault = std::getenv("PENSTOCK_BENCH_FAULT");
  const std::string wanted = fault == nullptr ? "" : fault;
  const std::size_t colon = wanted.find(':');
  if (colon == std::string::npos || wanted.substr(0, colon) != contender) return copy;
  Index place = 0;
  std::from_chars(wanted.data() + colon + 1, wanted.data() + wanted.size(), place);
  for (Array& array : copy) {
    if (place < count(array)) {
      array.values[static_cast<std::size_t>(place)] += 1.0f / std::sqrt(static_cast<float>(test.shape.hidden));
      return copy;
    }
    place -= count(array);
  }
  throw Error(ErrorCode::invalid_argument,
              fmt::format("PENSTOCK_BENCH_FAULT: there are not as many weights: {}", wanted));
}

std::vector<float> Problem::masked_dy() const {
  std::vector<float> masked(dy.size(), 0.0f);
  const Index size = test.shape.steps * test.shape.hidden;
  for (const Index row : rows) std::copy_n(dy.begin() + row * size, size, masked.begin() + row * size);
  return masked;
}

std::string Problem::checked() const {
  const std::string which = test.shape.rows == 1 ? "the row"
                                                 : fmt::format("row{} {} of {}", rows.size() == 1 ? "" : "s",
                                                               fmt::join(rows, " and "), test.shape.rows);
  std::string text = fmt::format("all {} steps of {}", test.shape.steps, which);
  if (test.pass != Pass::training) return text;
  if (is_bare_scan(test.cell)) return text + ": y and the gradients of the terms, with dy = 0 in the other rows";
  text += ": y, dx, and all gradients of weights with dy = 0 in the other rows";
  if (has_kink(test.cell)) text += "; of gradients a few values may lie across the kink of the cell";
  return text;
}

double memory_needed(const Case& test, int here, int in_python) {
  const bool training = test.pass == Pass::training, bare = is_bare_scan(test.cell);
  // Measured of PyTorch: it keeps what a scan computes on the way, each step of it, and in double where it is compared
  // so.
  const double share_in_python = training && (bare || find_cell(test.cell).scan) ? 5.0 : 1.0;
  const double interpreter = in_python > 0 ? 0.4e9 : 0.0;
  const double shares = here + share_in_python * in_python + 1.0;  // one for the numbers themselves
  if (bare) return interpreter + scan_memory_needed(test, shares);
  const auto& [rows, steps, inputs, hidden, heads] = test.shape;
  const double B = static_cast<double>(rows), T = static_cast<double>(steps);
  const double I = static_cast<double>(inputs), H = static_cast<double>(hidden);
  const double G = static_cast<double>(find_cell(test.cell).gates);
  // Sequences in and out, products of the input, and for training their gradients and what the forward pass saves.
  const double sequences = B * T * (training ? 2 * I + 2 * H + 4 * G * H : I + H + G * H);
  const double weights = G * H * (I + H) * (training ? 3 : 2);
  const double own = sizeof(float) * (sequences + weights);
  // The oracle keeps its rows in double, and Vars of 48 bytes for each weight where it needs gradients.
  const double oracle = 8 * 2 * T * (3 * I + 3 * H) + G * H * (I + H) * (training ? 64 : 16);
  return interpreter + own * shares + oracle;
}

}  // namespace penstock::bench
