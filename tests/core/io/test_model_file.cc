// Model files: the same model comes back, and a file that makes no sense is refused by name.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <functional>
#include <limits>
#include <utility>

#include "io/model_file.h"
#include "io/model_json.h"
#include "penstock/model_file.h"
#include "penstock/quantize.h"
#include "support/expect_error.h"
#include "support/temporary_folder.h"

namespace penstock {
namespace {

using test::expect_error;

DataDescription description() {
  DataDescription data;
  data.task = Task::forecast;
  data.inputs = {{"CO₂ \"ppm\"", 337.0539, 1.0 / 3.0}, {"b", -1e-300, 2.5}};
  data.targets = {{"b", -1e-300, 2.5}};
  data.series.horizon = 4;
  data.table.delimiter = ';';
  return data;
}

const ModelSpec spec{.cell = "slstm",
                     .width = 6,
                     .blocks = 2,
                     .hidden_size = 8,
                     .heads = 2,
                     .convolution = 3,
                     .feed_forward = 1.5,
                     .dropout = 0.125,
                     .from_last = true};

class ModelFile : public testing::Test {
 protected:
  using Change = std::function<void(std::vector<io::TensorData>&, io::Metadata&)>;

  /// Saves a model, changes the file, and expects that it is refused.
  void refused(ErrorCode code, const std::string& message, const Change& change) {
    const Model model(spec, description(), 3);
    std::vector<io::TensorData> tensors = io::model_tensors(model.impl());
    io::Metadata metadata = io::model_metadata(model.spec(), model.data());
    change(tensors, metadata);
    io::write_safetensors(path_, tensors, metadata);
    expect_error(code, path_ + ": " + message, [&] { Model::load(path_); });
  }

  static Change replace(const std::string& from, const std::string& to) {
    return [=](std::vector<io::TensorData>&, io::Metadata& metadata) {
      std::string& text = metadata.at("penstock");
      ASSERT_NE(text.find(from), std::string::npos) << text;
      text.replace(text.find(from), from.size(), to);
    };
  }

