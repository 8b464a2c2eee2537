// Models as ONNX: messages are written as the format says, and every value of a graph is made before it is read, once.
// tests/python/test_onnx.py compares the results of the graphs with onnxruntime.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "io/protobuf.h"
#include "penstock/onnx.h"
#include "support/expect_error.h"
#include "support/temporary_folder.h"

namespace penstock {
namespace {

using testing::ElementsAre;
using testing::Not;

/// A message that somebody has written, field by field: numbers as they are, texts and messages as bytes.
class Message {
 public:
  explicit Message(std::string_view bytes) {
    while (!bytes.empty()) {
      const std::uint64_t tag = varint(bytes);
      const auto field = static_cast<int>(tag >> 3);
      switch (tag & 7U) {
        case 0:
          numbers_[field].push_back(static_cast<std::int64_t>(varint(bytes)));
          break;
        case 2:
          texts_[field].emplace_back(take(bytes, varint(bytes)));
          break;
        default:
          ADD_FAILURE() << "field " << field << " has wire type " << (tag & 7U);
          return;
      }
    }
  }

  std::vector<std::string> texts(int field) const {
    const auto found = texts_.find(field);
    return found == texts_.end() ? std::vector<std::string>() : found->second;
  }
  std::string text(int field) const { return texts(field).empty() ? "" : texts(field).front(); }
  std::int64_t number(int field) const {
    const auto found = numbers_.find(field);
    return found == numbers_.end() ? -1 : found->second.front();
  }
  std::vector<Message> messages(int field) const {
    std::vector<Message> all;
    for (const std::string& bytes : texts(field)) all.emplace_back(bytes);
    return all;
  }

 private:
  static std::string_view take(std::string_view& bytes, std::uint64_t count) {
    EXPECT_LE(count, bytes.size());
    const std::string_view taken = bytes.substr(0, count);
    bytes.remove_prefix(taken.size());
    return taken;
  }
  static std::uint64_t varint(std::string_view& bytes) {
    std::uint64_t value = 0;
    for (unsigned shift = 0; shift < 64 && !bytes.empty(); shift += 7) {
      const auto byte = static_cast<unsigned char>(take(bytes, 1).front());
      value |= std::uint64_t{byte & 0x7fU} << shift;
      if (byte < 0x80) return value;
    }
    ADD_FAILURE() << "a number without an end";
    return value;
  }

