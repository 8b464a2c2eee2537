// Programs of causal convolutions over memory of the caller's: that they compute what the formula says, and that what
// a call may not give them is refused by name.

#include "penstock/convolution_program.h"

#include <gtest/gtest.h>

#include <tuple>
#include <vector>

#include "base/random.h"
#include "support/expect_error.h"

namespace penstock::test {
namespace {

constexpr Index rows = 2, channels = 5, taps = 4;

/// A call in float, and its memory.
class Calls {
 public:
  Calls(Index steps, bool with_reset)
      : steps_(steps),
        reset(static_cast<std::size_t>(rows * steps), 0),
        program_(ConvolutionProgram::get(form(with_reset))) {
    Random random(7);
    const auto fill = [&](std::vector<float>& values, Index size) {
      values.resize(static_cast<std::size_t>(size));
      for (float& value : values) value = static_cast<float>(random.uniform() - 0.5);
    };
    for (std::vector<float>* const sequence : {&x, &y, &dy, &dx}) fill(*sequence, rows * steps * channels);
    for (std::vector<float>* const weights : {&weight, &dweight}) fill(*weights, taps * channels);
    for (std::vector<float>* const biases : {&bias, &dbias}) fill(*biases, channels);
    fill(state, rows * (taps - 1) * channels);
    if (with_reset) reset[1] = reset[static_cast<std::size_t>(steps)] = 1;
    workspace_.resize(program_->workspace_bytes() + 256);
  }

  ConvolutionCallForm form(bool with_reset) const {
    ConvolutionCallForm form{.channels = channels, .taps = taps, .rows = rows, .steps = steps_};
    form.flags.set(CallFlag::training, true);
    form.flags.set(CallFlag::reset, with_reset);
    return form;
  }
  Tensor sequence(std::vector<float>& values) const {
    return Tensor::contiguous(values.data(), DType::f32, {rows, steps_, channels});
  }
  static Tensor weights(std::vector<float>& values) {
    return Tensor::contiguous(values.data(), DType::f32, {taps, channels});
  }
  static Tensor biases(std::vector<float>& values) { return Tensor::contiguous(values.data(), DType::f32, {channels}); }
  Tensor before() { return Tensor::contiguous(state.data(), DType::f32, {rows, taps - 1, channels}); }
  Batch batch(bool with_reset) {
    Batch batch{.rows = rows, .steps = steps_};
    if (with_reset) batch.reset = reset.data();
    return batch;
  }
  ConvolutionProgram::Forward forward(bool with_state, bool with_reset) {
    return {batch(with_reset), sequence(x),  with_state ? before() : Tensor{},
            weights(weight),   biases(bias), sequence(y)};
  }
  ConvolutionProgram::Backward backward(bool with_state, bool with_reset) {
    const auto begin = reinterpret_cast<std::uintptr_t>(workspace_.data());
    const Memory workspace{workspace_.data() + (256 - begin % 256) % 256, program_->workspace_bytes()};
    return {batch(with_reset), sequence(x),  with_state ? before() : Tensor{},
            weights(weight),   sequence(dy), weights(dweight),
            biases(dbias),     sequence(dx), workspace};
  }
  const ConvolutionProgram& program() const { return *program_; }

  /// Whether no reset lies between step t of row b and the j-th before it.
  bool reaches(Index b, Index t, Index j) const {
    for (Index s = t; s > t - j && s >= 0; --s) {
      if (reset[static_cast<std::size_t>(b * steps_ + s)] != 0) return false;
    }
    return true;
  }
  /// The input j steps before step t of row b, as the formula has it.
  double input(Index b, Index t, Index j, Index c, bool with_state) const {
    if (!reaches(b, t, j)) return 0;
    if (t >= j) return x[static_cast<std::size_t>((b * steps_ + t - j) * channels + c)];
    return with_state ? state[static_cast<std::size_t>((b * (taps - 1) + taps - 1 + t - j) * channels + c)] : 0;
  }