  test::TemporaryFolder folder_;
  std::string path_ = folder_.path("model.safetensors");
};

TEST_F(ModelFile, ComesBackToTheBit) {
  const Model model(spec, description(), 3);
  model.save(path_);
  const Model loaded = Model::load(path_);
  EXPECT_EQ(io::to_json(loaded.spec()), io::to_json(spec));
  EXPECT_EQ(io::to_json(loaded.data()), io::to_json(description()));
  EXPECT_EQ(loaded.data().inputs[0].name, "CO₂ \"ppm\"");
  EXPECT_EQ(loaded.data().inputs[0].scale, 1.0 / 3.0);
  EXPECT_THAT(loaded.impl().parameters->values(), testing::ElementsAreArray(model.impl().parameters->values()));

  const std::string first = folder_.read("model.safetensors");
  loaded.save(path_);
  EXPECT_EQ(folder_.read("model.safetensors"), first);
}

TEST_F(ModelFile, KeepsWeightsOfInt8) {
  const Model floats(spec, description(), 3);
  const Model model = floats.with_int8(int8_layers(floats));
  model.save(path_);
  const Model loaded = Model::load(path_);
  EXPECT_EQ(loaded.spec().int8, model.spec().int8);
  EXPECT_EQ(0, std::memcmp(loaded.impl().parameters->values().data(), model.impl().parameters->values().data(),
                           model.impl().parameters->values().size_bytes()));
  const TensorFile file = read_tensor_file(path_);
  const auto type_of = [&](const std::string& name) {
    return std::ranges::find(file.tensors, name, &TensorFile::Tensor::name)->dtype;
  };
  EXPECT_EQ(type_of("head.weight"), "I8");
  EXPECT_EQ(type_of("head.weight.scale"), "F32");

  io::Metadata metadata = io::model_metadata(model.spec(), model.data());
  std::vector<io::TensorData> tensors = io::model_tensors(model.impl());
  const auto head = std::ranges::find(tensors, "head.weight", &io::TensorData::name);
  std::vector<std::byte> values(head->values.begin(), head->values.end());
  values[1] = std::byte{0x80};
  head->values = values;
  io::write_safetensors(path_, tensors, metadata);
  expect_error(ErrorCode::bad_input, "tensor head.weight holds -128; weights of int8 are -127 to 127",
               [&] { Model::load(path_); });

  tensors = io::model_tensors(model.impl());
  const auto scale = std::ranges::find(tensors, "head.weight.scale", &io::TensorData::name);
  std::vector<std::byte> scales(scale->values.begin(), scale->values.end());
  for (const auto& [bad, message] : {std::pair(-0.5f, "tensor head.weight.scale holds -0.5; scales of weights must be"),
                                     std::pair(std::nanf(""), "tensor head.weight.scale holds values that are not")}) {
    std::memcpy(scales.data(), &bad, sizeof(bad));
    scale->values = scales;
    io::write_safetensors(path_, tensors, metadata);
    expect_error(ErrorCode::bad_input, message, [&] { Model::load(path_); });
  }
  tensors.erase(scale);
  io::write_safetensors(path_, tensors, metadata);
  expect_error(ErrorCode::incompatible, "head.weight.scale", [&] { Model::load(path_); });

  tensors = io::model_tensors(floats.impl());
  io::write_safetensors(path_, tensors, metadata);
  expect_error(ErrorCode::incompatible, "F32", [&] { Model::load(path_); });
  std::string& text = metadata.at("penstock");
  text.replace(text.find("\"head\""), 6, "\"tail\"");
  io::write_safetensors(path_, tensors, metadata);
  expect_error(ErrorCode::bad_input, "not \"tail\"", [&] { Model::load(path_); });
}

TEST_F(ModelFile, IsNotWrittenIfNobodyCouldReadIt) {
  const Model good(spec, description(), 3);
  good.save(path_);
  const std::string before = folder_.read("model.safetensors");
  const Model bad(spec, description(), 3);
  bad.impl().parameters->values()[5] = std::numeric_limits<float>::infinity();
  const auto refused = "cannot write '" + path_ + "', which nobody could read back: tensor ";
  expect_error(ErrorCode::bad_input, refused, [&] { bad.save(path_); });
  expect_error(ErrorCode::bad_input, refused, [&] { save_model(bad, path_, {}); });
  DataDescription no_number = description();
  no_number.inputs[0].mean = std::numeric_limits<double>::quiet_NaN();
  io::Metadata metadata = io::model_metadata(spec, no_number);
  expect_error(ErrorCode::bad_input, "which nobody could read back: ", [&] {
    io::write_model(path_, io::model_tensors(good.impl()), metadata);
  });
  EXPECT_EQ(folder_.read("model.safetensors"), before) << "the good model stays";
}

TEST_F(ModelFile, FromBeforeThereWereChangesAndFiltersLoads) {
  ModelSpec older = spec;
  older.from_last = false;
  const Model model(older, description(), 3);
  io::Metadata metadata = io::model_metadata(model.spec(), model.data());
  std::string& text = metadata.at("penstock");
  for (const std::string field : {"\"from_last\":false,", "\"filters\":0,", "\"dilations\":0,"}) {
    ASSERT_NE(text.find(field), std::string::npos) << text;
    text.erase(text.find(field), field.size());
  }
  io::write_safetensors(path_, io::model_tensors(model.impl()), metadata);
  const Model loaded = Model::load(path_);
  EXPECT_EQ(io::to_json(loaded.spec()), io::to_json(older));
  EXPECT_THAT(loaded.impl().parameters->values(), testing::ElementsAreArray(model.impl().parameters->values()));
}

TEST_F(ModelFile, KeepsEveryTask) {
  DataDescription language;
  language.vocabulary = 256;
  DataDescription classify;
  classify.task = Task::classify;
  classify.vocabulary = 3;
  classify.labels.classes = {"even", "odd"};
  for (const DataDescription& data : {language, classify, description()}) {
    Model({.width = 4}, data).save(path_);
    EXPECT_EQ(io::to_json(Model::load(path_).data()), io::to_json(data));
  }
}

TEST_F(ModelFile, NamesTheTensorThatIsWrong) {
  const ErrorCode incompatible = ErrorCode::incompatible;
  refused(incompatible, "tensor \"extra\" belongs to no part of this architecture", [](auto& tensors, auto&) {
    tensors.push_back(tensors.back());
    tensors.back().name = "extra";
  });
  const auto find = [](std::vector<io::TensorData>& tensors, const std::string& name) {
    return std::ranges::find_if(tensors, [&](const auto& tensor) { return tensor.name == name; });
  };
  refused(incompatible, "no tensor \"head.bias\"",
          [&](auto& tensors, auto&) { tensors.erase(find(tensors, "head.bias")); });
  refused(incompatible, "tensor \"head.weight\"", [&](auto& tensors, auto&) {
    find(tensors, "head.weight")->shape = {6, 4};
  });
  const float nan[] = {1, std::numeric_limits<float>::quiet_NaN(), 1, 1, 1, 1};
  refused(ErrorCode::bad_input, "tensor norm.gain holds values that are not finite",
          [&](auto& tensors, auto&) { find(tensors, "norm.gain")->values = std::as_bytes(std::span(nan)); });
}

TEST_F(ModelFile, NamesTheFieldThatIsWrong) {
  const ErrorCode bad = ErrorCode::bad_input;
  refused(bad, "model.width must be an integer, not \"wide\"", replace("\"width\":6", "\"width\":\"wide\""));
  refused(bad, "model.width must be an integer, not 6.5", replace("\"width\":6", "\"width\":6.5"));
  refused(bad, "model.width must be an integer, not 18446744073709551615",
          replace("\"width\":6", "\"width\":18446744073709551615"));
  refused(bad, "width must be 1 to 65536, not -6", replace("\"width\":6", "\"width\":-6"));
  refused(bad, "model.from_last must be true or false, not 1", replace("\"from_last\":true", "\"from_last\":1"));
  refused(bad, "model.cell is missing", replace("\"cell\"", "\"cells\""));
  refused(bad, "model has 16 fields, of which this version knows 15", replace("\"width\":6", "\"width\":6,\"new\":1"));
  refused(bad, "data.task must be one of language, forecast, classify, not \"f\"", replace("\"forecast\"", "\"f\""));
  refused(bad, "data.inputs[1].scale must be a number, not null", replace("\"scale\":2.5", "\"scale\":null"));
  refused(bad, "inputs: scale of column \"b\" must be positive, not -2.5", replace("\"scale\":2.5", "\"scale\":-2.5"));
  refused(bad, "data.delimiter must be one character, not \";;\"", replace("\";\"", "\";;\""));
  refused(bad, "metadata \"penstock\" is not a JSON object", replace("{\"data\"", "{\"data"));
  refused(bad, "metadata \"penstock\" is not a JSON object",
          [](auto&, auto& metadata) { metadata["penstock"] = std::string(100000, '['); });
  refused(ErrorCode::incompatible, "format_version is 7, this version of Penstock reads 1 to 2",
          replace("\"format_version\":2", "\"format_version\":7"));
  refused(ErrorCode::incompatible, "not a Penstock model", [](auto&, auto& metadata) { metadata.clear(); });
}

TEST_F(ModelFile, RefusesASizeFarBeyondTheFileBeforeAllocatingIt) {
  refused(ErrorCode::incompatible, "the architecture has",
          [](auto& tensors, auto& metadata) { replace("\"width\":6", "\"width\":20000")(tensors, metadata); });
  refused(ErrorCode::incompatible, "the architecture has", [](auto& tensors, auto& metadata) {
    replace("\"hidden_size\":8", "\"hidden_size\":30000")(tensors, metadata);
  });
  refused(ErrorCode::bad_input, "width, blocks and hidden_size make a model of", [](auto& tensors, auto& metadata) {
    replace("\"width\":6", "\"width\":65536")(tensors, metadata);
    replace("\"hidden_size\":8", "\"hidden_size\":65536")(tensors, metadata);
  });
}

TEST_F(ModelFile, RefusesANameThatIsNotUtf8) {
  DataDescription data = description();
  data.inputs[1].name = "caf\xe9";
  const Model model({.width = 4}, data);
  expect_error(ErrorCode::bad_input, "names of columns and classes must be UTF-8", [&] { model.save(path_); });
  EXPECT_EQ(folder_.count(), 0);
}

}  // namespace
}  // namespace penstock