  std::map<int, std::vector<std::string>> texts_;
  std::map<int, std::vector<std::int64_t>> numbers_;
};

/// Checks that each value of a graph is made once and read only behind that, bodies of loops included; `outer` are the
/// names that were there before, none of which may be made again.
void check_graph(const Message& graph, std::set<std::string>& all) {
  std::set<std::string> made;
  const auto make = [&](const std::string& name) {
    EXPECT_TRUE(all.insert(name).second) << name << " is made twice";
    made.insert(name);
  };
  for (const Message& tensor : graph.messages(5)) make(tensor.text(8));
  for (const Message& input : graph.messages(11)) make(input.text(1));
  for (const Message& node : graph.messages(1)) {
    for (const std::string& input : node.texts(1)) {
      EXPECT_TRUE(input.empty() || made.contains(input)) << node.text(4) << " reads " << input;
    }
    for (const Message& attribute : node.messages(5)) {
      for (const Message& body : attribute.messages(6)) check_graph(body, all);
    }
    for (const std::string& output : node.texts(2)) make(output);
  }
  for (const Message& output : graph.messages(12)) EXPECT_TRUE(made.contains(output.text(1))) << output.text(1);
}

Message checked(const OnnxModel& model) {
  Message file(model.file);
  EXPECT_EQ(file.number(1), 8);
  EXPECT_EQ(file.text(2), "penstock");
  EXPECT_EQ(Message(file.text(8)).number(2), OnnxModel::opset);
  std::set<std::string> names;
  check_graph(Message(file.text(7)), names);
  return file;
}

std::vector<std::string> operators(const Message& file) {
  std::vector<std::string> all;
  for (const Message& node : Message(file.text(7)).messages(1)) all.push_back(node.text(4));
  return all;
}

DataDescription series() {
  DataDescription data;
  data.task = Task::forecast;
  data.inputs = {{.name = "a", .mean = 1e6 / 3, .scale = 2.5}, {.name = "b", .mean = 0.5, .logarithm = true}};
  data.targets = {{.name = "b", .mean = 0.25, .scale = 2.0, .logarithm = true}};
  data.series.horizon = 3;
  return data;
}

DataDescription text() {
  DataDescription data;
  data.vocabulary = 256;
  return data;
}

TEST(Onnx, MessagesAreWrittenAsTheFormatSays) {
  io::ProtobufMessage message;
  message.integer(1, 300).integer(2, -1).number(3, 1.5f).bytes(16, "ab");
  using namespace std::string_literals;
  EXPECT_EQ(message.encoded(),
            "\x08\xac\x02"
            "\x10\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01"
            "\x1d\x00\x00\xc0\x3f"
            "\x82\x01\x02"
            "ab"s);
}

TEST(Onnx, EveryCellIsWritten) {
  for (const CellInfo& cell : cells()) {
    for (const Index heads : {1, 3}) {
      if (cell.scan && heads > 1) continue;
      SCOPED_TRACE(testing::Message() << cell.name << ", " << heads << " heads");
      checked(to_onnx(Model({.cell = std::string(cell.name), .width = 6, .heads = heads}, text(), 1)));
      for (const Direction direction : {Direction::forward, Direction::reverse, Direction::bidirectional}) {
        const Recurrent<float> network({.cell = std::string(cell.name),
                                        .input_size = 2,
                                        .hidden_size = 6,
                                        .heads = heads,
                                        .layers = 2,
                                        .direction = direction});
        checked(to_onnx(network));
      }
    }
  }
}

TEST(Onnx, EveryLayerIsWritten) {
  checked(to_onnx(Model({.cell = "gru", .width = 4, .hidden_size = 3, .convolution = 3, .feed_forward = 1.5}, text())));
  const ModelSpec from_last{
      .cell = "minlstm", .width = 4, .end_norms = false, .from_last = true, .branch = closed_form_branch({.lags = 7})};
  checked(to_onnx(Model(from_last, series())));
  ModelSpec ensemble = from_last;
  ensemble.members = 3;
  checked(to_onnx(Model(ensemble, series())));
  DataDescription labelled = series();
  labelled.task = Task::classify;
  labelled.targets.clear();
  labelled.labels.classes = {"up", "down"};
  checked(to_onnx(
      Model({.cell = "lstm", .width = 4, .blocks = 1, .branch = closed_form_branch({.filters = 8, .dilations = 2})},
            labelled)));
}

TEST(Onnx, CellsThatOnnxHasAreItsOperators) {
  const auto of = [](const char* cell, Index heads) {
    return operators(
        checked(to_onnx(Recurrent<float>({.cell = cell, .input_size = 2, .hidden_size = 4, .heads = heads}))));
  };
  EXPECT_THAT(of("lstm", 1), testing::Contains("LSTM"));
  EXPECT_THAT(of("gru-before", 1), testing::Contains("GRU"));
  EXPECT_THAT(of("elman-relu", 1), testing::Contains("RNN"));
  EXPECT_THAT(of("lstm", 2), testing::AllOf(testing::Contains("Scan"), Not(testing::Contains("LSTM"))));
  // The gates' products of a scan cell are not in its loop.
  EXPECT_THAT(of("mingru", 1), testing::IsSupersetOf({"MatMul", "Sigmoid", "Scan"}));
}

TEST(Onnx, InputsAndOutputsSayWhatTheyAre) {
  const OnnxModel raw = to_onnx(Model({.cell = "gru", .width = 4}, series()));
  EXPECT_EQ(raw.inputs[0].name, "features");
  EXPECT_EQ(raw.inputs[0].description, "In the units of the data: a, b");
  EXPECT_THAT(raw.inputs[0].shape, ElementsAre("batch", "time", "2"));
  EXPECT_THAT(raw.inputs[1].shape, ElementsAre("batch", "8"));
  EXPECT_THAT(raw.outputs[0].shape, ElementsAre("batch", "time", "3", "1"));
  EXPECT_THAT(operators(checked(raw)), testing::IsSupersetOf({"Log", "Exp"}));
  const OnnxModel normalised = to_onnx(Model({.cell = "gru", .width = 4}, series()), {.normalised = true});
  EXPECT_EQ(normalised.outputs[0].description, "Normalised: b");
  EXPECT_THAT(operators(checked(normalised)), Not(testing::Contains("Log")));
  const OnnxModel bytes = to_onnx(Model({.cell = "gru", .width = 4}, text()));
  EXPECT_EQ(bytes.inputs[0].type, "int64");
  EXPECT_EQ(bytes.outputs[0].name, "logits");
}

TEST(Onnx, WhatCannotBeWrittenIsRefused) {
  DataDescription data = series();
  const auto refused = [&](const OnnxOptions& options, const std::string& message) {
    const Model model({.cell = "gru", .width = 4}, data);
    test::expect_error(ErrorCode::invalid_argument, message, [&] { to_onnx(model, options); });
  };
  refused({.group = "x"}, "group must be empty for a model of one series, not \"x\"");
  data.series.group_column = "shop";
  data.series.groups = {{"a", {{}, {}}, {{}}}, {"b", {{10.0, 2.0}, {}}, {{}}}};
  refused({},
          "the model is of 2 series with a scaling each; name the series that is meant by the option 'group', or give "
          "the option 'normalised'");
  refused({.group = "x"}, "group must be one of the 2 series that the model was trained on, not \"x\"");
  refused({.normalised = true, .group = "a"},
          "group goes without normalised: values that come normalised are of no series");
  const Model model({.cell = "gru", .width = 4}, data);
  EXPECT_NE(to_onnx(model, {.group = "a"}).file, to_onnx(model, {.group = "b"}).file);
}

TEST(Onnx, FilesAreWrittenWhole) {
  const test::TemporaryFolder folder;
  const Model model({.cell = "slstm", .width = 4}, text());
  const OnnxModel written = save_onnx(model, folder.path("m.onnx"));
  EXPECT_EQ(written.file, to_onnx(model).file);
  test::expect_error(ErrorCode::io_failure, "no/m.onnx", [&] { save_onnx(model, folder.path("no/m.onnx")); });
}

}  // namespace
}  // namespace penstock
