// How many digits a scan of given logarithms keeps, as a page in Markdown: Penstock's linear arithmetic, step by step
// and in chunks, compared with two ways that keep a logarithm of the state. All run in float; the reference is a loop
// in double. One channel, positive terms, h0 = 1.
//
//   scan_precision > docs/results/scan_precision.md

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <vector>

#include "base/random.h"
#include "penstock/penstock.h"

namespace penstock {
namespace {

struct Range {
  const char* name;
  double low, high;  // log a
};

constexpr Range kRanges[] = {{"a near 1e-4", -9.22, -9.20},
                             {"a from 3e-4 to 1", -8.0, 0.0},
                             {"a near 1 - 1e-3", -1.1e-3, -0.9e-3},
                             {"a near 1 - 1e-6", -1.1e-6, -0.9e-6}};

float log_add(float x, float y) {
  const float most = std::max(x, y);
  return most + std::log1p(std::exp(std::min(x, y) - most));
}

/// h_t = exp(A_t + log sum of exp(log b_s - A_s)), A the running sum of log a: minGRU's parallel scan in log space.
std::vector<float> by_cumulative_sums(const std::vector<float>& log_a, const std::vector<float>& log_b) {
  std::vector<float> h(log_a.size());
  float total = 0, sum = 0;  // log h0 = 0
  for (std::size_t t = 0; t < h.size(); ++t) {
    total += log_a[t];
    sum = log_add(sum, log_b[t] - total);
    h[t] = std::exp(total + sum);
  }
  return h;
}

/// log h_t = log(exp(log a + log h_{t-1}) + exp(log b)).
std::vector<float> by_logarithms(const std::vector<float>& log_a, const std::vector<float>& log_b) {
  std::vector<float> h(log_a.size());
  float log_h = 0;
  for (std::size_t t = 0; t < h.size(); ++t) {
    log_h = log_add(log_a[t] + log_h, log_b[t]);
    h[t] = std::exp(log_h);
  }
  return h;
}

std::vector<float> ours(const std::vector<float>& log_a, const std::vector<float>& log_b, Algorithm algorithm) {
  const auto T = static_cast<Index>(log_a.size());
  std::vector<float> h(log_a.size());
  const float h0 = 1;
  const auto view = [&](const auto& v) { return SequenceView<const float>::batch_first(v.data(), T, 1); };
  Scan<float>(1, ScanForm::logarithmic)
      .forward({.rows = 1, .steps = T}, {view(log_a), view(log_b), {}},
               SequenceView<float>::batch_first(h.data(), T, 1), &h0, nullptr, {.threads = 2, .algorithm = algorithm});
  return h;
}

double worst_error(const std::vector<float>& log_a, const std::vector<float>& log_b, const std::vector<float>& h) {
  double want = 1, worst = 0;
  for (std::size_t t = 0; t < h.size(); ++t) {
    want = std::exp(double{log_a[t]}) * want + std::exp(double{log_b[t]});
    const double error = std::abs(h[t] - want) / want;
    if (!(error <= worst)) worst = error;
  }
  return worst;
}

void write_page() {
  constexpr std::size_t kSteps = 65536;
  fmt::print(
      "# Digits of a long scan\n\n"
      "How many digits four ways to compute a scan lose over {} steps. Penstock's scan keeps the state itself, step "
      "by\n"
      "step or in chunks. The peers keep a logarithm of the state, which also excludes negative states.\n\n"
      "    build/release/bench/scan_precision > docs/results/scan_precision.md\n\n"
      "Largest relative error of `h_t = a_t h_(t-1) + b_t`, with terms given as logarithms, everything in float, "
      "compared\nwith a loop in double. The linear columns are Penstock's two algorithms.\n\n"
      "| terms | linear, step by step | linear, in chunks | logarithm of the state | cumulative sums of logarithms |\n"
      "|---|---|---|---|---|\n",
      kSteps);
  for (const Range& range : kRanges) {
    Random random(5);
    std::vector<float> log_a(kSteps), log_b(kSteps);
    for (std::size_t t = 0; t < kSteps; ++t) {
      log_a[t] = static_cast<float>(random.uniform(range.low, range.high));
      log_b[t] = static_cast<float>(random.uniform(-6.0, 0.0));
    }
    fmt::print("| {} | {:.1e} | {:.1e} | {:.1e} | {:.1e} |\n", range.name,
               worst_error(log_a, log_b, ours(log_a, log_b, Algorithm::sequential)),
               worst_error(log_a, log_b, ours(log_a, log_b, Algorithm::scan)),
               worst_error(log_a, log_b, by_logarithms(log_a, log_b)),
               worst_error(log_a, log_b, by_cumulative_sums(log_a, log_b)));
  }
}

}  // namespace
}  // namespace penstock

int main() {
  penstock::write_page();
  return 0;
}
