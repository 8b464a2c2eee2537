// One network in many hands: threads, tapes, masks, and tensors that lie over one another.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <thread>
#include <utility>

#include "base/random.h"
#include "penstock/recurrent.h"
#include "penstock/scan.h"
#include "support/expect_error.h"

namespace penstock {
namespace {

using test::expect_error;
using View = SequenceView<float>;
using Floats = std::vector<float>;

Floats random_floats(Index count, std::uint64_t seed) {
  Random random(seed);
  Floats values(static_cast<std::size_t>(count));
  for (float& value : values) value = static_cast<float>(random.normal());
  return values;
}

constexpr Index rows = 3, steps = 20, inputs = 5, hidden = 48;

Floats forward(const Recurrent<float>& network, const Floats& x, RecurrentTape<float>* tape = nullptr) {
  Floats y(static_cast<std::size_t>(rows * steps * network.spec().output_size()));
  network.forward({.rows = rows, .steps = steps}, View::batch_first(const_cast<float*>(x.data()), steps, inputs),
                  View::batch_first(y.data(), steps, network.spec().output_size()), nullptr, nullptr, tape,
                  {.threads = 1});
  return y;
}

class EveryCell : public testing::TestWithParam<std::string> {};

TEST_P(EveryCell, ThreadsShareANetwork) {
  const Recurrent<float> network(
      {.cell = GetParam(), .input_size = inputs, .hidden_size = hidden, .layers = 2, .direction = Direction::forward});
  constexpr int threads = 4, repeats = 20;
  std::vector<Floats> x, want;
  for (int i = 0; i < threads; ++i) {
    x.push_back(random_floats(rows * steps * inputs, 10 + i));
    want.push_back(forward(network, x.back()));
  }
  std::vector<int> wrong(threads, 0);
  std::vector<std::thread> running;
  for (int i = 0; i < threads; ++i) {
    running.emplace_back([&, i] {
      for (int k = 0; k < repeats; ++k) wrong[i] += forward(network, x[i]) == want[i] ? 0 : 1;
    });
  }
  for (std::thread& thread : running) thread.join();
  EXPECT_THAT(wrong, testing::Each(0));
}

TEST_P(EveryCell, ThreadsStepANetwork) {
  const Recurrent<float> network({.cell = GetParam(), .input_size = inputs, .hidden_size = hidden, .layers = 2});
  const auto stream = [&](std::uint64_t seed) {
    Floats state(static_cast<std::size_t>(network.state_size()), 0.0f), y(hidden), all;
    for (int t = 0; t < 50; ++t) {
      const Floats x = random_floats(inputs, seed + static_cast<std::uint64_t>(t));
      network.step(1, x.data(), y.data(), state.data());
      all.insert(all.end(), y.begin(), y.end());
    }
    return all;
  };
  const std::vector<Floats> want = {stream(100), stream(200), stream(300)};
  std::vector<Floats> got(3);
  std::vector<std::thread> running;
  for (std::size_t i = 0; i < 3; ++i) running.emplace_back([&, i] { got[i] = stream(100 * (i + 1)); });
  for (std::thread& thread : running) thread.join();
  EXPECT_EQ(got, want);
}

INSTANTIATE_TEST_SUITE_P(Cells, EveryCell, testing::Values("lstm", "gru", "mingru", "slstm"),
                         [](const auto& tested) { return tested.param; });

TEST(Scan, ThreadsShareAnObject) {
  static constexpr Index channels = 33;
  const Scan<float> scan(channels);
  const auto run = [&](std::uint64_t seed) {
    const Floats a = random_floats(rows * steps * channels, seed), b = random_floats(rows * steps * channels, seed + 1);
    Floats h(a.size());
    const auto view = [](const Floats& of) {
      return SequenceView<const float>::batch_first(of.data(), steps, channels);
    };
    scan.forward({.rows = rows, .steps = steps}, {view(a), view(b), {}}, View::batch_first(h.data(), steps, channels),
                 nullptr, nullptr, {.threads = 1});
    return h;
  };
  const std::vector<Floats> want = {run(1), run(2), run(3)};
  std::vector<int> wrong(3, 0);
  std::vector<std::thread> running;
  for (std::size_t i = 0; i < 3; ++i) {
    running.emplace_back([&, i] {
      for (int k = 0; k < 50; ++k) wrong[i] += run(i + 1) == want[i] ? 0 : 1;
    });
  }
  for (std::thread& thread : running) thread.join();
  EXPECT_THAT(wrong, testing::Each(0));
}

RecurrentSpec with_dropout() {
  return {.cell = "gru", .input_size = inputs, .hidden_size = hidden, .layers = 2, .dropout = 0.5};
}

TEST(Dropout, FreshTapesDrawMasksOfTheirOwn) {
  const Floats x = random_floats(rows * steps * inputs, 1);
  const auto two_passes = [&](std::uint64_t seed) {
    const Recurrent<float> network(with_dropout(), seed);
    RecurrentTape<float> first, second;
    return std::pair(forward(network, x, &first), forward(network, x, &second));
  };
  const auto [first, second] = two_passes(7);
  EXPECT_NE(first, second);
  EXPECT_EQ(two_passes(7), std::pair(first, second)) << "another network of the same seed drew others";
}

class Tapes : public testing::Test {
 protected:
  Recurrent<float> network{{.cell = "lstm", .input_size = inputs, .hidden_size = hidden}};
  Floats x = random_floats(rows * steps * inputs, 1), dy = random_floats(rows * steps * hidden, 2);
  Floats dx = Floats(x.size());
  RecurrentTape<float> tape;

