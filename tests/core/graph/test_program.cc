// Programs: what is planned changes no result, nothing is read before it is written, and who may share what.

#include "graph/program.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <numeric>
#include <thread>

#include "base/random.h"
#include "support/expect_error.h"
#include "support/tolerance.h"

namespace penstock::graph {
namespace {

using test::expect_error;
using test::same_bits;

/// Writes of place i are sums of place i of all reads, each sum with other factors: the values may lie anywhere, also
/// over one another.
ops::Op mix(std::size_t reads, std::size_t writes, Index count) {
  return {"mix", [=](const ops::Target&) {
            return ops::simple(
                [=](const ops::Call&, const ops::Operands& memory) {
                  auto* const scratch = static_cast<float*>(memory.scratch);
                  for (Index i = 0; i < count; ++i) {
                    for (std::size_t w = 0; w < writes; ++w) {
                      scratch[w] = 0.01f;
                      for (std::size_t r = 0; r < reads; ++r) {
                        const float factor = 1.0f / static_cast<float>(2 + (5 * w + 3 * r) % 7);
                        scratch[w] += factor * memory.get<const float>(static_cast<int>(r))[i];
                      }
                    }
                    for (std::size_t w = 0; w < writes; ++w)
                      memory.get<float>(static_cast<int>(reads + w))[i] = scratch[w];
                  }
                },
                writes * sizeof(float));
          }};
}

ops::Op copy(Index count) { return mix(1, 1, count); }

Value workspace_value(std::string name, Index width) { return {.name = std::move(name), .width = width}; }

std::shared_ptr<const Program> program_of(Graph graph, const ops::Target& target = {}) {
  return std::make_shared<Program>(std::move(graph), target);
}

std::shared_ptr<ops::Queue> host() { return std::make_shared<ops::Queue>(Device::cpu()); }

/// Returns the graph without permissions to overwrite a value in place.
Graph without_in_place(const Graph& graph) {
  Graph result;
  for (const Value& value : graph.values()) result.add(value);
  for (Node node : graph.nodes()) {
    node.in_place.clear();
    result.add(std::move(node));
  }
  return result;
}

/// Nodes that each read some of all values so far, and may write over any of those, in two phases; the last value of
/// all goes out.
Graph random_graph(Random& random, Index width) {
  Graph graph;
  std::vector<ValueId> made = {graph.add({.name = "in", .width = width, .home = Home::features})};
  const Index nodes = 5 + random.below(20);
  for (Index n = 0; n < nodes; ++n) {
    Node node;
    const auto reads = static_cast<std::size_t>(1 + random.below(3)),
               writes = static_cast<std::size_t>(1 + random.below(2));
    // Late values are read more often, so that many reads are the last ones.
    const auto some = [&] {
      const auto back =
          std::min<Index>(static_cast<Index>(made.size()), 1 + random.below(random.below(3) == 0 ? 30 : 3));
      return made[made.size() - static_cast<std::size_t>(back)];
    };
    for (std::size_t r = 0; r < reads; ++r) node.reads.push_back(some());
    for (std::size_t w = 0; w < writes; ++w) {
      node.writes.push_back(graph.add(workspace_value("v" + std::to_string(n) + "." + std::to_string(w), width)));
      for (std::size_t r = 0; r < reads; ++r) {
        if (random.below(3) > 0) node.in_place.emplace_back(static_cast<int>(reads + w), static_cast<int>(r));
      }
    }
    made.insert(made.end(), node.writes.begin(), node.writes.end());
    node.op = mix(reads, writes, width);
    node.phase = n < nodes / 2 ? Phase::forward : Phase::backward;
    graph.add(std::move(node));
  }
  const ValueId out = graph.add({.name = "out", .width = width, .home = Home::outputs});
  std::vector<ValueId> last(made.end() - std::min<std::ptrdiff_t>(6, std::ssize(made)), made.end());
  const std::size_t count = last.size();
  graph.add({.op = mix(count, 1, width),
             .reads = std::move(last),
             .writes = {out},
             .phase = Phase::backward,
             .in_place = {}});
  return graph;
}

struct Runner {
  explicit Runner(std::shared_ptr<const Program> program) : workspace(std::move(program), host()) {}