 private:
  Index steps_;

 public:
  std::vector<float> x, y, dy, dx, weight, dweight, bias, dbias, state;
  std::vector<std::uint8_t> reset;

 private:
  std::shared_ptr<const ConvolutionProgram> program_;
  std::vector<std::byte> workspace_;
};

class ConvolutionPrograms : public testing::TestWithParam<std::tuple<Index, bool, bool>> {};

TEST_P(ConvolutionPrograms, ComputeTheFormulaAndItsGradients) {
  const auto [steps, with_state, with_reset] = GetParam();
  Calls calls(steps, with_reset);
  calls.program().forward({}, calls.forward(with_state, with_reset));
  calls.program().backward({}, calls.backward(with_state, with_reset));
  std::vector<double> dx(calls.x.size()), dweight(calls.weight.size()), dbias(calls.bias.size());
  for (Index b = 0; b < rows; ++b) {
    for (Index t = 0; t < steps; ++t) {
      for (Index c = 0; c < channels; ++c) {
        const auto at = static_cast<std::size_t>((b * steps + t) * channels + c);
        double sum = calls.bias[static_cast<std::size_t>(c)];
        for (Index j = 0; j < taps; ++j) {
          const auto tap = static_cast<std::size_t>(j * channels + c);
          const double in = calls.input(b, t, j, c, with_state);
          sum += calls.weight[tap] * in;
          dweight[tap] += calls.dy[at] * in;
          if (t >= j && calls.reaches(b, t, j))
            dx[at - static_cast<std::size_t>(j * channels)] += calls.weight[tap] * calls.dy[at];
        }
        dbias[static_cast<std::size_t>(c)] += calls.dy[at];
        EXPECT_NEAR(calls.y[at], sum, 1e-6) << b << ", " << t << ", " << c;
      }
    }
  }
  for (std::size_t i = 0; i < dx.size(); ++i) EXPECT_NEAR(calls.dx[i], dx[i], 1e-6) << i;
  for (std::size_t i = 0; i < dweight.size(); ++i) EXPECT_NEAR(calls.dweight[i], dweight[i], 1e-5) << i;
  for (std::size_t i = 0; i < dbias.size(); ++i) EXPECT_NEAR(calls.dbias[i], dbias[i], 1e-5) << i;
}

INSTANTIATE_TEST_SUITE_P(Each, ConvolutionPrograms,
                         testing::Combine(testing::Values(2, 3, 40), testing::Bool(), testing::Bool()));

TEST(ConvolutionProgram, RefusesWhatDoesNotFitByName) {
  const auto refused = [](const std::string& text, auto statement) {
    expect_error(ErrorCode::invalid_argument, text, statement);
  };
  refused("taps", [] { ConvolutionProgram::get({.taps = 0}); });
  refused("channels", [] { ConvolutionProgram::get({.channels = 0}); });
  Calls calls(5, false);
  const auto refuses = [&](const std::string& text, auto change) {
    ConvolutionProgram::Forward forward = calls.forward(true, false);
    change(forward);
    refused(text, [&] { calls.program().forward({}, forward); });
  };
  refuses("y", [](auto& call) { call.y = call.x; });
  refuses("x", [](auto& call) { call.x = {}; });
  refuses("weight", [&](auto& call) { call.weight = Calls::biases(calls.bias); });
  refuses("state", [&](auto& call) { call.state = calls.sequence(calls.x); });
  refuses("reset", [&](auto& call) { call.batch.reset = calls.reset.data(); });
  ConvolutionProgram::Backward backward = calls.backward(true, false);
  backward.dx = backward.dy;
  refused("dx", [&] { calls.program().backward({}, backward); });
  const auto untrained = ConvolutionProgram::get({.channels = channels, .taps = taps, .rows = rows, .steps = 5});
  refused("training", [&] { untrained->backward({}, calls.backward(true, false)); });
}

}  // namespace
}  // namespace penstock::test
