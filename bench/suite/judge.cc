#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "bench/suite/problem.h"
#include "bench/suite/scan.h"
#include "oracle/network.h"
#include "oracle/tolerance.h"

namespace penstock::bench {
namespace {

/// Steps on the oracle's tape at once: its memory, not its results, and how long an interruption waits.
Index piece_of(const Problem& problem) {
  constexpr std::size_t large = 10'000'000;  // of which 32 steps take some seconds
  std::size_t weights = 0;
  for (const Array& array : problem.weights) weights += array.values.size();
  return weights > large ? 32 : 128;
}

oracle::Weights<double> oracle_weights(const Problem& problem) {
  oracle::Weights<double> weights;
  for (const Array& array : problem.weights) {
    const std::vector<double> values(array.values.begin(), array.values.end());
    if (array.name == "weight_ih_l0") weights.weight_ih = values;
    if (array.name == "weight_hh_l0") weights.weight_hh = values;
    if (array.name == "bias_ih_l0") weights.bias_ih = values;
    if (array.name == "bias_hh_l0") weights.bias_hh = values;
  }
  return weights;
}

const std::vector<double>& find(const oracle::Weights<double>& weights, const std::string& name) {
  if (name == "weight_ih_l0") return weights.weight_ih;
  if (name == "weight_hh_l0") return weights.weight_hh;
  return name == "bias_ih_l0" ? weights.bias_ih : weights.bias_hh;
}

std::vector<double> one_row(const std::vector<float>& all, Index row, Index size) {
  return {all.begin() + row * size, all.begin() + (row + 1) * size};
}

/// [T, H + 1] from y [T, H].
std::vector<double> with_head(const Problem& problem, const std::vector<double>& y) {
  const Index hidden = problem.test.shape.hidden;
  const Array &weight = problem.weights.end()[-2], &bias = problem.weights.end()[-1];
  std::vector<double> answers;
  for (std::size_t first = 0; first < y.size(); first += static_cast<std::size_t>(hidden)) {
    double sum = bias.values[0];
    for (std::size_t j = 0; j < static_cast<std::size_t>(hidden); ++j) {
      answers.push_back(y[first + j]);
      sum += y[first + j] * weight.values[j];
    }
    answers.push_back(sum);
  }
  return answers;
}

/// On a CPU bfloat16 rounds what products multiply, each factor by at most 2^-9 of itself, and peers their states and
/// outputs too. Roundings of either sign add up to no more than a few, and reach later steps as those of floats do
/// (oracle/tolerance.h). Gradients go through twice as many; beyond a kink, where whole terms of theirs change with the
/// side on which a rounded value comes to lie, four times that is still honest.
double rounded_factors(const Case& test, const oracle::Work& work) {
  if (test.dtype == "f32") return 0.0;
  const double once = 0x1p-8 * (2.0 + std::log2(1.0 + static_cast<double>(work.steps)));
  if (!work.backward) return once;
  return (has_kink(test.cell) ? 8.0 : 2.0) * once;
}

/// Returns the number of roundings on a GPU. All arithmetic is float; only values in memory are rounded: gates and
/// outputs, and on the way back their gradients, each by half a unit and a few of them on the way to a result.
double roundings(const std::string& dtype, bool backward) {
  const double half_unit = dtype == "f32" ? 0.0 : dtype == "f16" ? 0x1p-11 : 0x1p-8;
  return (backward ? 8.0 : 4.0) * half_unit;
}

/// |a - b|, where two infinities of one sign and two NaN are equal, and a NaN is infinitely far from a number.
double distance(double a, double b) {
  if (a == b || (std::isnan(a) && std::isnan(b))) return 0.0;
  const double difference = std::abs(a - b);
  return std::isnan(difference) ? std::numeric_limits<double>::infinity() : difference;
}

/// How many values of float land on the other side of a kink: of arguments with a density of at most 1 about 0, each
/// 2e-6 wide of what double has; one more for luck.
Index crossings(const Problem& problem) {
  if (!has_kink(problem.test.cell)) return 0;
  constexpr double width = 4e-6;
  const double arguments = static_cast<double>(problem.rows.size()) * static_cast<double>(problem.test.shape.steps) *
                           static_cast<double>(problem.test.shape.hidden);
  return 1 + static_cast<Index>(width * arguments);
}

/// `spared` values may lie anywhere.
Verdict compare(const std::string& name, const std::vector<float>& got, const std::vector<double>& want,
                double tolerance, double terms, Index spared) {
  Verdict verdict{
      .right = false, .error = std::numeric_limits<double>::infinity(), .tolerance = tolerance, .complaint = {}};
  if (got.size() != want.size()) {
    verdict.complaint = fmt::format("{} has {} values instead of {}", name, got.size(), want.size());
    return verdict;
  }
  double scale = terms;
  for (const double value : want) {
    if (std::isfinite(value)) scale = std::max(scale, std::abs(value));
  }
  std::vector<double> distances(want.size());
  for (std::size_t i = 0; i < want.size(); ++i) distances[i] = distance(got[i], want[i]) / scale;
  const auto rank = std::max<std::ptrdiff_t>(0, static_cast<std::ptrdiff_t>(want.size()) - 1 - spared);
  std::nth_element(distances.begin(), distances.begin() + rank, distances.end());
  verdict.error = distances[static_cast<std::size_t>(rank)];
  verdict.right = verdict.error <= tolerance;
  if (!verdict.right)
    verdict.complaint = fmt::format("{} is off by {:.2g} of its scale, allowed {:.2g}", name, verdict.error, tolerance);
  return verdict;
}

}  // namespace

Answers<double> solve(const Problem& problem, const std::function<void()>& at_piece) {
  if (is_bare_scan(problem.test.cell)) return solve_scan(problem);
  const auto& [rows, steps, inputs, hidden, heads] = problem.test.shape;
  RecurrentSpec spec{.cell = problem.test.cell, .input_size = inputs, .hidden_size = hidden};
  spec.heads = heads;
  const bool training = problem.test.pass == Pass::training;
  Answers<double> answers;
  for (const Index row : problem.rows) {
    const oracle::Arguments<double> arguments{
        .weights = {oracle_weights(problem)}, .x = one_row(problem.x, row, steps * inputs), .state_in = {}};
    const std::vector<double> dy = training ? one_row(problem.dy, row, steps * hidden) : std::vector<double>();
    const oracle::Passes passes = oracle::in_pieces(spec, steps, arguments, dy, piece_of(problem), at_piece);
    const std::vector<double> y = problem.test.has_head() ? with_head(problem, passes.results.y) : passes.results.y;
    answers.y.insert(answers.y.end(), y.begin(), y.end());
    if (!training) continue;
    answers.dx.insert(answers.dx.end(), passes.gradients.x.begin(), passes.gradients.x.end());
    for (std::size_t k = 0; k < problem.weights.size(); ++k) {
      const std::string& name = problem.weights[k].name;
      const std::vector<double>& found = find(passes.gradients.weights[0], name);
      if (answers.gradients.size() <= k) answers.gradients.emplace_back(name, std::vector<double>(found.size(), 0.0));
      std::vector<double>& sum = answers.gradients[k].second;
      std::transform(sum.begin(), sum.end(), found.begin(), sum.begin(), std::plus<>());
    }
  }
  return answers;
}

Verdict worse(const Verdict& a, const Verdict& b) {
  if (a.right != b.right) return a.right ? b : a;
  return a.error / std::max(a.tolerance, 1e-300) >= b.error / std::max(b.tolerance, 1e-300) ? a : b;
}

Verdict judge(const Problem& problem, const Answers<double>& want, const Answers<float>& got, Extent extent,
              double slack) {
  const auto& [rows, steps, inputs, hidden, heads] = problem.test.shape;
  const bool bare = is_bare_scan(problem.test.cell);
  const oracle::Work forward{.summed = bare ? 1 : inputs + hidden, .steps = steps};
  oracle::Work backward = forward;
  backward.backward = true;
  backward.summed = bare ? 1 : find_cell(problem.test.cell).gates * (inputs + hidden);
  oracle::Work weights = backward;
  if (!bare) weights.summed += static_cast<Index>(problem.rows.size()) * steps;
  // A value across the kink changes the gradients of its step's x, of its unit's row of weights, and of its bias.
  const Index crossed = crossings(problem);

  const auto tolerance = [&](const oracle::Work& work) {
    if (slack > 0.0) return slack;
    return oracle::tolerance<float>(work) +
           (problem.test.on_gpu() ? roundings(problem.test.dtype, work.backward) : rounded_factors(problem.test, work));
  };
  Verdict verdict = compare("y", got.y, want.y, tolerance(forward), oracle::forward_terms, 0);
  if (problem.test.pass != Pass::training) return verdict;
  const auto gradient = [&](const std::string& name, const std::vector<float>& found, const std::vector<double>& due,
                            const oracle::Work& work, Index each) {
    verdict = worse(verdict, compare(name, found, due, tolerance(work), oracle::backward_terms, crossed * each));
  };
  if (!bare) gradient("dx", got.dx, want.dx, backward, inputs);
  for (const auto& [name, due] : want.gradients) {
    if (extent == Extent::without_weights) break;
    const auto found = std::ranges::find(got.gradients, name, &std::pair<std::string, std::vector<float>>::first);
    gradient("the gradient of " + name, found == got.gradients.end() ? std::vector<float>() : found->second, due,
             weights,
             name == "weight_ih_l0"   ? inputs
             : name == "weight_hh_l0" ? hidden
                                      : 1);
  }
  return verdict;
}

}  // namespace penstock::bench