  void backward(Recurrent<float>& of, const Batch& batch, RecurrentTape<float>& with) {
    of.backward(batch, View::batch_first(x.data(), steps, inputs), View::batch_first(dy.data(), steps, hidden), nullptr,
                View::batch_first(dx.data(), steps, inputs), nullptr, with);
  }
  static constexpr Batch whole{.rows = rows, .steps = steps};
};

TEST_F(Tapes, OfAnotherNetworkAreRefused) {
  Recurrent<float> larger({.cell = "lstm", .input_size = inputs, .hidden_size = 512});
  Recurrent<float> twin({.cell = "lstm", .input_size = inputs, .hidden_size = hidden});
  forward(network, x, &tape);
  dy.resize(static_cast<std::size_t>(rows * steps * 512));
  for (Recurrent<float>* other : {&larger, &twin}) {
    expect_error(ErrorCode::invalid_argument, "tape must hold a forward pass of this network",
                 [&] { backward(*other, whole, tape); });
  }
  backward(network, whole, tape);
}

TEST_F(Tapes, OfOtherWeightsAreRefused) {
  const char* message = "tape must hold a forward pass with the weights as they are now, and they have changed since";
  forward(network, x, &tape);
  network.parameters()[0].value[0] += 1.0f;
  network.weights_changed();
  expect_error(ErrorCode::invalid_argument, message, [&] { backward(network, whole, tape); });
  forward(network, x, &tape);
  network.write("bias_ih_l0", std::vector<float>(4 * hidden, 0.5f));
  expect_error(ErrorCode::invalid_argument, message, [&] { backward(network, whole, tape); });
  forward(network, x, &tape);
  backward(network, whole, tape);
}

TEST_F(Tapes, OfOtherLengthsOrResetsAreRefused) {
  forward(network, x, &tape);
  const std::vector<Index> lengths = {20, 3, 7};
  const std::vector<std::uint8_t> reset(rows * steps, 1);
  expect_error(ErrorCode::invalid_argument, "its lengths, packed rows or resets are others",
               [&] { backward(network, {.rows = rows, .steps = steps, .lengths = lengths.data()}, tape); });
  expect_error(ErrorCode::invalid_argument, "its lengths, packed rows or resets are others",
               [&] { backward(network, {.rows = rows, .steps = steps, .reset = reset.data()}, tape); });
}

TEST_F(Tapes, ThatWereMovedFromAreRefused) {
  RecurrentTape<float> taken = std::move(tape);
  expect_error(ErrorCode::invalid_argument, "tape must not have been moved from",
               [&] { forward(network, x, &tape); });  // NOLINT(bugprone-use-after-move): what it is about
  Recurrent<float> elsewhere = std::move(network);
  // NOLINTNEXTLINE(bugprone-use-after-move): what it is about
  expect_error(ErrorCode::invalid_argument, "the network must not have been moved from", [&] { forward(network, x); });
  forward(elsewhere, x, &taken);
}

TEST(Overlaps, AreRefusedAndNeighboursAreNot) {
  constexpr Index width = 8;
  const Recurrent<float> network({.cell = "gru", .input_size = width, .hidden_size = width});
  Floats memory = random_floats(rows * steps * 2 * width, 3);
  const Batch batch{.rows = rows, .steps = steps};
  const auto call = [&](const View& x, const View& y) {
    network.forward(batch, x, y, nullptr, nullptr, nullptr, {.threads = 1});
  };
  const View whole = View::batch_first(memory.data(), steps, width);
  expect_error(ErrorCode::invalid_argument, "y must not overlap x", [&] { call(whole, whole); });
  View shifted = whole;
  shifted.data += 3;
  expect_error(ErrorCode::invalid_argument, "y must not overlap x", [&] { call(whole, shifted); });
  View behind = whole;
  behind.data += rows * steps * width;
  call(whole, behind);
  // The left and the right channels of one tensor.
  const View left = View::batch_first(memory.data(), steps, 2 * width);
  View right = left;
  right.data += width;
  call(left, right);
  call(right, left);
  expect_error(ErrorCode::invalid_argument, "y must have a step stride of at least its 8 channels, not 0",
               [&] { call(whole, {behind.data}); });
}

TEST(Overlaps, OfGivenStatesAndTheLastOnesAreRefused) {
  constexpr Index width = 8;
  const Recurrent<float> network({.cell = "gru", .input_size = width, .hidden_size = width});
  Floats x = random_floats(rows * steps * width, 3);
  Floats y(x.size()), states(2 * rows * width), last(rows * width);
  const std::vector<std::uint8_t> reset(rows * steps, 1);
  const Batch batch{.rows = rows, .steps = steps, .reset = reset.data(), .restarts = Restarts::rows};
  const auto forward = [&](float* state_out) {
    const auto to = View::batch_first(y.data(), steps, width);
    network.forward(batch, View::batch_first(x.data(), steps, width), to, states.data(), state_out);
  };
  for (const Index at : {Index{0}, rows * width}) {
    expect_error(ErrorCode::invalid_argument, "state_out must not overlap state_in", [&] { forward(&states[at]); });
  }
  forward(last.data());
}

}  // namespace
}  // namespace penstock
