// Denormal and infinite weights: right, and not much slower than ordinary ones.

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "base/timing.h"
#include "bench/contenders/contender.h"
#include "penstock/error.h"
#include "support/names.h"

namespace penstock::bench {
namespace {

constexpr float infinity = std::numeric_limits<float>::infinity();
constexpr float denormal = 1e-40f;

const std::vector<std::string> dtypes = {"f32", "bf16-weights", "bf16"};

class SpecialValues : public testing::TestWithParam<std::string> {
 protected:
  Problem problem(const Shape& shape, Pass pass, const std::string& dtype = "f32") const {
    return make_problem({.cell = GetParam(), .shape = shape, .pass = pass, .dtype = dtype}, 5);
  }
};

std::vector<float>& find(Problem& problem, const std::string& name) {
  return std::ranges::find(problem.weights, name, &Array::name)->values;
}

void make_denormal(Problem& problem, bool all) {
  for (Array& array : problem.weights) {
    for (std::size_t i = 0; i < array.values.size(); ++i) {
      if (all || i % 2 == 0) array.values[i] = std::copysign(denormal, array.values[i]);
    }
  }
}

/// An infinite input weight saturates its gate at every step, one way or the other; each in another unit, since a gate
/// of 0 times an infinite candidate is nothing that could be right.
void make_infinite(Problem& problem, float weight) {
  std::vector<float>& values = find(problem, "weight_ih_l0");
  const auto inputs = static_cast<std::size_t>(problem.test.shape.inputs);
  const std::size_t rows = values.size() / inputs, middle = rows / 2 + 1;
  values[0] = values[middle * inputs] = values[values.size() - 1] = weight;
}

/// Is this precision offered for the pass? Minimal RNNs are trained in full precision.
bool is_offered(const Problem& problem) {
  try {
    make_ours("penstock", problem)->check();
    return true;
  } catch (const NotOffered&) {
    return false;
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::unsupported) << error.what();
    return false;
  }
}

void expect_right(const Problem& problem) {
  const Verdict verdict = judge(problem, solve(problem), make_ours("penstock", problem)->check(), Extent::all);
  EXPECT_TRUE(verdict.right) << problem.test.label() << ": " << verdict.complaint;
}

TEST_P(SpecialValues, DenormalWeightsAreRight) {
  for (const std::string& dtype : dtypes) {
    for (const bool all : {false, true}) {
      for (const Pass pass : {Pass::forward, Pass::training}) {
        // Every argument lies at the kink then, and denormal weights count as zeros.
        if (has_kink(GetParam()) && pass == Pass::training) continue;
        Problem test = problem({3, 33, 17, 19}, pass, dtype);
        if (!is_offered(test)) continue;
        make_denormal(test, all);
        expect_right(test);
      }
    }
  }
}

TEST_P(SpecialValues, InfiniteWeightsAreRight) {
  for (const std::string& dtype : dtypes) {
    for (const float weight : {infinity, -infinity}) {
      Problem test = problem({3, 33, 17, 19}, Pass::forward, dtype);
      make_infinite(test, weight);
      expect_right(test);
      test = problem({1, 9, 1, 33}, Pass::step, dtype);
      find(test, "bias_ih_l0")[5] = weight;
      expect_right(test);
    }
  }
}

double fastest(Contender& contender) { return std::ranges::min(contender.sample(2e-3)); }

/// At most twice the time of the ordinary problem.
void expect_not_slow(const Problem& ordinary, const Problem& special, const char* what) {
  const auto usual = make_ours("penstock", ordinary), slow = make_ours("penstock", special);
  double usual_seconds = 1.0, slow_seconds = 1.0;
  // The fastest of several turns: neighbours make some of them slow, special values would make all of them so.
  for (int turn = 0; turn < 5 || (turn < 50 && slow_seconds > 2.0 * usual_seconds); ++turn) {
    usual_seconds = std::min(usual_seconds, fastest(*usual));
    slow_seconds = std::min(slow_seconds, fastest(*slow));
  }
  EXPECT_LE(slow_seconds, 2.0 * usual_seconds) << what << " weights, " << special.test.label();
}

TEST_P(SpecialValues, AreNotSlow) {
  for (const std::string& dtype : dtypes) {
    for (const Pass pass : {Pass::forward, Pass::training, Pass::step}) {
      const Problem ordinary = problem({4, 64, 64, 64}, pass, dtype);
      if (!is_offered(ordinary)) continue;
      Problem special = ordinary;
      make_denormal(special, true);
      expect_not_slow(ordinary, special, "denormal");
      special = ordinary;
      make_infinite(special, infinity);
      expect_not_slow(ordinary, special, "infinite");
    }
  }
}

std::vector<std::string> cell_names() {
  std::vector<std::string> names;
  for (const CellInfo& cell : cells()) names.emplace_back(cell.name);
  return names;
}

INSTANTIATE_TEST_SUITE_P(Cells, SpecialValues, testing::ValuesIn(cell_names()), test::test_name);

}  // namespace
}  // namespace penstock::bench
