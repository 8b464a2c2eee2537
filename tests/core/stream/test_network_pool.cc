// Pools of networks: where the rows are, and answers beside those of a NetworkSession.

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <memory>
#include <vector>

#include "base/random.h"
#include "penstock/session_pool.h"
#include "support/expect_error.h"
#include "support/onnx_model.h"
#include "support/tolerance.h"

namespace penstock {
namespace {

using namespace test::onnx;  // NOLINT(google-build-using-namespace): the file's own vocabulary
using test::expect_error;

Network imported(const std::string& file) { return Network::import_onnx(std::as_bytes(std::span(file))); }

/// h' = tanh(x + h) for x [rows, 3] and a state h [2, rows, 3] whose halves change places; y = h' [2, rows, 3], and
/// z = x [rows, 3].
Network swapping() {
  return imported(model({{value("x", {-1, 3}), value("h", {2, -1, 3})},
                         {node("Add", {"x", "h"}, {"sum"}), node("Tanh", {"sum"}, {"both"}),
                          node("Gather", {"both", "order"}, {"next_h"}, {attribute("axis", 0)}),
                          node("Identity", {"next_h"}, {"y"}), node("Neg", {"x"}, {"z"})},
                         {integers("order", {2}, {1, 0})},
                         {value("y", {2, -1, 3}), value("next_h", {2, -1, 3}), value("z", {-1, 3})}}));
}

std::vector<float> alone(NetworkSession& session, const std::vector<float>& x) {
  std::ranges::copy(x, session.input<float>("x").begin());
  session.run();
  std::vector<float> outputs;
  for (const NetworkTensor& output : session.outputs()) {
    const auto values = session.output<float>(output.name);
    outputs.insert(outputs.end(), values.begin(), values.end());
  }
  return outputs;
}

TEST(NetworkPool, EverySessionAnswersAsOneByItself) {
  const Network network = swapping();
  const NetworkShapes one = {{"x", {1, 3}}};
  SessionPool pool(network, one, 100, {.threads = 2}, {.steps = 100});
  ASSERT_EQ(pool.inputs(), 3);
  ASSERT_EQ(pool.outputs(), 9);
  Random random(5);
  std::vector<PooledSession> sessions;
  std::vector<std::unique_ptr<NetworkSession>> twins;
  for (int i = 0; i < 99; ++i) {
    sessions.push_back(pool.open());
    twins.push_back(std::make_unique<NetworkSession>(network, one));
  }
  for (int step = 0; step < 4; ++step) {
    std::vector<std::vector<float>> rows;
    for (std::size_t i = 0; i < sessions.size(); ++i) {
      rows.push_back({static_cast<float>(random.normal()), static_cast<float>(random.normal()), 0.5f});
      ASSERT_TRUE(pool.submit(sessions[i], rows[i], i));
    }
    const PoolAnswers answers = pool.run();
    ASSERT_TRUE(answers.failures.empty());
    ASSERT_EQ(answers.tags.size(), sessions.size());
    for (std::size_t i = 0; i < sessions.size(); ++i) {
      const std::vector<float> expected = alone(*twins[i], rows[i]);
      ASSERT_TRUE(std::ranges::equal(answers.outputs.subspan(9 * i, 9), expected)) << "step " << step << ", row " << i;
    }
  }
  const std::vector<float> state = pool.state(sessions[7]);
  const std::vector<std::byte> expected = twins[7]->state();
  ASSERT_EQ(state.size() * sizeof(float), expected.size());
  EXPECT_EQ(std::memcmp(state.data(), expected.data(), expected.size()), 0);
  SessionPool other(network, one, 1);
  const PooledSession moved = other.open();
  other.restore(moved, state);
  std::vector<float> outputs(9);
  ASSERT_TRUE(other.push(std::vector{moved}, std::vector{0.1f, 0.2f, 0.3f}, outputs).empty());
  EXPECT_EQ(outputs, alone(*twins[7], {0.1f, 0.2f, 0.3f}));
}

constexpr Index kColumns = 22;  // of dynamic ranges: enough for products of bytes

/// Multiplies bytes with ranges of whole batches: x [rows, 3, 22] and two states, one of them before a MatMulInteger,
/// the others of a DynamicQuantizeLSTM whose batch is axis 1; z comes of a ConvInteger.
Network with_dynamic_ranges() {
  constexpr Index hidden = 6, units = 4 * hidden;
  const auto bytes = [](const std::string& name, const std::vector<Index>& shape, Index seed) {
    Index count = 1;
    for (const Index extent : shape) count *= extent;
    std::vector<Index> values(static_cast<std::size_t>(count));
    for (std::size_t i = 0; i < values.size(); ++i) values[i] = (static_cast<Index>(i) * 77 + seed) % 255 - 127;
    return integers(name, shape, values, kInt8);
  };
  const auto floats = [](const std::string& name, const std::vector<Index>& shape, float value) {
    return tensor(name, shape, std::vector<float>(static_cast<std::size_t>(shape.empty() ? 1 : shape[0]), value));
  };
  const Names of_layer = {"turned", "W", "R", "", "", "h", "c", "", "Ws", "Wz", "Rs", "Rz"};
  return imported(model({
      {value("x", {-1, 3, kColumns}), value("s", {-1, 3, kColumns}), value("h", {1, -1, hidden}),
       value("c", {1, -1, hidden})},
      {node("Add", {"x", "s"}, {"sum"}), node("DynamicQuantizeLinear", {"sum"}, {"q", "scale", "zero"}),
       node("MatMulInteger", {"q", "w", "zero"}, {"p"}), node("Cast", {"p"}, {"pf"}, {attribute("to", kFloat)}),
       node("Mul", {"scale", "ws"}, {"both"}), node("Mul", {"pf", "both"}, {"y"}), node("Tanh", {"y"}, {"next_s"}),
       node("Transpose", {"y"}, {"turned"}, {attribute("perm", std::vector<Index>{1, 0, 2})}),
       node("DynamicQuantizeLSTM", of_layer, {"all", "next_h", "next_c"}, {attribute("hidden_size", hidden)},
            "com.microsoft"),
       node("DynamicQuantizeLinear", {"y"}, {"qy", "scale_y", "zero_y"}),
       node("ConvInteger", {"qy", "k", "zero_y"}, {"conv"}), node("Cast", {"conv"}, {"cf"}, {attribute("to", kFloat)}),
       node("Mul", {"cf", "scale_y"}, {"z"})},
      {bytes("w", {kColumns, kColumns}, 3), floats("ws", {kColumns}, 0.01f), bytes("W", {1, kColumns, units}, 5),
       bytes("R", {1, hidden, units}, 9), floats("Ws", {1}, 0.01f), integers("Wz", {1}, {0}, kInt8),
       floats("Rs", {1}, 0.01f), integers("Rz", {1}, {0}, kInt8), bytes("k", {2, 3, 7}, 4)},
      {value("all", {3, 1, -1, hidden}), value("z", {-1, 2, 16}), value("next_s", {-1, 3, kColumns}),
       value("next_h", {1, -1, hidden}), value("next_c", {1, -1, hidden})},
  }));
}

TEST(NetworkPool, EveryRowHasItsOwnDynamicRange) {
  const Network network = with_dynamic_ranges();
  const NetworkShapes one = {{"x", {1, 3, kColumns}}};
  constexpr Index rows = 21;
  const auto count = static_cast<std::size_t>(rows);
  constexpr std::size_t of_row = 3 * kColumns;
  SessionPool pool(network, one, rows, {.threads = 1});
  Random random(8);
  std::vector<PooledSession> sessions;
  std::vector<std::unique_ptr<NetworkSession>> twins;
  for (Index i = 0; i < rows; ++i) {
    sessions.push_back(pool.open());
    twins.push_back(std::make_unique<NetworkSession>(network, one));
  }
  const auto width = static_cast<std::size_t>(pool.outputs());
  ASSERT_EQ(width, 18U + 32U);
  for (int step = 0; step < 3; ++step) {
    std::vector<float> x, outputs(count * width);
    for (std::size_t i = 0; i < of_row * count; ++i) {
      x.push_back(static_cast<float>(random.normal() * static_cast<double>(i / of_row)));  // other rows, other ranges
    }
    ASSERT_TRUE(pool.push(sessions, x, outputs).empty());
    for (std::size_t i = 0; i < count; ++i) {
      const auto from = x.begin() + static_cast<std::ptrdiff_t>(of_row * i);
      const std::vector<float> expected = alone(*twins[i], {from, from + of_row});
      ASSERT_TRUE(std::ranges::equal(std::span(outputs).subspan(width * i, width), expected))
          << "step " << step << ", row " << i;
      const std::vector<float> state = pool.state(sessions[i]);
      const std::vector<std::byte> its = twins[i]->state();
      ASSERT_EQ(state.size() * sizeof(float), its.size());
      ASSERT_EQ(std::memcmp(state.data(), its.data(), its.size()), 0) << "step " << step << ", row " << i;
    }
  }
}

TEST(NetworkPool, SaysHowToKeepTheRowsOfARange) {
  std::vector<Index> ones(static_cast<std::size_t>(3 * kColumns * 4), 1);
  const Network reshaped = imported(
      model({{value("x", {-1, 3, kColumns})},
             {node("DynamicQuantizeLinear", {"x"}, {"q", "scale", "zero"}), node("Reshape", {"q", "flat"}, {"r"}),
              node("MatMulInteger", {"r", "w", "zero"}, {"p"}), node("Cast", {"p"}, {"y"}, {attribute("to", kFloat)})},
             {integers("flat", {2}, {-1, 3 * kColumns}), integers("w", {3 * kColumns, 4}, ones, kInt8)},
             {value("y", {-1, 4})}}));
  expect_error(ErrorCode::unsupported, "put it in front of DynamicQuantizeLinear", [&] {
    SessionPool(reshaped, {{"x", {1, 3, kColumns}}}, 4);
  });
}

TEST(NetworkPool, AFailureIsOfOneSession) {
  const Network network = swapping();
  SessionPool pool(network, {{"x", {1, 3}}}, 20, {.threads = 1});
  std::vector<PooledSession> sessions;
  for (int i = 0; i < 20; ++i) sessions.push_back(pool.open());
  std::vector<float> x(60, 0.5f), outputs(180);
  x[3 * 4] = NAN;
  const auto failures = pool.push(sessions, x, outputs);
  ASSERT_EQ(failures.size(), 1U);
  EXPECT_EQ(failures[0].position, 4);
  for (Index i = 0; i < 180; ++i) EXPECT_EQ(std::isnan(outputs[static_cast<std::size_t>(i)]), i / 9 == 4) << i;
}

TEST(NetworkPool, RefusesNetworksWithoutRows) {
  const auto refuses = [](ErrorCode code, const std::string& why, const Network& network, const NetworkShapes& shapes) {
    expect_error(code, why, [&] { SessionPool(network, shapes, 4); });
  };
  const Network good = swapping();
  refuses(ErrorCode::invalid_argument,
          "input \"x\" must have 2 extents, and 1 as extent 0, that of the rows, not [2, 3]", good, {{"x", {2, 3}}});
  expect_error(ErrorCode::unsupported, "a pool of networks runs on a CPU, not on cuda", [&] {
    SessionPool(good, {{"x", {1, 3}}}, 4, {.device = Device::cuda()});
  });
  refuses(ErrorCode::invalid_argument, "there is no input or state \"w\"", good, {{"w", {1}}});
  refuses(ErrorCode::unsupported, "input \"x\" has a fixed shape",
          imported(model({{value("x", {1, 3})}, {node("Neg", {"x"}, {"y"})}, {}, {value("y", {1, 3})}})), {});
  refuses(ErrorCode::unsupported, "input \"x\" has the type i64",
          imported(model({{value("x", {-1}, kInt64)}, {node("Neg", {"x"}, {"y"})}, {}, {value("y", {-1}, kInt64)}})),
          {});
  refuses(ErrorCode::unsupported, "\"y\" is f32 [1, 3] for one row, [1, 3] for two",
          imported(model({{value("x", {-1, 3})},
                          {node("ReduceMax", {"x", "axis"}, {"y"})},
                          {integers("axis", {1}, {0})},
                          {value("y", {1, 3})}})),
          {{"x", {1, 3}}});
  refuses(ErrorCode::unsupported, "whose rows do not depend on each other",
          imported(model({{value("x", {-1, 3})},
                          {node("ReduceMean", {"x", "axis"}, {"mean"}), node("Sub", {"x", "mean"}, {"y"})},
                          {integers("axis", {1}, {0})},
                          {value("y", {-1, 3})}})),
          {{"x", {1, 3}}});
  refuses(ErrorCode::unsupported, "one range for all rows: the input has shape [6] for one row and [12] for two",
          imported(model({{value("x", {-1, 6})},
                          {node("Reshape", {"x", "flat"}, {"r"}), node("DynamicQuantizeLinear", {"r"}, {"q", "t", "o"}),
                           node("DequantizeLinear", {"q", "t", "o"}, {"d"}), node("Reshape", {"d", "pairs"}, {"y"})},
                          {integers("flat", {1}, {-1}), integers("pairs", {2}, {-1, 6})},
                          {value("y", {-1, 6})}})),
          {{"x", {1, 6}}});
}

}  // namespace
}  // namespace penstock
