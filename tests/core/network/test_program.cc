// Networks as programs: shapes, constants, branches, states, memory, and what is refused.

#include "network/session.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>

#include "base/denormals.h"
#include "network/builder.h"
#include "network/fold.h"
#include "network/network_maker.h"

namespace penstock::network {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

/// x [B, 3] -> relu(2 x + 1), reshaped to what its shape says.
Maker chain() {
  Maker maker;
  const int x = maker.input("x", {-1, 3});
  const int twice = maker.node("Mul", {x, maker.constant(floats({}, {2}))});
  const int sum = maker.node("Add", {twice, maker.constant(floats({3}, {1, 1, 1}))});
  const int relu = maker.node("Relu", {sum});
  const int shape = maker.node(
      "Concat", {maker.constant(std::vector<Index>{3}), maker.constant(std::vector<Index>{-1})}, {{"axis", {0}}});
  maker.output(maker.node("Reshape", {relu, shape}));
  maker.output(maker.node("Shape", {relu}));
  return maker;
}

TEST(NetworkProgram, RunsForTheShapesOfItsInputs) {
  Running running(chain().network, {{2, 3}});
  ASSERT_TRUE(running.status.ok()) << running.status.text;
  running.set(0, floats({2, 3}, {-3, -2, -1, 0, 1, 2}));
  running.run();
  EXPECT_EQ(running.output(0).shape, (Shape{3, 2}));
  EXPECT_THAT(running.output(0).as<float>(), ElementsAre(0, 0, 0, 1, 3, 5));
  EXPECT_THAT(running.output(1).as<Index>(), ElementsAre(2, 3));
}

TEST(NetworkProgram, KeepsAChainOfPointwiseOperatorsInOnePlace) {
  const std::size_t one = Running(chain().network, {{100, 3}}).program->workspace_bytes();
  Maker longer = chain();
  int last = longer.network.nodes[2].writes[0];
  for (int i = 0; i < 20; ++i) last = longer.node("Tanh", {last});
  longer.network.outputs[0] = last;
  EXPECT_EQ(Running(longer.network, {{100, 3}}).program->workspace_bytes(), one);
}

TEST(NetworkProgram, ConvolutionsShareThePlanesWhoseZerosTheyKeep) {
  const auto bytes_of_chain = [](int length, const std::vector<Index>& last, std::vector<float>& y) {
    Maker maker;
    int value = maker.input("x", {1, 32, 8, 8});
    for (int i = 0; i < length; ++i) {
      const int weights = maker.constant(noise({32, 16, 3, 3}, static_cast<std::uint64_t>(i)));
      value = maker.node("Conv", {value, weights},
                         {{"group", {2}}, {"pads", i + 1 < length ? std::vector<Index>{1, 1, 1, 1} : last}});
    }
    maker.output(value);
    Running running(maker.network, {{1, 32, 8, 8}});
    EXPECT_TRUE(running.status.ok()) << running.status.text;
    for (int run = 0; run < 2; ++run) {  // the second finds the zeros
      running.set(0, noise({1, 32, 8, 8}, 9));
      running.run();
      const auto got = running.output(0).as<float>();
      EXPECT_TRUE(run == 0 || got == y);
      y = got;
    }
    return running.program->workspace_bytes();
  };
  std::vector<float> y;
  const std::size_t two = bytes_of_chain(2, {1, 1, 1, 1}, y);
  EXPECT_EQ(bytes_of_chain(6, {1, 1, 1, 1}, y), two);
  EXPECT_GE(bytes_of_chain(6, {0, 0, 2, 2}, y), two + 32 * 10 * 10 * sizeof(float));  // other places of zeros
}

TEST(NetworkProgram, RefusesShapesThatTheNetworkDoesNotHave) {
  const Maker maker = chain();
  EXPECT_THAT(Running(maker.network, {{2, 4}}).status.text,
              HasSubstr("input 'x' has shape [-1, 3] (-1: any), not [2, 4]"));
  EXPECT_THAT(Running(maker.network, {{2}}).status.text, HasSubstr("not [2]"));
  EXPECT_THAT(Running(maker.network, {{-1, 3}}).status.text, HasSubstr("negative"));
  EXPECT_THAT(Running(maker.network, {{Index{1} << 60, 3}}).status.text, HasSubstr("GiB"));
  EXPECT_THAT(Running(maker.network, {}).status.text, HasSubstr("has 1 inputs, but 0 shapes"));
}

TEST(NetworkProgram, RunsInMemoryOfTheCaller) {
  const Running running(chain().network, {{2, 3}});
  std::vector<std::byte> memory(running.program->workspace_bytes() + 64);
  std::byte* aligned = memory.data() + (64 - reinterpret_cast<std::uintptr_t>(memory.data()) % 64) % 64;
  std::unique_ptr<Session> session;
  EXPECT_THAT(Session::open(running.program, aligned + 4, session).text, HasSubstr("multiple of 64"));
  ASSERT_TRUE(Session::open(running.program, aligned, session).ok());
  EXPECT_GE(static_cast<std::byte*>(session->input(0)), aligned);
  EXPECT_LT(static_cast<std::byte*>(session->input(0)), memory.data() + memory.size());
}

/// Two states, the second of which follows the first by a run; y = x + first.
Maker delays() {
  Maker maker;
  const int x = maker.input("x", {2}), first = maker.input("first", {2}), second = maker.input("second", {2});
  maker.output(maker.node("Add", {x, second}));
  maker.output(maker.node("Identity", {x}));
  maker.output(first);
  maker.network.states = {{1, 1}, {2, 2}};
  return maker;
}

TEST(NetworkProgram, CarriesStatesOverFromRunToRun) {
  Running running(delays().network, {{2}, {2}, {2}});
  ASSERT_TRUE(running.status.ok()) << running.status.text;
  const auto step = [&](float value) {
    running.set(0, floats({2}, {value, -value}));
    running.run();
    return running.output(0).as<float>();
  };
  EXPECT_THAT(step(1), ElementsAre(1, -1));
  EXPECT_THAT(step(2), ElementsAre(2, -2));
  EXPECT_THAT(step(3), ElementsAre(4, -4));
  EXPECT_EQ(running.session->state_bytes(), 16u);
  float saved[4];
  running.session->read_state(saved);
  EXPECT_THAT(saved, ElementsAre(3, -3, 2, -2));
  running.session->reset();
  EXPECT_THAT(step(5), ElementsAre(5, -5));
  running.session->write_state(saved);
  EXPECT_THAT(step(5), ElementsAre(7, -7));
}

TEST(NetworkProgram, TakesDenormalNumbersAsZerosInARun) {
  Maker maker;
  const int x = maker.input("x", {1});
  maker.output(maker.node("Mul", {x, maker.constant(floats({}, {1e-10F}))}));
  Running running(maker.network, {{1}});
  ASSERT_TRUE(running.status.ok()) << running.status.text;
  volatile float tiny = 1e-30F, factor = 1e-10F;
  running.set(0, floats({1}, {tiny}));
  running.run();
  float expected = 1;
  {
    const WithDenormals as_zeros(DenormalMode::zeros());
    expected = tiny * factor;
  }
  EXPECT_EQ(running.output(0).as<float>()[0], expected);
  EXPECT_GT(tiny * factor, 0) << "the mode of the thread stays";
}

TEST(NetworkProgram, AllocatesNothingInARun) {
  Running running(chain().network, {{50, 3}});
  for (int i = 0; i < 10; ++i) running.run();
}

TEST(NetworkProgram, HasWeightsOnceThatSeveralNodesRead) {
  Maker maker;
  const int weights = maker.constant(noise({8, 8}, 3));
  int x = maker.input("x", {1, 8});
  for (int i = 0; i < 2; ++i) x = maker.node("Tanh", {maker.node("MatMul", {x, weights})});
  maker.output(x);
  Program::Impl program;
  const Shape inputs[] = {{1, 8}};
  ASSERT_TRUE(Builder(program, maker.network).build(inputs).ok());
  ASSERT_EQ(program.steps.size(), 2u);
  EXPECT_FALSE(program.steps[0].packed.empty());
  EXPECT_EQ(program.steps[0].packed.data(), program.steps[1].packed.data());
}

/// condition ? -x : |x|, where the condition may be anything.
Maker branches(const std::function<int(Maker&, int x)>& condition) {
  Maker maker;
  const int x = maker.input("x", {-1});
  Maker bodies[2];
  for (int i = 0; i < 2; ++i) {
    const int captured = bodies[i].input("captured", {-1});
    bodies[i].output(bodies[i].node(i == 0 ? "Neg" : "Abs", {captured}));
  }
  const int chosen = condition(maker, x);
  const int y = maker.node("If", {chosen, x});
  maker.network.nodes.back().bodies = {bodies[0].network, bodies[1].network};
  maker.output(y);
  return maker;
}

int is_long(Maker& maker, int x) {
  return maker.node("Greater", {maker.node("Size", {x}), maker.constant(tensor<Index>(Type::i64, {}, {2}))});
}

TEST(NetworkProgram, TakesTheBranchOfAKnownCondition) {
  const Maker maker = branches(is_long);
  for (const Index n : {1, 3}) {
    Running running(maker.network, {{n}});
    ASSERT_TRUE(running.status.ok()) << running.status.text;
    running.set(0, floats({1}, {5}));
    running.run();
    EXPECT_EQ(running.output(0).as<float>()[0], n == 1 ? 5 : -5);
  }
}

TEST(NetworkProgram, RefusesABranchThatDependsOnAnInput) {
  const Maker direct = branches([](Maker& made, int) { return made.input("rate", {}, Type::boolean); });
  EXPECT_THAT(Running(direct.network, {{1}, {}}).status.text, HasSubstr("input 'rate'; give that input a fixed value"));
  Network folded = direct.network;
  EXPECT_TRUE(fold(folded).ok());
  EXPECT_EQ(folded.nodes.size(), 1u);
}

TEST(NetworkProgram, FoldsConstantsAndBranches) {
  Network network =
      branches([](Maker& made, int) { return made.constant(tensor<std::uint8_t>(Type::boolean, {}, {0})); }).network;
  ASSERT_TRUE(fold(network).ok());
  ASSERT_EQ(network.nodes.size(), 2u);
  EXPECT_EQ(network.nodes[0].op, "Abs");
  EXPECT_TRUE(network.constants.empty());

  network = chain().network;
  ASSERT_TRUE(fold(network).ok());
  EXPECT_EQ(network.nodes.size(), 5u);      // without Concat
  EXPECT_EQ(network.constants.size(), 3u);  // 2, 1 and the shape
  Running running(network, {{1, 3}});
  running.run();
  EXPECT_THAT(running.output(0).as<float>(), ElementsAre(1, 1, 1));
}

/// A body that adds an input, scaled by a captured value, to a state and shows the sum.
Network adding(bool loops) {
  Maker body;
  if (loops) {
    body.input("round", {}, Type::i64);
    const int goes_on = body.input("condition", {}, Type::boolean);
    body.output(body.node("Identity", {goes_on}));
  }
  const int sum = body.input("sum", {2});
  const int x = loops ? body.constant(floats({2}, {1, 10})) : body.input("x", {2});
  const int scaled = body.node("Mul", {x, body.input("scale", {2})});
  const int next = body.node("Add", {sum, scaled});
  body.output(next);
  body.output(body.node("Neg", {next}));
  return body.network;
}

TEST(NetworkProgram, WritesAScanOut) {
  for (const bool reverse : {false, true}) {
    Maker maker;
    const int first = maker.input("first", {2}), x = maker.input("x", {2, -1}), scale = maker.input("scale", {2});
    const int last = maker.node("Scan", {first, x, scale},
                                {{"states", {1}},
                                 {"num_scan_inputs", {1}},
                                 {"scan_input_axes", {1}},
                                 {"scan_input_directions", {reverse ? 1 : 0}},
                                 {"scan_output_axes", {-1}}},
                                2);
    maker.network.nodes.back().bodies = {adding(false)};
    maker.output(last);
    maker.output(maker.network.nodes.back().writes[1]);
    Running running(maker.network, {{2}, {2, 3}, {2}});
    ASSERT_TRUE(running.status.ok()) << running.status.text;
    running.set(0, floats({2}, {100, 200})), running.set(1, floats({2, 3}, {1, 2, 3, 4, 5, 6}));
    running.set(2, floats({2}, {1, 2}));
    running.run();
    EXPECT_THAT(running.output(0).as<float>(), ElementsAre(106, 230));
    EXPECT_EQ(running.output(1).shape, (Shape{2, 3}));
    const std::vector<float> sums = running.output(1).as<float>();
    EXPECT_THAT(sums, reverse ? ElementsAre(-103, -105, -106, -212, -222, -230)
                              : ElementsAre(-101, -103, -106, -208, -218, -230));
  }
}

TEST(NetworkProgram, WritesALoopOutWhoseRoundsAreKnown) {
  const auto loop = [](const std::function<int(Maker&)>& rounds) {
    Maker maker;
    const int first = maker.input("first", {2}), scale = maker.input("scale", {2});
    const int last =
        maker.node("Loop", {rounds(maker), maker.constant(tensor<std::uint8_t>(Type::boolean, {}, {1})), first, scale},
                   {{"states", {1}}}, 2);
    maker.network.nodes.back().bodies = {adding(true)};
    maker.output(last);
    maker.output(maker.network.nodes.back().writes[1]);
    return maker.network;
  };
  Running running(loop([](Maker& maker) { return maker.constant(tensor<Index>(Type::i64, {}, {3})); }), {{2}, {2}});
  ASSERT_TRUE(running.status.ok()) << running.status.text;
  running.set(1, floats({2}, {1, 2}));
  running.run();
  EXPECT_THAT(running.output(0).as<float>(), ElementsAre(3, 60));
  EXPECT_THAT(running.output(1).as<float>(), ElementsAre(-1, -20, -2, -40, -3, -60));
  const Network dynamic = loop([](Maker& maker) { return maker.input("rounds", {}, Type::i64); });
  EXPECT_THAT(Running(dynamic, {{2}, {2}, {}}).status.text, HasSubstr("input 'rounds'; give that input a fixed value"));
  const Network endless = loop([](Maker&) { return -1; });
  EXPECT_THAT(Running(endless, {{2}, {2}}).status.text, HasSubstr("more than 10000 rounds"));
}

TEST(NetworkProgram, RefusesWhatIsBroken) {
  const auto refusal = [](const std::function<void(Maker&)>& damage) {
    Maker maker = chain();
    damage(maker);
    Network network = maker.network;
    const Status folded = fold(network);
    const Status status = Running(maker.network, {{2, 3}}).status;
    EXPECT_FALSE(status.ok());
    return folded.text + "|" + status.text;
  };
  EXPECT_THAT(refusal([](Maker& m) { m.network.nodes[0].op = "Hop"; }),
              HasSubstr("Hop 'node0': there is no such operator"));
  EXPECT_THAT(refusal([](Maker& m) { m.network.nodes[0].reads[1] = 99; }), HasSubstr("value number 99"));
  EXPECT_THAT(refusal([](Maker& m) { m.network.nodes[0].reads[0] = -7; }), HasSubstr("value number -7"));
  EXPECT_THAT(refusal([](Maker& m) { m.network.nodes[0].reads.pop_back(); }), HasSubstr("it has 1 inputs; expected 2"));
  EXPECT_THAT(refusal([](Maker& m) { m.network.nodes[0].reads[0] = -1; }), HasSubstr("its input 1 is missing"));
  EXPECT_THAT(refusal([](Maker& m) { m.network.nodes[0].writes[0] = 0; }), HasSubstr("has been written before"));
  EXPECT_THAT(refusal([](Maker& m) { std::swap(m.network.nodes[0], m.network.nodes[1]); }),
              HasSubstr("which no node before"));
  EXPECT_THAT(refusal([](Maker& m) { m.network.outputs[0] = 12345; }), HasSubstr("output number 12345"));
  EXPECT_THAT(refusal([](Maker& m) { m.network.inputs[0] = -3; }), HasSubstr("input number 0"));
  EXPECT_THAT(refusal([](Maker& m) { m.network.values[1].constant = 77; }), HasSubstr("constant number 77"));
  EXPECT_THAT(refusal([](Maker& m) { m.network.constants[0].shape = {1, -1}; }), HasSubstr("negative"));
  EXPECT_THAT(refusal([](Maker& m) { m.network.constants[0].shape = {Index{1} << 62, 8}; }), HasSubstr("GiB"));
  EXPECT_THAT(refusal([](Maker& m) { m.network.constants[1].shape = {4}; }), HasSubstr("has 12 bytes, not 16"));
  EXPECT_THAT(refusal([](Maker& m) { m.network.states = {{5, 0}}; }), HasSubstr("a state names"));
  EXPECT_THAT(refusal([](Maker& m) { m.network.states = {{0, 1}}; }), HasSubstr("enters with shape"));
}

TEST(NetworkProgram, BoundsWhatIsComputedFromConstants) {
  Maker maker;
  const int one = maker.constant(floats({1}, {1}));
  int last = maker.node("Expand", {one, maker.constant(std::vector<Index>{1 << 20, 100})});
  for (int i = 0; i < 4; ++i) last = maker.node("Exp", {last});
  maker.output(last);
  EXPECT_THAT(Running(maker.network, {}).status.text, HasSubstr("more than 1 GiB"));
  EXPECT_THAT(fold(maker.network).text, HasSubstr("more than 1 GiB"));
}

}  // namespace
}  // namespace penstock::network
