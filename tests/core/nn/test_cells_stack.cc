// Properties of a stack of layers besides its equations: names, shapes, first weights, dropout, independence.

#include <cmath>

#include "nn/check_cell.h"
#include "penstock/system.h"

namespace penstock::test {
namespace {

struct NamedShape {
  std::string name;
  std::vector<Index> shape;
  bool operator==(const NamedShape&) const = default;
};

std::vector<NamedShape> parameters_of(const RecurrentSpec& spec) {
  Recurrent<float> network(spec);
  std::vector<NamedShape> all;
  for (const auto& parameter : network.parameters()) {
    all.push_back({parameter.name, parameter.shape});
    std::size_t size = 1;
    for (Index extent : parameter.shape) size *= static_cast<std::size_t>(extent);
    EXPECT_EQ(parameter.value.size(), size) << parameter.name;
    EXPECT_EQ(parameter.gradient.size(), size) << parameter.name;
  }
  return all;
}

TEST(Stack, ParametersAreNamedAndShapedAsInPyTorch) {
  const RecurrentSpec spec{
      .cell = "lstm", .input_size = 5, .hidden_size = 3, .layers = 2, .direction = Direction::bidirectional};
  const std::vector<NamedShape> want = {
      {"weight_ih_l0", {12, 5}},
      {"weight_hh_l0", {12, 3}},
      {"bias_ih_l0", {12}},
      {"bias_hh_l0", {12}},
      {"weight_ih_l0_reverse", {12, 5}},
      {"weight_hh_l0_reverse", {12, 3}},
      {"bias_ih_l0_reverse", {12}},
      {"bias_hh_l0_reverse", {12}},
      {"weight_ih_l1", {12, 6}},
      {"weight_hh_l1", {12, 3}},
      {"bias_ih_l1", {12}},
      {"bias_hh_l1", {12}},
      {"weight_ih_l1_reverse", {12, 6}},
      {"weight_hh_l1_reverse", {12, 3}},
      {"bias_ih_l1_reverse", {12}},
      {"bias_hh_l1_reverse", {12}},
  };
  EXPECT_EQ(parameters_of(spec), want);
}

TEST(Stack, HeadsMakeTheRecurrentMatrixBlockDiagonal) {
  const RecurrentSpec spec{.cell = "gru", .input_size = 5, .hidden_size = 8, .heads = 2, .bias = Bias::single};
  const std::vector<NamedShape> want = {{"weight_ih_l0", {24, 5}}, {"weight_hh_l0", {2, 12, 4}}, {"bias_ih_l0", {24}}};
  EXPECT_EQ(parameters_of(spec), want);
}

TEST(Stack, ScanCellsHaveNoRecurrentParameters) {
  const RecurrentSpec spec{.cell = "mingru", .input_size = 5, .hidden_size = 8};
  const std::vector<NamedShape> want = {{"weight_ih_l0", {16, 5}}, {"bias_ih_l0", {16}}};
  EXPECT_EQ(parameters_of(spec), want);
}

TEST(Stack, StateSizeCountsStatesLayersDirections) {
  const RecurrentSpec spec{
      .cell = "slstm", .input_size = 1, .hidden_size = 3, .layers = 2, .direction = Direction::bidirectional};
  EXPECT_EQ(Recurrent<float>(spec).state_size(), 4 * 2 * 2 * 3);
}

TEST(Stack, FirstWeightsAreUniformAndFollowTheSeed) {
  const RecurrentSpec spec{.cell = "lstm", .input_size = 64, .hidden_size = 64};
  Recurrent<float> network(spec, 1), twin(spec, 1), other(spec, 2);
  const float bound = 1.0f / 8.0f;
  for (std::size_t p = 0; p < network.parameters().size(); ++p) {
    const auto values = network.parameters()[p].value;
    EXPECT_TRUE(std::ranges::equal(values, twin.parameters()[p].value));
    EXPECT_FALSE(std::ranges::equal(values, other.parameters()[p].value));
    double mean = 0.0, square = 0.0;
    for (float x : values) {
      EXPECT_LE(std::abs(x), bound);
      mean += x;
      square += x * x;
    }
    const double n = static_cast<double>(values.size());
    // Moments of a uniform distribution, within five standard deviations of their estimates.
    EXPECT_NEAR(mean / n, 0.0, 5.0 * bound / std::sqrt(3.0 * n)) << network.parameters()[p].name;
    EXPECT_NEAR(square / n, bound * bound / 3.0, 5.0 * bound * bound * 0.3 / std::sqrt(n));
  }
}

TEST(Stack, AMovedNetworkKeepsItsWeights) {
  const Case c = everything();
  Recurrent<float> network = make_network<float>("gru", c);
  const Inputs<float> in = make_inputs(network, c);
  const Outputs<float> before = run(network, in);
  Recurrent<float> moved = std::move(network);
  expect_same_bits(run(moved, in), before);
}

TEST(Stack, ChangedWeightsTakeEffect) {
  const Case c{.name = "changed"};
  Recurrent<float> network = make_network<float>("lstm", c, 1), other = make_network<float>("lstm", c, 9);
  const Inputs<float> in = make_inputs(network, c);
  const Outputs<float> want = run(other, in);
  run(network, in);  // whatever is prepared from the weights is prepared by now
  for (std::size_t p = 0; p < network.parameters().size(); ++p) {
    std::ranges::copy(other.parameters()[p].value, network.parameters()[p].value.begin());
  }
  network.weights_changed();
  expect_same_bits(run(network, in), want);
}

TEST(Stack, ANetworkFollowsAChangeOfInstructionSet) {
  const std::string in_use = system_info().isa;
  const Case c{.name = "isa", .hidden = 33, .layers = 2};
  Recurrent<float> network = make_network<float>("gru", c);
  const Inputs<float> in = make_inputs(network, c);
  run(network, in);
  for (const std::string& isa : system_info().isas) {
    SCOPED_TRACE(isa);
    select_isa(isa);
    Recurrent<float> fresh = make_network<float>("gru", c);
    expect_same_bits(run(network, in), run(fresh, in));
  }
  select_isa(in_use);
}

/// Two layers that pass positive values through unchanged, so that y shows the mask between them.
Recurrent<float> transparent_network(Index width, double dropout) {
  Recurrent<float> network({.cell = "elman-relu",
                            .input_size = width,
                            .hidden_size = width,
                            .layers = 2,
                            .bias = Bias::none,
                            .dropout = dropout});
  for (auto& parameter : network.parameters()) {
    std::ranges::fill(parameter.value, 0.0f);
    if (!parameter.name.starts_with("weight_ih")) continue;
    for (Index i = 0; i < width; ++i) parameter.value[i * width + i] = 1.0f;
  }
  network.weights_changed();
  return network;
}

TEST(Stack, DropoutZeroesAndScalesBetweenLayersInTrainingOnly) {
  const Index width = 16, rows = 4, steps = 64;
  const double p = 0.25;
  Recurrent<float> network = transparent_network(width, p);
  Inputs<float> in{.rows = rows, .steps = steps};
  Random random(1);
  in.x = draw<float>(random, rows * steps * width, 0.5, 1.0);
  in.dy = draw<float>(random, rows * steps * width, 0.5, 1.0);
  const Outputs<float> out = run(network, in);
  int dropped = 0;
  for (std::size_t i = 0; i < in.x.size(); ++i) {
    const float factor = out.y[i] == 0.0f ? 0.0f : 1.0f / 0.75f;
    dropped += factor == 0.0f;
    ASSERT_FLOAT_EQ(out.y[i], in.x[i] * factor);
    ASSERT_FLOAT_EQ(out.dx[i], in.dy[i] * factor) << "the gradient has another mask";
  }
  const double n = static_cast<double>(in.x.size());
  EXPECT_NEAR(dropped / n, p, 5.0 * std::sqrt(p * (1 - p) / n));

  std::vector<float> y(in.x.size());
  const auto view = [&](auto& values) {
    return SequenceView<std::remove_reference_t<decltype(values[0])>>::batch_first(values.data(), steps, width);
  };
  network.forward(in.batch(), view(std::as_const(in.x)), view(y), nullptr, nullptr);
  EXPECT_EQ(y, in.x) << "inference drops nothing";
}

TEST(Stack, DropoutDoesNotTouchTheOutput) {
  Recurrent<float> network({.cell = "elman-relu", .input_size = 4, .hidden_size = 4, .dropout = 0.5});
  Recurrent<float> plain({.cell = "elman-relu", .input_size = 4, .hidden_size = 4});
  Inputs<float> in{.rows = 2, .steps = 8};
  Random random(1);
  in.x = draw<float>(random, 64);
  in.dy = draw<float>(random, 64);
  expect_same_bits(run(network, in), run(plain, in));
}

}  // namespace
}  // namespace penstock::test
