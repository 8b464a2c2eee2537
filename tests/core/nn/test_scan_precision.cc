// Long scans keep their digits: 65,536 steps with forgetting almost everything, almost nothing, or anything between,
// candidates and h0 of either sign, sequential and in chunks, against a loop in double.

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <vector>

#include "base/random.h"
#include "penstock/recurrent.h"

namespace penstock {
namespace {

constexpr Index kSteps = 65536;

double sigmoid(double x) { return 1 / (1 + std::exp(-x)); }

/// A minGRU of one channel whose input is its own two gate values.
Recurrent<float> identity(const char* cell) {
  Recurrent<float> network({.cell = cell, .input_size = 2, .hidden_size = 1, .bias = Bias::none});
  const std::vector<float> weights = {1, 0, 0, 1};
  std::copy(weights.begin(), weights.end(), network.parameters()[0].value.begin());
  network.weights_changed();
  return network;
}

struct Range {
  const char* name;
  double low, high;  // logits of z; a = 1 - z = sigmoid(-logit)
};

constexpr Range kRanges[] = {{"a near 1e-4", 9.2, 9.22}, {"a near 1", -16.0, -12.0}, {"a anywhere", -8.0, 8.0}};

/// The greatest error relative to the size the terms of h have: the same sum over their magnitudes.
void check(const char* cell, const Range& range, float h0, Algorithm algorithm) {
  SCOPED_TRACE(testing::Message() << cell << ", " << range.name << ", h0 " << h0 << ", " << to_string(algorithm));
  const bool positive = std::string(cell) == "mingru-log";
  const Recurrent<float> network = identity(cell);
  Random random(3);
  std::vector<float> x(2 * kSteps), y(kSteps);
  for (Index t = 0; t < kSteps; ++t) {
    x[2 * t] = static_cast<float>(random.uniform(range.low, range.high));
    x[2 * t + 1] = static_cast<float>(random.normal());
  }
  Execution execution;
  execution.threads = 2;
  execution.algorithm = algorithm;
  float state = h0;
  network.forward({.rows = 1, .steps = kSteps}, SequenceView<const float>::batch_first(x.data(), kSteps, 2),
                  SequenceView<float>::batch_first(y.data(), kSteps, 1), &state, &state, nullptr, execution);
  double h = h0, magnitude = std::abs(h0), worst = 0;
  for (Index t = 0; t < kSteps; ++t) {
    const double candidate = !positive ? x[2 * t + 1] : x[2 * t + 1] >= 0 ? x[2 * t + 1] + 0.5 : sigmoid(x[2 * t + 1]);
    const double a = sigmoid(-x[2 * t]), z = sigmoid(x[2 * t]);
    h = a * h + z * candidate;
    magnitude = a * magnitude + z * std::abs(candidate);
    ASSERT_TRUE(std::isfinite(y[t])) << "step " << t;
    worst = std::max(worst, std::abs(y[t] - h) / std::max(magnitude, double(std::numeric_limits<float>::min())));
  }
  // A term lives for about 1 / (1 - a) steps, at most T, and each rounds a and the sum once, a by 3 ULP.
  const double life = std::min<double>(kSteps, 1 / sigmoid(range.high));
  EXPECT_LE(worst, 8 * life * std::numeric_limits<float>::epsilon());
  EXPECT_LE(worst, 1e-4);
  EXPECT_EQ(state, y.back());
}

TEST(ScanPrecision, LongSequencesOfEitherSign) {
  for (const char* cell : {"mingru", "mingru-log"}) {
    for (const Range& range : kRanges) {
      for (const float h0 : {0.0f, 3.5f, -3.5f}) {
        for (const Algorithm algorithm : {Algorithm::sequential, Algorithm::scan}) check(cell, range, h0, algorithm);
      }
    }
  }
}

TEST(ScanPrecision, MinLstmSurvivesVanishingGates) {
  Recurrent<float> network({.cell = "minlstm", .input_size = 3, .hidden_size = 1, .bias = Bias::none});
  const std::vector<float> weights = {1, 0, 0, 0, 1, 0, 0, 0, 1};
  std::copy(weights.begin(), weights.end(), network.parameters()[0].value.begin());
  network.weights_changed();
  // Both gates at e^-50, and one 20 below the other: their quotient is all that counts.
  const std::vector<float> x = {-50, -50, 2, -50, -70, 4, -70, -50, 6};
  std::vector<float> y(3), state = {1};
  network.forward({.rows = 1, .steps = 3}, SequenceView<const float>::batch_first(x.data(), 3, 3),
                  SequenceView<float>::batch_first(y.data(), 3, 1), state.data(), state.data());
  EXPECT_FLOAT_EQ(y[0], 1.5f);
  EXPECT_NEAR(y[1], 1.5f, 1e-6);
  EXPECT_NEAR(y[2], 6.0f, 1e-6);
}

}  // namespace
}  // namespace penstock
