#include <algorithm>
#include <cmath>
#include <numeric>
#include <vector>

#include "base/check.h"
#include "penstock/stream.h"

namespace penstock {

namespace {

void check(std::span<const float> logits, const Sampling& sampling, double random) {
  require(!logits.empty(), "logits must not be empty");
  require(std::isfinite(sampling.temperature) && sampling.temperature >= 0.0,
          "temperature must not be negative, not {}", sampling.temperature);
  require(sampling.top_k >= 0, "top_k must not be negative, not {}", sampling.top_k);
  require(sampling.top_p > 0.0 && sampling.top_p <= 1.0, "top_p must be in (0, 1], not {}", sampling.top_p);
  require(random >= 0.0 && random < 1.0, "random must be in [0, 1), not {}", random);
  if (!std::ranges::all_of(logits, [](float logit) { return std::isfinite(logit); })) {
    fail(ErrorCode::numerical, "logits are not finite: no token can be drawn");
  }
}

}  // namespace

std::int32_t sample(std::span<const float> logits, const Sampling& sampling, double random) {
  check(logits, sampling, random);
  if (sampling.temperature == 0.0) {
    return static_cast<std::int32_t>(std::ranges::max_element(logits) - logits.begin());
  }
  std::vector<std::int32_t> tokens(logits.size());
  std::iota(tokens.begin(), tokens.end(), 0);
  // Ties in the order of the tokens, so that equal logits give equal draws everywhere.
  std::ranges::stable_sort(tokens, [&](std::int32_t a, std::int32_t b) { return logits[a] > logits[b]; });
  if (sampling.top_k > 0) tokens.resize(std::min(tokens.size(), static_cast<std::size_t>(sampling.top_k)));

  std::vector<double> weights(tokens.size());
  for (std::size_t i = 0; i < tokens.size(); ++i) {
    weights[i] = std::exp((static_cast<double>(logits[tokens[i]]) - static_cast<double>(logits[tokens[0]])) /
                          sampling.temperature);
  }
  const double total = std::accumulate(weights.begin(), weights.end(), 0.0);
  double kept = 0.0;
  std::size_t count = 0;
  while (count < weights.size() && (count == 0 || kept < sampling.top_p * total)) kept += weights[count++];

  double left = random * kept;
  for (std::size_t i = 0; i + 1 < count; ++i) {
    left -= weights[i];
    if (left < 0.0) return tokens[i];
  }
  return tokens[count - 1];
}

}  // namespace penstock
