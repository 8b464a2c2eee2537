// NaN and infinity in recurrences of dense cells on a GPU. Skipped where there is no GPU.

#include <bit>
#include <cmath>

#include "backend/dense_test.h"

namespace penstock::cuda {
namespace {

/// NaN and infinity in one value of R, of a first state or of a gradient: no result is wrong and finite.
class NotNumbersTest : public DenseTest {
 protected:
  /// The NaN of CUDA's arithmetic, its negative, and that of the host.
  static double nan_of(int which) {
    const auto bits = which == 0 ? 0x7fffffffu : which == 1 ? 0xffffffffu : 0x7fc00000u;
    return static_cast<double>(std::bit_cast<float>(bits));
  }
  Index at(Index b, Index t, Index channels) const { return (b * c.steps + t) * channels; }

  /// Where `wanted` is NaN, so is `got`; elsewhere it is close or NaN.
  static void expect_nothing_lost(const Doubles& got, const Doubles& wanted, double error) {
    for (std::size_t i = 0; i < got.size(); ++i) {
      if (std::isnan(got[i])) continue;
      ASSERT_LE(std::abs(got[i] - wanted[i]), error * std::max(1.0, std::abs(wanted[i]))) << "value " << i;
    }
  }
  Doubles forward_of() {
    const DenseForward call = forward_call();
    const DenseForwardExecutable executable(stream->device(), spec(), call);
    SCOPED_TRACE(executable.plan().explain());
    run(executable, call);
    return get(y, storage);
  }
};

TEST_P(NotNumbersTest, PassThroughStates) {
  for (int which = 0; which < 3; ++which) {
    arguments.state_in[static_cast<std::size_t>(3 * H + 5)] = nan_of(which);
    const Doubles got = forward_of();
    for (Index b = 0; b < c.rows; ++b) {
      for (Index i = at(b, 0, H); i < at(b, 1, H); ++i) {
        EXPECT_EQ(std::isnan(got[static_cast<std::size_t>(i)]), b == 3) << "NaN " << which << ", row " << b;
      }
    }
  }
}

TEST_P(NotNumbersTest, PassThroughTheMatrix) {
  for (int which = 0; which < 3; ++which) {
    arguments.weights[0].weight_hh[static_cast<std::size_t>(5 * c.head + 7)] = nan_of(which);
    const Doubles got = forward_of();
    for (Index b = 0; b < c.rows; ++b) EXPECT_TRUE(std::isnan(got[static_cast<std::size_t>(at(b, 0, H) + 5)])) << b;
  }
  arguments.weights[0].weight_hh[static_cast<std::size_t>(5 * c.head + 7)] = HUGE_VAL;
  const Doubles want = oracle::forward(oracle_spec(), batch, arguments).y;
  expect_nothing_lost(forward_of(), want, allowed(c.head, 4));
}

TEST_P(NotNumbersTest, PassThroughGradients) {
  const DenseForward forward = forward_call();
  run(DenseForwardExecutable(stream->device(), spec(), forward), forward);
  const Doubles sound = oracle_gradients().x;
  for (const double value : {nan_of(0), nan_of(1), nan_of(2), HUGE_VAL, -HUGE_VAL}) {
    dy[static_cast<std::size_t>(at(3, c.steps - 1, H) + 5)] = value;
    const DenseBackward call = backward_call(forward);
    const DenseBackwardExecutable back(stream->device(), spec(), call);
    SCOPED_TRACE(back.plan().explain());
    Buffer workspace(*stream, back.workspace_bytes());
    workspace.fill(0);
    back.run(call, workspace.address(), stream->handle());
    const Doubles got = get(dwx, storage);
    const double error = allowed(std::max(positions(), width), 8);
    for (Index b = 0; b < c.rows; ++b) {
      for (Index i = at(b, 0, width); i < at(b, c.steps - 1, width); ++i) {
        const auto of = static_cast<std::size_t>(i);
        if (b == 3) {
          ASSERT_FALSE(std::isfinite(got[of])) << value << ", value " << i - at(b, 0, width);
        } else {
          ASSERT_NEAR(got[of], sound[of], error * test::backward_terms) << value << ", row " << b;
        }
      }
    }
  }
}

/// Where products round floats, by each algorithm.
std::vector<std::tuple<Case, std::string_view, Storage>> not_numbers() {
  std::vector<std::tuple<Case, std::string_view, Storage>> list;
  for (const std::string_view cell : {"elman", "gru", "lstm", "slstm"}) {
    for (const auto by : {plan::DenseAlgorithm::head, plan::DenseAlgorithm::cluster, plan::DenseAlgorithm::chip,
                          plan::DenseAlgorithm::step, plan::DenseAlgorithm::warpgroup}) {
      const Case c{.name = fmt::format("tf32_by_{}", to_string(by)),
                   .rows = 36,
                   .steps = 3,
                   .head = 64,
                   .algorithm = by,
                   .tf32 = true};
      list.emplace_back(c, cell, Storage::f32);
    }
  }
  return list;
}
INSTANTIATE_TEST_SUITE_P(Cuda, NotNumbersTest, testing::ValuesIn(not_numbers()), test::name_of<Case>);

}  // namespace
}  // namespace penstock::cuda
