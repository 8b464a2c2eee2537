// The runtime of networks: linked without the layers of data, training, forecasts and classification.
#include <gtest/gtest.h>

#include <filesystem>
#include <string>
#include <vector>

#include "penstock/model.h"
#include "penstock/onnx.h"
#include "penstock/stream.h"
#include "support/temporary_folder.h"

namespace penstock::test {
namespace {

/// The outputs of a stream that reads some rows.
std::vector<float> answers(const Model& model) {
  Session session(model);
  std::vector<float> outputs;
  for (const float value : {0.5f, -1.0f, 2.0f}) {
    const auto output = session.push(std::vector<float>{value});
    outputs.insert(outputs.end(), output.begin(), output.end());
  }
  return outputs;
}

TEST(Runtime, RunsSavesAndExportsModelsByItself) {
  DataDescription data;
  data.task = Task::forecast;
  data.inputs = data.targets = {{.name = "level"}};
  const ModelSpec spec{
      .cell = "gru", .width = 8, .blocks = 1, .from_last = true, .branch = closed_form_branch({.lags = 3})};
  const Model model(spec, data, 3);
  const TemporaryFolder folder;
  const std::string path = folder.path("model.safetensors");
  model.save(path);
  EXPECT_EQ(answers(Model::load(path)), answers(model));
  EXPECT_EQ(answers(model).size(), 3u);
  save_onnx(model, folder.path("model.onnx"));
  EXPECT_GT(std::filesystem::file_size(folder.path("model.onnx")), 0u);
}

}  // namespace
}  // namespace penstock::test
