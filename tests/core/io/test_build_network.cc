// ONNX files become networks: nodes in order, operators in their newest form, bodies closed.
// tests/python/test_networks.py compares what they compute with onnxruntime.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>

#include "io/onnx/read/graph_to_network.h"
#include "network/check_file.h"
#include "support/expect_error.h"
#include "support/onnx_model.h"
#include "support/temporary_folder.h"

namespace penstock::io::onnx {
namespace {

using namespace penstock::test::onnx;  // NOLINT(google-build-using-namespace): the file's own vocabulary
using test::onnx::Graph;
using testing::ElementsAre;

BuiltNetwork read(const std::string& content, const FixedInputs& fixed = {}, const std::string& folder = "") {
  Source source{"a.onnx", folder, 0};
  BuiltNetwork built = build_network(decode_model(content, source.name), source, fixed);
  const network::Status status = network::check(built.network);
  EXPECT_TRUE(status.ok()) << status.text;
  return built;
}

void refuses(const std::string& content, ErrorCode code, const std::string& why, const FixedInputs& fixed = {}) {
  test::expect_error(code, why, [&] { read(content, fixed); });
}

Names ops(const network::Network& network) {
  Names result;
  for (const network::Node& node : network.nodes) result.push_back(node.op);
  return result;
}

std::vector<Index> integers_of(const network::Network& network, int value) {
  const int number = network.values.at(static_cast<std::size_t>(value)).constant;
  const network::Constant& constant = network.constants.at(static_cast<std::size_t>(number));
  const auto* const data = reinterpret_cast<const Index*>(constant.bytes.data());
  return {data, data + constant.bytes.size() / sizeof(Index)};
}

/// One node from x [2, 3] to y.
std::string one_node(const ProtobufMessage& message, Index version, std::vector<ProtobufMessage> tensors = {}) {
  return model({{value("x", {2, 3})}, {message}, std::move(tensors), {value("y", {2, 3})}}, version);
}

TEST(BuildNetwork, OldAttributesBecomeInputs) {
  const auto built = read(one_node(node("Unsqueeze", {"x"}, {"y"}, {attribute("axes", std::vector<Index>{0, 2})}), 9));
  EXPECT_THAT(ops(built.network), ElementsAre("Unsqueeze"));
  EXPECT_THAT(integers_of(built.network, built.network.nodes[0].reads.at(1)), ElementsAre(0, 2));
  EXPECT_TRUE(built.network.nodes[0].attributes.empty());

  const auto clip = read(one_node(node("Clip", {"x"}, {"y"}, {attribute("max", 6.0F)}), 9)).network;
  ASSERT_EQ(clip.nodes[0].reads.size(), 3U);
  EXPECT_EQ(clip.nodes[0].reads[1], -1);
  EXPECT_GE(clip.nodes[0].reads[2], 0);

  // The attribute stays one where the file's version has it.
  const auto mean = read(one_node(node("ReduceMean", {"x"}, {"y"}, {attribute("keepdims", 0)}), 18)).network;
  EXPECT_THAT(mean.nodes[0].find("keepdims")->integers, ElementsAre(0));
}

TEST(BuildNetwork, OldOperatorsBecomeNewOnes) {
  EXPECT_THAT(ops(read(one_node(node("Dropout", {"x"}, {"y"}), 12)).network), ElementsAre("Identity"));
  EXPECT_THAT(ops(read(one_node(node("Softmax", {"x"}, {"y"}), 11)).network),
              ElementsAre("Shape", "Flatten", "Softmax", "Reshape"));
  EXPECT_THAT(ops(read(one_node(node("Softmax", {"x"}, {"y"}), 13)).network), ElementsAre("Softmax"));
  const auto upsample =
      read(one_node(node("Upsample", {"x", "s"}, {"y"}), 9, {tensor("s", {2}, {2.0F, 2.0F})})).network;
  EXPECT_THAT(ops(upsample), ElementsAre("Resize"));
  EXPECT_EQ(upsample.nodes[0].reads[1], -1);
  EXPECT_EQ(upsample.nodes[0].find("nearest_mode")->text, "floor");
  EXPECT_THAT(ops(read(one_node(node("ConstantOfShape", {"s"}, {"y"}), 9, {integers("s", {1}, {4})})).network),
              ElementsAre("Expand"));
  refuses(one_node(node("BatchNormalization", {"x", "x", "x", "x", "x"}, {"y"}, {attribute("training_mode", 1)}), 15),
          ErrorCode::unsupported, R"(a.onnx: BatchNormalization "the BatchNormalization": it normalises by its batch)");
}

TEST(BuildNetwork, NodesAreSorted) {
  const Graph graph{
      {value("x", {2, 3})}, {node("Tanh", {"a"}, {"y"}), node("Abs", {"x"}, {"a"})}, {}, {value("y", {})}};
  EXPECT_THAT(ops(read(model(graph)).network), ElementsAre("Abs", "Tanh"));
  const Graph cycle{
      {value("x", {2})}, {node("Add", {"x", "b"}, {"a"}), node("Abs", {"a"}, {"b"})}, {}, {value("b", {})}};
  refuses(model(cycle), ErrorCode::bad_input, R"(Add "the Add" depends on its own result)");
}

Graph branch(const std::string& op, const Names& reads) { return {{}, {node(op, reads, {"b"})}, {}, {value("b", {})}}; }

TEST(BuildNetwork, BodiesAreClosed) {
  const Graph graph{{value("x", {2}), value("z", {2}), value("c", {}, kBool)},
                    {node("If", {"c"}, {"y"},
                          {attribute("else_branch", branch("Add", {"z", "w"}).message(), true),
                           attribute("then_branch", branch("Mul", {"x", "z"}).message(), true)})},
                    {tensor("w", {2}, {1.0F, 2.0F})},
                    {value("y", {2})}};
  const network::Network network = read(model(graph)).network;
  const network::Node& node = network.nodes.at(0);
  EXPECT_THAT(node.reads, ElementsAre(network.inputs[2], network.inputs[0], network.inputs[1]));
  ASSERT_EQ(node.bodies.size(), 2U);
  EXPECT_EQ(node.bodies[0].nodes[0].op, "Mul");  // the branch for true, though it is last in the file
  EXPECT_EQ(node.bodies[0].inputs.size(), 2U);
  EXPECT_EQ(node.bodies[1].inputs.size(), 2U);
  EXPECT_EQ(node.bodies[1].constants.size(), 1U);  // captured constants are constants of the body
}

TEST(BuildNetwork, FunctionsAreInlined) {
  ProtobufMessage function;
  function.bytes(1, "twice").bytes(4, "a").bytes(5, "b").bytes(6, "axis").bytes(10, "own");
  ProtobufMessage reference;
  reference.bytes(1, "axis").bytes(21, "axis").integer(20, 2);
  function.message(7, node("Softmax", {"a"}, {"t"}, {reference})).message(7, node("Abs", {"t"}, {"b"}));
  const Graph graph{
      {value("x", {2, 3})}, {node("twice", {"x"}, {"y"}, {attribute("axis", 0)}, "own")}, {}, {value("y", {})}};
  const network::Network network = read(model(graph, 17, {function})).network;
  EXPECT_THAT(ops(network), ElementsAre("Softmax", "Abs"));
  EXPECT_THAT(network.nodes[0].find("axis")->integers, ElementsAre(0));

  ProtobufMessage endless;
  endless.bytes(1, "twice").bytes(4, "a").bytes(5, "b").bytes(10, "own");
  endless.message(7, node("twice", {"a"}, {"b"}, {}, "own"));
  refuses(model(graph, 17, {endless}), ErrorCode::bad_input, "the function calls itself");
}

/// An LSTM of 2 units from x [4, 1, 3].
std::string lstm_model(const std::vector<ProtobufMessage>& attributes, const Names& more = {}) {
  Names reads = {"x", "w", "r"};
  reads.insert(reads.end(), more.begin(), more.end());
  std::vector<ProtobufMessage> all = attributes;
  all.push_back(attribute("hidden_size", 2));
  return model({{value("x", {4, 1, 3})},
                {node("LSTM", reads, {"y", "h", "c"}, all)},
                {tensor("w", {1, 8, 3}, std::vector<float>(24)), tensor("r", {1, 8, 2}, std::vector<float>(16)),
                 tensor("p", {1, 6}, std::vector<float>(6, 1.0F)), integers("lens", {1}, {4})},
                {value("y", {}), value("h", {}), value("c", {})}});
}

TEST(BuildNetwork, LstmsBecomeRecurrentLayers) {
  const network::Network network = read(lstm_model({})).network;
  EXPECT_THAT(ops(network), ElementsAre("Gather", "Gather", "Recurrent", "Reshape", "Transpose"));
  EXPECT_EQ(network.nodes[2].find("cell")->text, "lstm");
  EXPECT_EQ(network.nodes[2].find("direction")->text, "forward");
  EXPECT_EQ(network.nodes[2].writes.size(), 3U);
  // i, o, f, c of the file become i, f, g, o.
  EXPECT_THAT(integers_of(network, network.nodes[0].reads[1]), ElementsAre(0, 1, 4, 5, 6, 7, 2, 3));
}

TEST(BuildNetwork, OtherLstmsBecomeCustomCells) {
  const auto cell_of = [](const std::string& content) { return read(content).network; };
  const network::Network clipped = cell_of(lstm_model({attribute("clip", 3.0F)}));
  EXPECT_THAT(clipped.nodes[2].find("cell")->text, testing::HasSubstr("penstock-cell"));
  const network::Network peepholes = cell_of(lstm_model({}, {"", "", "", "", "p"}));
  EXPECT_THAT(ops(peepholes),
              ElementsAre("Expand", "Gather", "Concat", "Gather", "Gather", "Recurrent", "Reshape", "Transpose"));
  EXPECT_THAT(peepholes.nodes[5].find("cell")->text, testing::HasSubstr("learnt"));
  refuses(lstm_model({attribute("activations", Names{"Sigmoid", "Wave", "Tanh"})}), ErrorCode::unsupported,
          R"(a.onnx: LSTM "the LSTM": its activation is "Wave", expected one of affine)");
  refuses(lstm_model({attribute("activations", Names{"Sigmoid"})}), ErrorCode::bad_input,
          "it has 1 activations, expected 3");
  refuses(lstm_model({attribute("direction", "sideways")}), ErrorCode::bad_input,
          R"(direction is "sideways", expected)");
  EXPECT_EQ(cell_of(lstm_model({}, {"", "lens"})).nodes[2].reads.size(), 8U);
  refuses(lstm_model({attribute("novelty", 1)}), ErrorCode::unsupported, R"(it has the attribute "novelty")");
}

TEST(BuildNetwork, InputsCanBeFixed) {
  const Graph graph{
      {value("x", {2}), value("sr", {}, kInt64)}, {node("Mul", {"x", "sr"}, {"y"})}, {}, {value("y", {2})}};
  const network::Network network = read(model(graph), {{"sr", {16000}}}).network;
  EXPECT_EQ(network.inputs.size(), 1U);
  EXPECT_THAT(integers_of(network, network.nodes[0].reads[1]), ElementsAre(16000));
  refuses(model(graph), ErrorCode::invalid_argument, R"(fixed: a.onnx has no input "rate", but x, sr)",
          {{"rate", {1}}});
  refuses(model(graph), ErrorCode::invalid_argument, R"(fixed: input "sr" needs integers from)", {{"sr", {0.5}}});
  refuses(model(graph), ErrorCode::invalid_argument,
          R"(fixed: input "x" has the shape [2], so it needs 1 or 2 numbers)", {{"x", {1, 2, 3}}});
}

TEST(BuildNetwork, RefusesInWords) {
  refuses("", ErrorCode::bad_input, "a.onnx: this is not an ONNX model: it has no graph");
  refuses("not a model", ErrorCode::bad_input, "a.onnx: damaged at byte");
  const Graph plain{{value("x", {2})}, {node("Abs", {"x"}, {"y"})}, {}, {value("y", {2})}};
  refuses(model(plain, 6), ErrorCode::unsupported, "its operators are of version 6, expected 7 to 24");
  refuses(one_node(node("Abs", {"z"}, {"y"}), 17), ErrorCode::bad_input, R"(Abs "the Abs" reads "z", which nothing)");
  refuses(one_node(node("Abs", {"x"}, {"y", "y"}), 17), ErrorCode::bad_input, R"(the value "y" is written twice)");
  refuses(one_node(node("Abs", {"x"}, {}), 17), ErrorCode::bad_input, "it writes nothing");
  refuses(one_node(node("Fancy", {"x"}, {"y"}, {}, "com.example"), 17), ErrorCode::unsupported,
          R"(a.onnx: Fancy "the Fancy": its operator is of the domain "com.example")");
  refuses(one_node(node("If", {"x"}, {"y"}), 17), ErrorCode::bad_input,
          "it has graphs that its operator does not have, or lacks");
  refuses(one_node(node("Abs", {"w"}, {"y"}), 17, {tensor("w", {3}, {1.0F})}), ErrorCode::bad_input,
          R"(a.onnx: tensor "w" has 1 values, expected 3 for its shape [3])");
  refuses(one_node(node("Abs", {"w"}, {"y"}), 17, {tensor("w", {1 << 20, 1 << 20}, {1.0F})}), ErrorCode::bad_input,
          R"(tensor "w" has the shape [1048576, 1048576], of more than)");
  refuses(one_node(node("Abs", {"w"}, {"y"}), 17, {integers("w", {1}, {1}, 8)}), ErrorCode::unsupported,
          R"(tensor "w" has the type string, expected float)");
}

ProtobufMessage outside(const std::string& location, Index offset = 0) {
  const auto entry = [](const std::string& key, const std::string& text) {
    return ProtobufMessage().bytes(1, key).bytes(2, text);
  };
  ProtobufMessage message;
  message.integer(1, 2).integer(2, kFloat).bytes(8, "w").integer(14, 1);
  return message.message(13, entry("location", location)).message(13, entry("offset", std::to_string(offset)));
}

TEST(BuildNetwork, ExternalDataLiesBesideTheModel) {
  const test::TemporaryFolder folder;
  const auto content = [](const ProtobufMessage& stored) { return one_node(node("Abs", {"w"}, {"y"}), 17, {stored}); };
  const float values[] = {0, 3, 4};
  std::ofstream(folder.path("w.bin"), std::ios::binary).write(reinterpret_cast<const char*>(values), sizeof(values));
  const network::Network network = read(content(outside("w.bin", 4)), {}, folder.folder()).network;
  EXPECT_EQ(reinterpret_cast<const float*>(network.constants.at(0).bytes.data())[1], 4);
  const auto refuses_place = [&](const ProtobufMessage& stored, const std::string& why) {
    test::expect_error(ErrorCode::bad_input, why, [&] { read(content(stored), {}, folder.folder()); });
  };
  refuses_place(outside("w.bin", 8), R"(takes 8 bytes, and the model says 8 at 8 of the 12 of "w.bin")");
  refuses_place(outside("../w.bin"), R"(lies in "../w.bin", expected the name of a file in the model's folder)");
  refuses_place(outside("/etc/passwd"), "expected the name of a file in the model's folder");
  refuses_place(outside("none.bin"), "there is no such file in the model's folder");
  std::filesystem::create_symlink("w.bin", folder.path("link.bin"));
  refuses_place(outside("link.bin"), "which is behind a link");
  refuses(content(outside("w.bin")), ErrorCode::unsupported, "a model in memory cannot have such");
}

}  // namespace
}  // namespace penstock::io::onnx