  std::vector<float> operator()(std::vector<float> in, bool poison) {
    std::vector<float> out(in.size(), std::nanf(""));
    if (poison) std::memset(workspace.planned_memory().data(), 0xff, workspace.planned_memory().size());
    workspace.bind(Home::features, in.data());
    workspace.bind(Home::outputs, out.data());
    workspace.run(ops::Call{});
    return out;
  }

  Workspace workspace;
};

TEST(Program, WritingInPlaceChangesNoResultNorDoesWhatLayThereBefore) {
  Random random(1);
  std::size_t saved = 0;
  for (int trial = 0; trial < 200; ++trial) {
    SCOPED_TRACE("trial " + std::to_string(trial));
    const Index width = 1 + random.below(200);
    const Graph graph = random_graph(random, width);
    std::vector<float> in(static_cast<std::size_t>(width));
    for (float& value : in) value = static_cast<float>(random.normal());
    const auto planned = program_of(graph), apart = program_of(without_in_place(graph));
    EXPECT_LE(planned->peak_bytes(), apart->peak_bytes());
    EXPECT_GE(planned->workspace_bytes(), planned->peak_bytes());
    saved += apart->peak_bytes() - planned->peak_bytes();
    Runner run(planned), expected(apart);
    const std::vector<float> want = expected(in, false);
    ASSERT_TRUE(same_bits(run(in, false), want));
    ASSERT_TRUE(same_bits(run(in, true), want));
    ASSERT_TRUE(same_bits(run(in, false), want)) << "a second time";
    for (const float value : want) ASSERT_TRUE(std::isfinite(value));
  }
  EXPECT_GT(saved, 0u) << "nothing was ever written in place";
}

TEST(Program, AChainLiesInOnePlace) {
  constexpr Index width = 1000;
  Graph graph;
  ValueId x = graph.add({.name = "in", .width = width, .home = Home::features});
  std::vector<ValueId> chain;
  for (int n = 0; n < 5; ++n) {
    chain.push_back(graph.add(workspace_value("v" + std::to_string(n), width)));
    graph.add({.op = copy(width), .reads = {x}, .writes = {chain.back()}, .in_place = {{1, 0}}});
    x = chain.back();
  }
  graph.add({.op = copy(width),
             .reads = {x},
             .writes = {graph.add({.name = "out", .width = width, .home = Home::outputs})},
             .in_place = {}});
  const Workspace workspace(program_of(graph), host());
  for (const ValueId id : chain) EXPECT_EQ(workspace.value(id), workspace.value(chain[0]));
  EXPECT_LT(workspace.program().workspace_bytes(), 2 * width * sizeof(float));
}

TEST(Program, WhatIsStillReadIsNotWrittenOver) {
  constexpr Index width = 64;
  Graph graph;
  const ValueId in = graph.add({.name = "in", .width = width, .home = Home::features}),
                x = graph.add(workspace_value("x", width)), y = graph.add(workspace_value("y", width)),
                out = graph.add({.name = "out", .width = width, .home = Home::outputs});
  graph.add({.op = copy(width), .reads = {in}, .writes = {x}, .in_place = {}});
  graph.add({.op = copy(width), .reads = {x}, .writes = {y}, .in_place = {{1, 0}}});
  graph.add({.op = mix(2, 1, width), .reads = {x, y}, .writes = {out}, .phase = Phase::backward, .in_place = {}});
  const Workspace workspace(program_of(graph), host());
  EXPECT_NE(workspace.value(x), workspace.value(y));
}

TEST(Program, TwoWritesDoNotShareThePlaceOfOneRead) {
  constexpr Index width = 64;
  Graph graph;
  const ValueId in = graph.add({.name = "in", .width = width, .home = Home::features}),
                x = graph.add(workspace_value("x", width)), a = graph.add(workspace_value("a", width)),
                b = graph.add(workspace_value("b", width)),
                out = graph.add({.name = "out", .width = width, .home = Home::outputs});
  graph.add({.op = copy(width), .reads = {in}, .writes = {x}, .in_place = {}});
  graph.add({.op = mix(1, 2, width), .reads = {x}, .writes = {a, b}, .in_place = {{1, 0}, {2, 0}}});
  graph.add({.op = mix(2, 1, width), .reads = {a, b}, .writes = {out}, .in_place = {}});
  const Workspace workspace(program_of(graph), host());
  EXPECT_EQ(workspace.value(a), workspace.value(x));
  EXPECT_NE(workspace.value(b), workspace.value(a));
}

TEST(Program, RefusesAGraphThatReadsAValueBeforeItIsWritten) {
  Graph graph;
  const ValueId early = graph.add(workspace_value("early", 4)), late = graph.add(workspace_value("late", 4));
  graph.add({.op = copy(4), .reads = {early}, .writes = {late}, .in_place = {}});
  graph.add({.op = copy(4), .reads = {late}, .writes = {early}, .in_place = {}});
  expect_error(ErrorCode::invalid_argument, "value early of a graph is read by mix before anything writes it",
               [&] { Program(graph, {}); });
}

TEST(Program, RefusesAGraphThatNeverWritesWhatOnlyItsOpKnowsTheSizeOf) {
  Graph graph;
  Value tape = workspace_value("tape", -1);
  const ValueId read = graph.add(tape), y = graph.add(workspace_value("y", 4));
  graph.add({.op = copy(4), .reads = {read}, .writes = {y}, .in_place = {}});
  expect_error(ErrorCode::invalid_argument, "value tape of a graph is written by no op", [&] { Program(graph, {}); });
}

TEST(Program, RefusesASizeThatTheOpDoesNotKnowEither) {
  Graph graph;
  const ValueId in = graph.add({.name = "in", .width = 4, .home = Home::features}),
                y = graph.add(workspace_value("y", -1));
  graph.add({.op = copy(4), .reads = {in}, .writes = {y}, .in_place = {}});
  expect_error(ErrorCode::invalid_argument, "output 0 of this op has a size of its own", [&] { Program(graph, {}); });
}

TEST(Program, SaysWhatItRuns) {
  Graph graph;
  const ValueId in = graph.add({.name = "in", .width = 4, .home = Home::features}),
                y = graph.add(workspace_value("hidden", 4));
  graph.add({.op = copy(4), .reads = {in}, .writes = {y, ValueId{}}, .in_place = {}});
  EXPECT_EQ(Program(graph, {.rows = 3, .steps = 2}).describe(), "mix  hidden (96 bytes at 0)\n");
}

TEST(Program, OnePhaseRunsAlone) {
  Graph graph;
  const ValueId in = graph.add({.name = "in", .width = 1, .home = Home::features}),
                out = graph.add({.name = "out", .width = 1, .home = Home::outputs}),
                gradient =
                    graph.add({.name = "gradient", .extent = Extent::fixed, .width = 1, .home = Home::gradients});
  graph.add({.op = copy(1), .reads = {in}, .writes = {out}, .in_place = {}});
  graph.add({.op = copy(1), .reads = {out}, .writes = {gradient}, .phase = Phase::backward, .in_place = {}});
  Workspace workspace(program_of(graph), host());
  float x = 1.0f, y = -7.0f, d = -7.0f;
  workspace.bind(Home::features, &x);
  workspace.bind(Home::outputs, &y);
  workspace.bind(Home::gradients, &d);
  workspace.run(Phase::forward, {});
  EXPECT_EQ(y, 0.01f + 0.5f);
  EXPECT_EQ(d, -7.0f);
  workspace.run(Phase::backward, {});
  EXPECT_EQ(d, 0.01f + 0.5f * y);
}

TEST(Workspace, MemoryMayMoveFromRunToRun) {
  Graph graph;
  const ValueId in = graph.add({.name = "in", .width = 1, .home = Home::features}),
                out = graph.add({.name = "out", .width = 1, .home = Home::outputs});
  graph.add({.op = copy(1), .reads = {in}, .writes = {out}, .in_place = {}});
  Runner run(program_of(graph));
  const std::vector<float> a = run({2.0f}, false), b = run({4.0f}, false);
  EXPECT_EQ(a[0], 0.01f + 1.0f);
  EXPECT_EQ(b[0], 0.01f + 2.0f);
}

/// Values that keep count of their layers: [B, width], layer after layer.
TEST(Workspace, ValuesOfAHomeLieOneBehindTheOtherForAllRows) {
  Graph graph;
  constexpr Index rows = 3;
  const ValueId first = graph.add({.name = "a", .extent = Extent::rows, .width = 2, .home = Home::state_in}),
                second =
                    graph.add({.name = "b", .extent = Extent::rows, .width = 5, .home = Home::state_in, .offset = 2}),
                weight =
                    graph.add({.name = "w", .extent = Extent::fixed, .width = 1, .home = Home::gradients, .offset = 7});
  Workspace workspace(program_of(graph, {.rows = rows}), host());
  std::vector<float> states(rows * 7), gradients(8);
  workspace.bind(Home::state_in, states.data());
  workspace.bind(Home::gradients, gradients.data());
  EXPECT_EQ(workspace.value(first), states.data());
  EXPECT_EQ(workspace.value(second), states.data() + rows * 2);
  EXPECT_EQ(workspace.value(weight), gradients.data() + 7);
  EXPECT_EQ(workspace.value({}), nullptr);
  workspace.bind(Home::gradients, nullptr);
  EXPECT_EQ(workspace.value(weight), nullptr);
}

TEST(Workspace, TwoThreadsRunOneProgram) {
  Random random(9);
  const Index width = 5000;
  const auto program = program_of(random_graph(random, width));
  std::vector<std::vector<float>> in(2, std::vector<float>(static_cast<std::size_t>(width))), want(2), got(2);
  for (auto& values : in) {
    for (float& value : values) value = static_cast<float>(random.normal());
  }
  for (std::size_t i = 0; i < 2; ++i) want[i] = Runner(program)(in[i], false);
  std::vector<std::thread> threads;
  for (std::size_t i = 0; i < 2; ++i) {
    threads.emplace_back([&, i] {
      Runner run(program);
      for (int times = 0; times < 20; ++times) got[i] = run(in[i], true);
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (std::size_t i = 0; i < 2; ++i) EXPECT_TRUE(same_bits(got[i], want[i])) << i;
}

/// y = x + twice the weight, which is made ready once for all who read it.
struct Derivation {
  explicit Derivation(Index bytes = 4, Weights::Renewal renewal = Weights::Renewal::beside)
      : weights(std::make_shared<Weights>(host(), sizeof(float), renewal)) {
    Graph graph;
    const ValueId weight = graph.add({.name = "weight", .extent = Extent::fixed, .width = 1, .home = Home::values}),
                  twice = graph.add({.name = "twice",
                                     .extent = Extent::fixed,
                                     .width = bytes / 4,
                                     .home = Home::derived,
                                     .key = "twice"}),
                  in = graph.add({.name = "in", .width = 1, .home = Home::features}),
                  out = graph.add({.name = "out", .width = 1, .home = Home::outputs});
    const ops::Op doubled = {"doubled", [this](const ops::Target&) {
                               return ops::simple([this](const ops::Call&, const ops::Operands& memory) {
                                 ++made;
                                 *memory.get<float>(1) = 2.0f * *memory.get<const float>(0);
                               });
                             }};
    const ops::Op sum = {"sum", [](const ops::Target&) {
                           return ops::simple([](const ops::Call&, const ops::Operands& memory) {
                             *memory.get<float>(2) = *memory.get<const float>(0) + *memory.get<const float>(1);
                           });
                         }};
    graph.add({.op = doubled, .reads = {weight}, .writes = {twice}, .phase = Phase::weights, .in_place = {}});
    graph.add({.op = sum, .reads = {in, twice}, .writes = {out}, .in_place = {}});
    program = program_of(std::move(graph));
  }

  void set_weight(float value) {
    *static_cast<float*>(weights->values().data()) = value;
    weights->changed();
  }

  std::unique_ptr<Workspace> workspace() {
    auto result = std::make_unique<Workspace>(program, host());
    result->bind(weights);
    result->refresh({});
    return result;
  }

  /// Returns the output of a workspace for the input 1.
  static float answer(Workspace& workspace) {
    float x = 1.0f, y = -7.0f;
    workspace.bind(Home::features, &x);
    workspace.bind(Home::outputs, &y);
    workspace.run({});
    return y;
  }

  int made = 0;
  std::shared_ptr<Weights> weights;
  std::shared_ptr<const Program> program;
};

TEST(Weights, AHundredWorkspacesShareWhatIsDerived) {
  Derivation derivation(1000);
  derivation.set_weight(3.0f);
  std::vector<std::unique_ptr<Workspace>> workspaces;
  for (int i = 0; i < 100; ++i) workspaces.push_back(derivation.workspace());
  for (const auto& workspace : workspaces) EXPECT_EQ(Derivation::answer(*workspace), 7.0f);
  EXPECT_EQ(derivation.made, 1);
  EXPECT_EQ(derivation.weights->derived_count(), 1u);
  EXPECT_EQ(derivation.weights->derived_bytes(), 1000u);
}

TEST(Weights, AChangeIsMadeAnewForWhoRefreshesAndNotForWhoDoesNot) {
  Derivation derivation;
  derivation.set_weight(3.0f);
  const auto older = derivation.workspace(), newer = derivation.workspace();
  derivation.set_weight(5.0f);
  newer->refresh({});
  EXPECT_EQ(Derivation::answer(*newer), 11.0f);
  EXPECT_EQ(Derivation::answer(*older), 7.0f) << "it keeps what it was given";
  EXPECT_EQ(derivation.made, 2);
  EXPECT_EQ(derivation.weights->derived_count(), 1u);
  // Once more, while both are held; and now the older one wants it too.
  derivation.set_weight(6.0f);
  newer->refresh({});
  EXPECT_EQ(Derivation::answer(*older), 7.0f);
  older->refresh({});
  EXPECT_EQ(Derivation::answer(*older), 13.0f);
  EXPECT_EQ(Derivation::answer(*newer), 13.0f);
  EXPECT_EQ(derivation.made, 3);
}

TEST(Weights, ATrainerMakesItsOwnAnewInPlace) {
  Derivation derivation;
  const auto workspace = derivation.workspace();
  const ValueId twice{1};
  ASSERT_EQ(derivation.program->graph().value(twice).name, "twice");
  const void* const place = workspace->value(twice);
  for (int step = 1; step <= 3; ++step) {
    derivation.set_weight(static_cast<float>(step));
    workspace->refresh({});
    EXPECT_EQ(Derivation::answer(*workspace), 1.0f + 2.0f * static_cast<float>(step));
    EXPECT_EQ(workspace->value(twice), place);
  }
}

TEST(Weights, OwnersMayHaveAllReadersFollowInPlace) {
  Derivation derivation(4, Weights::Renewal::in_place);
  const auto first = derivation.workspace(), second = derivation.workspace();
  const ValueId twice{1};
  const void* const place = first->value(twice);
  derivation.set_weight(5.0f);
  second->refresh({});
  first->refresh({});
  EXPECT_EQ(derivation.made, 2);
  for (const auto* workspace : {&first, &second}) {
    EXPECT_EQ(Derivation::answer(**workspace), 11.0f);
    EXPECT_EQ((*workspace)->value(twice), place);
  }
}

TEST(Weights, AWorkspaceMayBeBoundToNobody) {
  Derivation derivation;
  derivation.set_weight(3.0f);
  const auto workspace = derivation.workspace();
  EXPECT_EQ(Derivation::answer(*workspace), 7.0f);
  workspace->bind(nullptr);
  float given = 20.0f;
  workspace->bind(ValueId{1}, &given);
  EXPECT_EQ(Derivation::answer(*workspace), 21.0f);
}

TEST(Weights, OneThatIsUnchangedIsNotMadeAnew) {
  Derivation derivation;
  const auto workspace = derivation.workspace();
  for (int i = 0; i < 5; ++i) workspace->refresh({});
  EXPECT_EQ(derivation.made, 1);
}

TEST(Weights, AWorkspaceMayBeBoundToOthers) {
  Derivation derivation, other;
  derivation.set_weight(3.0f);
  other.set_weight(4.0f);
  const auto workspace = derivation.workspace();
  EXPECT_EQ(Derivation::answer(*workspace), 7.0f);
  workspace->bind(other.weights);
  workspace->refresh({});
  EXPECT_EQ(Derivation::answer(*workspace), 9.0f);
}

}  // namespace
}  // namespace penstock::graph
