// Random numbers by counter: what they share with Random, and that they look random.

#include "base/counter_random.h"

#include <gtest/gtest.h>

#include <cmath>

#include "base/random.h"

namespace penstock::counter_random {
namespace {

TEST(CounterRandom, DrawsWhatRandomDrawsFirst) {
  for (const Word seed : {Word{0}, Word{1}, Word{12345}, ~Word{0}}) {
    EXPECT_EQ(first_draw(seed), Random(seed).bits());
    EXPECT_EQ(seed_of_step(seed, 6), Random(seed ^ (golden * 7)).bits());
  }
}

TEST(CounterRandom, KeepsAboutAsManyValuesAsAsked) {
  constexpr int count = 100'000;
  for (const double probability : {0.0, 0.1, 0.5, 0.9}) {
    int kept = 0;
    for (int i = 0; i < count; ++i) {
      kept += keeps(key_of(3, 1), static_cast<Word>(i), static_cast<unsigned>(std::ldexp(probability, 32))) ? 1 : 0;
    }
    // Five standard deviations of a binomial distribution.
    const double deviation = std::sqrt(count * probability * (1 - probability));
    EXPECT_NEAR(kept, count * (1 - probability), 5 * deviation) << probability;
  }
}

TEST(CounterRandom, UniformNumbersFillTheUnitInterval) {
  constexpr int count = 100'000;
  double sum = 0;
  for (int i = 0; i < count; ++i) {
    const double x = uniform(key_of(1, 2), static_cast<Word>(i));
    ASSERT_GE(x, 0.0);
    ASSERT_LT(x, 1.0);
    sum += x;
  }
  EXPECT_NEAR(sum / count, 0.5, 5 * std::sqrt(1.0 / 12 / count));
}

}  // namespace
}  // namespace penstock::counter_random
