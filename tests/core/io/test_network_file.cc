#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "io/network_file.h"
#include "support/expect_error.h"
#include "support/temporary_folder.h"

namespace penstock::io {
namespace {

using network::Network;

const float kWeights[] = {1, 2, 3, 4};

/// y = If(c, x w, x) with a state x = y, in the ways that a file can say something.
Network small_network() {
  Network yes;
  yes.values = {{.name = "a"}, {.name = "w", .shape = {2, 2}, .constant = 0}, {.name = "b"}};
  yes.constants = {{network::Type::f32, {2, 2}, std::as_bytes(std::span(kWeights))}};
  yes.nodes = {{.op = "MatMul", .name = "product", .reads = {0, 1}, .writes = {2}}};
  yes.inputs = {0};
  yes.outputs = {2};
  Network no;
  no.values = {{.name = "a"}};
  no.inputs = no.outputs = {0};
  Network network;
  network.values = {{.name = "x", .shape = {-1, 2}, .axes = {"batch", ""}},
                    {.name = "c", .type = network::Type::boolean},
                    {.name = "w", .shape = {4}, .constant = 0},
                    {.name = "y"},
                    {.name = "z"}};
  network.constants = {{network::Type::f32, {4}, std::as_bytes(std::span(kWeights))}};
  network.nodes = {
      {.op = "If", .name = "choice", .reads = {1, 0}, .writes = {3}, .bodies = {yes, no}},
      {.op = "Clip",
       .name = "bound",
       .reads = {2, -1},
       .writes = {4},
       .attributes = {
           {.name = "n", .integers = {-1, 1}}, {.name = "r", .numbers = {0.1F}}, {.name = "t", .text = "floor"}}}};
  network.inputs = {0, 1};
  network.outputs = {3, 4};
  network.states = {{0, 0}};
  network.sample_rate = 44100.5;
  return network;
}

TEST(NetworkFile, SurvivesWithAllParts) {
  const test::TemporaryFolder folder;
  const std::string path = folder.path("a.safetensors");
  write_network(path, small_network());
  const Network again = read_network(SafetensorsFile::open(path));
  ASSERT_EQ(again.nodes.size(), 2U);
  EXPECT_EQ(again.sample_rate, 44100.5);
  EXPECT_EQ(again.values[0].shape, (network::Shape{-1, 2}));
  EXPECT_EQ(again.values[0].axes, (std::vector<std::string>{"batch", ""}));
  EXPECT_EQ(again.values[1].type, network::Type::boolean);
  EXPECT_EQ(again.nodes[0].bodies[0].nodes[0].op, "MatMul");
  EXPECT_EQ(again.nodes[0].bodies[0].constants[0].shape, (network::Shape{2, 2}));
  EXPECT_EQ(again.nodes[1].find("r")->numbers, std::vector<float>{0.1F});
  EXPECT_EQ(again.nodes[1].find("t")->text, "floor");
  EXPECT_EQ(reinterpret_cast<const float*>(again.constants[0].bytes.data())[3], 4);
  EXPECT_EQ(again.states[0].output, 0);
  // Equal networks give equal files.
  write_network(folder.path("b.safetensors"), again);
  EXPECT_EQ(folder.read("a.safetensors"), folder.read("b.safetensors"));
}

/// A network in so many others, as JSON.
std::string nested(int depth) {
  const std::string lists = "{\"values\":[],\"constants\":[],\"inputs\":[],\"outputs\":[],\"states\":[],\"nodes\":[";
  std::string all = lists + "]}";
  for (int i = 0; i < depth; ++i) {
    all = lists + R"({"op":"Loop","name":"","reads":[],"writes":[],"bodies":[)" + all + "]}]}";
  }
  return all;
}

/// Writes the network with a change of its JSON, and expects that reading it says why not.
void refuses(const std::string& from, const std::string& to, const std::string& why,
             ErrorCode code = ErrorCode::bad_input) {
  const test::TemporaryFolder folder;
  write_network(folder.path("a.safetensors"), small_network());
  const SafetensorsFile file = SafetensorsFile::open(folder.path("a.safetensors"));
  std::string json = file.metadata().at(network_key);
  const std::size_t at = json.find(from);
  ASSERT_NE(at, json.npos) << json;
  json.replace(at, from.size(), to);
  std::vector<TensorData> tensors;
  for (const TensorInfo& each : file.tensors())
    tensors.push_back({each.name, each.dtype, each.shape, file.bytes(each)});
  write_safetensors(folder.path("b.safetensors"), tensors, {{network_key, json}});
  test::expect_error(code, why, [&] { read_network(SafetensorsFile::open(folder.path("b.safetensors"))); });
}

TEST(NetworkFile, RefusesContradictions) {
  refuses("\"format\":1", "\"format\":2",
          "it has the format 2 of networks, and this version reads 1: use a newer penstock", ErrorCode::incompatible);
  refuses("\"reads\":[0,1]", "\"reads\":[0,2]", "MatMul 'product' reads a value that is not there yet");
  refuses("\"reads\":[1,0]", "\"reads\":[1,0,0]", "has a body of 1 inputs and 1 outputs, expected 2 and 1");
  refuses("\"reads\":[2,-1]", "\"reads\":[2,-2]",
          "nodes[1] in its network: the number of a value or a tensor expected at byte");
  refuses("\"writes\":[4]", "\"writes\":[0]", "writes 'x', which is there already");
  refuses("\"writes\":[4]", "\"writes\":[99]", "Clip 'bound' writes a value that there is not");
  refuses("\"outputs\":[3,4]", "\"outputs\":[3,9]", "an output is a value that nothing writes");
  refuses("\"states\":[[0,0]]", "\"states\":[[0,2]]", "a state names an input or an output that there is not");
  refuses("\"states\":[[0,0]]", "\"states\":[[0]]", "pairs of numbers expected at byte");
  refuses("\"constants\":[[2,", "\"constants\":[[7,", "name the value 7, which is another constant or not there");
  refuses("\"constants\":[[2,0]]", "\"constants\":[[2,8]]", "needs the tensor constant.8, which is missing");
  refuses("\"sample_rate\":44100.5", "\"sample_rate\":-1", "a sample rate in Hz expected at byte");
  refuses("\"type\":\"bool\"", "\"type\":\"f16\"", "the type f32, f64, i8, u8, i32, i64 or bool expected at byte");
  refuses("\"op\":\"Clip\"", "\"op\":\"If\"", "If 'bound' has 0 bodies, expected 2");
  refuses("\"text\":\"floor\"", "\"novel\":\"floor\"",
          "nodes[1].attributes[2] in its network: name, and text, integers or numbers, each once, expected at byte");
}

TEST(NetworkFile, RefusesWhatIsMissingOrTwice) {
  const std::string whole = "format and network, each once, expected at byte";
  refuses("\"format\":1,", "", whole);
  refuses("\"format\":1,", "\"format\":1,\"format\":1,", whole);
  const std::string node = "op, name, reads and writes, and attributes or bodies, each once, expected at byte";
  refuses("\"op\":\"Clip\",", "", node);
  refuses("\"op\":\"Clip\"", "\"op\":\"\"", "an operator expected at byte");
  refuses(",\"reads\":[2,-1]", "", node);
  refuses("\"reads\":[2,-1]", "\"reads\":[],\"reads\":[2,-1]", node);
  const std::string network = "values, constants, inputs, outputs, states and nodes, each once, expected at byte";
  refuses("\"states\":[[0,0]],", "", network);
  refuses("\"axes\":[],", "", "value, type, shape and axes, each once, expected at byte");
  refuses("\"name\":\"r\",", "", "name, and text, integers or numbers, each once, expected at byte");
  refuses("0.1", "1e300,0.1", "a float of 32 bits expected at byte");
  refuses("0.1", "-1e39,0.1", "a float of 32 bits expected at byte");
  refuses("\"bodies\":[", "\"bodies\":[" + nested(33) + ",", "at most 32 nested networks expected at byte");
  for (const char* const json : {"{}", "[]", "{\"format\":1}", "{\"network\":{}}", "{\"format\":1,\"network\":{}}"}) {
    const test::TemporaryFolder folder;
    write_safetensors(folder.path("a.safetensors"), {}, {{network_key, json}});
    test::expect_error(ErrorCode::bad_input, "expected at byte",
                       [&] { read_network(SafetensorsFile::open(folder.path("a.safetensors"))); });
  }
}

TEST(NetworkFile, RefusesOtherFiles) {
  const test::TemporaryFolder folder;
  write_safetensors(folder.path("a.safetensors"), {}, {});
  test::expect_error(ErrorCode::incompatible, "holds no network",
                     [&] { read_network(SafetensorsFile::open(folder.path("a.safetensors"))); });
}

}  // namespace
}  // namespace penstock::io
