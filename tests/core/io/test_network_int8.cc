#include "io/network_int8.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>
#include <string>
#include <vector>

#include "network/tensor.h"
#include "penstock/quantize.h"
#include "support/expect_error.h"
#include "support/onnx_model.h"

namespace penstock::io {
namespace {

using network::Network;
using network::Node;
using network::Shape;
using testing::ElementsAre;
using testing::IsEmpty;

const float kWeights[16] = {1, 2, 3, 4};
const std::vector<std::string> kNode = {"node"};

/// y = If(true, x, op(x, w)): the branch with the node is never taken, so nothing prepares it.
Network in_idle_branch(const std::string& op, const Shape& shape, std::span<const float> weights) {
  Network taken;
  taken.values = {{.name = "a"}};
  taken.inputs = taken.outputs = {0};
  Network idle;
  idle.values = {{.name = "a"}, {.name = "w", .shape = shape, .constant = 0}, {.name = "b"}};
  idle.constants = {{network::Type::f32, shape, std::as_bytes(weights)}};
  idle.nodes = {{.op = op, .name = "node", .reads = {0, 1}, .writes = {2}}};
  idle.inputs = {0};
  idle.outputs = {2};
  static const bool yes = true;
  Network network;
  network.values = {
      {.name = "x", .shape = {2, 2}}, {.name = "c", .type = network::Type::boolean, .constant = 0}, {.name = "y"}};
  network.constants = {{network::Type::boolean, {}, std::as_bytes(std::span(&yes, 1))}};
  network.nodes = {{.op = "If", .name = "choice", .reads = {1, 0}, .writes = {2}, .bodies = {taken, idle}}};
  network.inputs = {0};
  network.outputs = {2};
  return network;
}

TEST(NetworkInt8, RoundsMatricesOfTheFormsThatOperatorsTakeAlone) {
  const auto layers_of = [](const std::string& op, const Shape& shape) {
    const auto count = static_cast<std::size_t>(network::elements(shape));
    return int8_layers(in_idle_branch(op, shape, std::span(kWeights).first(count)));
  };
  for (const char* const op : {"Recurrent", "Conv", "MatMul", "Gemm"}) {
    EXPECT_THAT(layers_of(op, {}), IsEmpty()) << op;
    EXPECT_THAT(layers_of(op, {4}), IsEmpty()) << op;
  }
  EXPECT_THAT(layers_of("Recurrent", {2, 2}), IsEmpty());
  EXPECT_THAT(layers_of("Recurrent", {1, 1, 2, 2}), IsEmpty());
  EXPECT_THAT(layers_of("Conv", {2, 2}), IsEmpty());
  EXPECT_THAT(layers_of("MatMul", {1, 2, 2}), IsEmpty());
  EXPECT_THAT(layers_of("Gemm", {1, 2, 2}), IsEmpty());
  const auto rounded = [](const std::string& op, const Shape& shape) {
    const auto count = static_cast<std::size_t>(network::elements(shape));
    const Network made = with_int8(in_idle_branch(op, shape, std::span(kWeights).first(count)), kNode);
    return made.nodes[0].bodies[1].nodes.size();
  };
  EXPECT_EQ(rounded("Recurrent", {1, 2, 2}), 3U);  // DequantizeLinear and Reshape
  EXPECT_EQ(rounded("Conv", {2, 1, 2}), 2U);
  EXPECT_EQ(rounded("MatMul", {2, 2}), 2U);
  EXPECT_EQ(rounded("Gemm", {2, 2}), 2U);
}

/// What becomes of a node of this shape whose inputs may be rounded.
std::string rounded_op(const std::string& op, const Shape& shape, std::vector<network::Attribute> attributes = {},
                       const Shape& bias = {}) {
  static const std::vector<float> weights(1 << 16, 0.5f);
  const auto first = [](const Shape& of) {
    return std::span(weights).first(static_cast<std::size_t>(network::elements(of)));
  };
  Network network = in_idle_branch(op, shape, first(shape));
  Network& body = network.nodes[0].bodies[1];
  body.nodes[0].attributes = std::move(attributes);
  if (!bias.empty()) {
    body.values.push_back({.name = "bias", .shape = bias, .constant = 1});
    body.constants.push_back({network::Type::f32, bias, std::as_bytes(first(bias))});
    body.nodes[0].reads.push_back(3);
  }
  return with_int8(network, kNode, true).nodes[0].bodies[1].nodes.back().op;
}

TEST(NetworkInt8, RoundsInputsOfLargeConvolutionsAndProducts) {
  EXPECT_EQ(rounded_op("Conv", {64, 64, 3}), "RoundedConv");
  EXPECT_EQ(rounded_op("Conv", {64, 64, 3}, {{"group", {1}}}, {64}), "RoundedConv");
  EXPECT_EQ(rounded_op("MatMul", {100, 80}), "RoundedMatMul");
  EXPECT_EQ(rounded_op("Gemm", {100, 80}, {{"alpha", {}, {1.0f}}}, {80}), "RoundedMatMul");
  EXPECT_EQ(rounded_op("Gemm", {100, 80}, {{"transB", {1}}}, {100}), "RoundedMatMul");
  EXPECT_EQ(rounded_op("Gemm", {100, 80}, {}, {100}), "Gemm");  // a bias that no output has
  EXPECT_EQ(rounded_op("Gemm", {100, 80}, {{"transA", {1}}}), "Gemm");
  EXPECT_EQ(rounded_op("Gemm", {100, 80}, {{"alpha", {}, {0.5f}}}), "Gemm");
  EXPECT_EQ(rounded_op("Conv", {64, 64, 1}), "Conv");  // small
  EXPECT_EQ(rounded_op("Conv", {64, 64, 3}, {{"group", {2}}}), "Conv");
  EXPECT_EQ(rounded_op("Recurrent", {1, 64, 64}), "Recurrent");
}

TEST(NetworkInt8, LeavesMatricesThatAreNotFinite) {
  for (const float bad : {std::numeric_limits<float>::infinity(), std::numeric_limits<float>::quiet_NaN()}) {
    const float weights[] = {1, 2, bad, 4};
    EXPECT_THAT(int8_layers(in_idle_branch("MatMul", {2, 2}, weights)), IsEmpty());
  }
}

TEST(NetworkInt8, NamesEachNodeDifferently) {
  Network network = in_idle_branch("MatMul", {2, 2}, std::span(kWeights).first(4));
  std::vector<Node>& nodes = network.nodes[0].bodies[1].nodes;
  nodes[0].name = "";
  network.nodes[0].bodies[1].values.push_back({.name = "d"});
  nodes.push_back({.op = "MatMul", .name = "MatMul 2", .reads = {2, 1}, .writes = {3}});
  network.nodes[0].bodies[1].outputs = {3};
  EXPECT_THAT(int8_layers(network), ElementsAre("MatMul 2'", "MatMul 2"));
  const Network made = with_int8(network, std::vector<std::string>{"MatMul 2"});
  const std::vector<Node>& found = made.nodes[0].bodies[1].nodes;
  ASSERT_EQ(found.size(), 3U);
  EXPECT_EQ(found[1].op, "DequantizeLinear");  // in front of the second
}

TEST(NetworkInt8, NeedsAFiniteLossOfTheNetworkItself) {
  using namespace test::onnx;  // NOLINT(google-build-using-namespace): the file's own vocabulary
  const std::string file = model({{value("x", {1, 2})},
                                  {node("MatMul", {"x", "w"}, {"y"})},
                                  {tensor("w", {2, 2}, {1, 2, 3, 4})},
                                  {value("y", {1, 2})}});
  const auto network = penstock::Network::import_onnx(std::as_bytes(std::span(file)));
  test::expect_error(ErrorCode::numerical, "the loss of the unchanged network is nan", [&] {
    quantize(network, [](const penstock::Network&) { return std::numeric_limits<double>::quiet_NaN(); });
  });
}

}  // namespace
}  // namespace penstock::io
