// The operator under a scan, (a1, b1) then (a2, b2) = (a2 a1, a2 b1 + b2), and how deep its chunks are.

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <vector>

#include "base/random.h"
#include "ops/scan/scan_chunks.h"
#include "penstock/scan.h"
#include "support/tolerance.h"

namespace penstock {
namespace {

struct Step {
  float a, b;
};

/// Returns the effect of two steps together.
Step combined(const Step& first, const Step& second) { return {second.a * first.a, second.a * first.b + second.b}; }

/// The state after all steps, from h0.
float walk(const std::vector<Step>& steps, float h0, Algorithm algorithm) {
  std::vector<float> a, b, h(steps.size());
  for (const Step& step : steps) a.push_back(step.a), b.push_back(step.b);
  const auto T = static_cast<Index>(steps.size());
  const auto view = [&](auto& v) {
    return SequenceView<std::remove_reference_t<decltype(v[0])>>::batch_first(v.data(), T, 1);
  };
  float hT = 0;
  Scan<float>(1).forward({.rows = 1, .steps = T}, {view(std::as_const(a)), view(std::as_const(b)), {}}, view(h), &h0,
                         &hT, {.threads = 2, .algorithm = algorithm});
  return hT;
}

std::vector<Step> draw(Random& random, Index count) {
  std::vector<Step> steps;
  for (Index t = 0; t < count; ++t) {
    const auto a = static_cast<float>(random.uniform(-1.0, 1.0));
    steps.push_back({a, static_cast<float>(random.uniform(-1.0, 1.0))});
  }
  return steps;
}

const std::vector<Algorithm> algorithms = {Algorithm::sequential, Algorithm::scan};

TEST(ScanOperator, IsAssociativeUpToRounding) {
  Random random(3);
  for (const Algorithm algorithm : algorithms) {
    for (int trial = 0; trial < 40; ++trial) {
      // Long, so that the steps that are combined lie in the one chunk, in the other, or at the cut.
      std::vector<Step> steps = draw(random, 1100);
      const std::size_t at = trial < 20 ? 1018 + static_cast<std::size_t>(trial) % 10 : random.below(1097);
      for (std::size_t t = at + 3; t < steps.size(); ++t) steps[t].a = 1.0f;  // what happens there is remembered
      const float want = walk(steps, 0.7f, algorithm);
      const auto merged = [&](const std::vector<Step>& middle) {
        std::vector<Step> others(steps.begin(), steps.begin() + static_cast<std::ptrdiff_t>(at));
        others.insert(others.end(), middle.begin(), middle.end());
        others.insert(others.end(), steps.begin() + static_cast<std::ptrdiff_t>(at) + 3, steps.end());
        return walk(others, 0.7f, algorithm);
      };
      const Step& x = steps[at];
      const Step& y = steps[at + 1];
      const Step& z = steps[at + 2];
      // States are below 100 and at most 1,100 sums are rounded; of either sign, so their root counts.
      const double allowed = 100 * std::sqrt(1100.0) * 0x1p-24;
      EXPECT_NEAR(merged({combined(x, y), z}), want, allowed);
      EXPECT_NEAR(merged({x, combined(y, z)}), want, allowed);
      EXPECT_NEAR(merged({combined(combined(x, y), z)}), want, allowed);
      EXPECT_NEAR(merged({combined(x, combined(y, z))}), want, allowed);
    }
  }
}

TEST(ScanOperator, IsNotCommutative) {
  // Forget, then write; or write, then forget.
  for (const Algorithm algorithm : algorithms) {
    std::vector<Step> steps(1100, {1.0f, 0.0f});
    for (const std::size_t at : {std::size_t{5}, std::size_t{1023}}) {
      std::vector<Step> one = steps, other = steps;
      one[at] = {0.0f, 0.0f}, one[at + 1] = {1.0f, 3.0f};
      other[at] = {1.0f, 3.0f}, other[at + 1] = {0.0f, 0.0f};
      EXPECT_EQ(walk(one, 0.5f, algorithm), 3.0f);
      EXPECT_EQ(walk(other, 0.5f, algorithm), 0.0f);
    }
  }
}

TEST(ScanOperator, HasAnIdentity) {
  Random random(4);
  for (const Algorithm algorithm : algorithms) {
    const std::vector<Step> steps = draw(random, 900);
    for (const std::size_t at : {std::size_t{0}, std::size_t{450}, steps.size()}) {
      // All in one chunk, so that no sum is formed in another order: the same to the bit.
      std::vector<Step> others = steps;
      others.insert(others.begin() + static_cast<std::ptrdiff_t>(at), 100, {1.0f, 0.0f});
      EXPECT_EQ(walk(others, 0.25f, algorithm), walk(steps, 0.25f, algorithm));
    }
    EXPECT_EQ(walk(std::vector<Step>(2500, {1.0f, 0.0f}), 0.25f, algorithm), 0.25f);
  }
}

/// How many multiply-adds, one after the other, a value has behind it.
struct Depth {
  int steps;
  explicit Depth(int n = 0) : steps(n) {}
};
Depth operator*(Depth a, Depth b) { return Depth(std::max(a.steps, b.steps)); }
Depth operator+(Depth a, Depth b) { return Depth(std::max(a.steps, b.steps) + 1); }
bool operator==(Depth a, Depth b) { return a.steps == b.steps; }
bool isfinite(Depth) { return true; }

/// Returns the depth of the last state of a row of T steps, in chunks.
int depth_of_chunks(Index T, Index chunk) {
  const Index length = T, row = 0;
  cpu::RowPlan plan;
  plan.rows = 1, plan.length = &length, plan.row_of = &row;
  const auto chunks = static_cast<std::size_t>((T + chunk - 1) / chunk);
  std::vector<Depth> gains(chunks), rests(chunks), offsets(chunks);
  Depth carry;
  const auto walk_part = [](const cpu::ScanPart& part, Depth* state) {
    for (Index t = part.begin; t < part.end; ++t) *state = Depth() * *state + Depth();
  };
  ops::scan_in_chunks<Depth>(
      {plan, T, chunk, 1}, &carry, {{gains.data(), rests.data(), offsets.data()}, 1}, [](const cpu::ScanPart&, int) {},
      [&](const cpu::ScanPart& part, const cpu::ScanEffect<Depth>& effect) {
        *effect.gain = *effect.gain_rest = *effect.offset = Depth();
        walk_part(part, effect.offset);
      },
      walk_part);
  return carry.steps;
}

TEST(ScanDepth, IsTwoChunksAndOneStepAChunk) {
  // Depth by docs/sequential_time.md: a chunk for the summaries, one step from chunk to chunk, a chunk for the states.
  for (const Index chunk : {1, 7, 64, 1024}) {
    for (const Index chunks : {1, 2, 3, 10}) {
      const Index T = chunk * chunks;
      const Index want = chunks == 1 ? chunk : 2 * chunk + chunks - 1;
      EXPECT_EQ(depth_of_chunks(T, chunk), want) << T << " steps in chunks of " << chunk;
      EXPECT_EQ(depth_of_chunks(T, T), T);
    }
  }
}

}  // namespace
}  // namespace penstock
