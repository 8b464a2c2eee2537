// Pools in C: the program of c_pool_program.c, beside a Session and a network.

#include <gtest/gtest.h>
#include <penstock_pool.h>

#include <filesystem>
#include <string>
#include <vector>

#include "penstock/model_file.h"
#include "penstock/network.h"
#include "penstock/stream.h"
#include "stream/small_models.h"
#include "support/onnx_model.h"

extern "C" int run_c_pool(const char* path, const float* expected, std::size_t outputs);
extern "C" penstock_status step_c_network(const char* path, float* outputs, penstock_error* error);

namespace penstock {
namespace {

std::string path_of(const char* name) { return (std::filesystem::path(testing::TempDir()) / name).string(); }

TEST(PoolInC, AnswersAsASessionAndSaysWhatIsWrong) {
  const Model model(test::spec_of("gru"), test::series(), 3);
  const std::string path = path_of("c_pool.safetensors");
  save_model(model, path, {});
  Session alone(model);
  std::vector<float> expected;
  for (int step = 0; step < 2; ++step) {
    const auto answer = alone.push(std::vector<float>{0.25f, -0.5f});
    expected.insert(expected.end(), answer.begin(), answer.end());
  }
  EXPECT_EQ(run_c_pool(path.c_str(), expected.data(), expected.size() / 2), 0);
}

TEST(PoolInC, RunsNetworks) {
  using namespace test::onnx;  // NOLINT(google-build-using-namespace)
  const std::string file = model({{value("x", {-1, 3})}, {node("Neg", {"x"}, {"y"})}, {}, {value("y", {-1, 3})}});
  const std::string path = path_of("c_pool_network.safetensors");
  Network::import_onnx(std::as_bytes(std::span(file))).save(path);
  std::vector<float> outputs(3);
  penstock_error error = {PENSTOCK_OK, ""};
  EXPECT_EQ(step_c_network(path.c_str(), outputs.data(), &error), PENSTOCK_OK) << error.text;
  EXPECT_EQ(outputs, std::vector<float>(3, -0.5f));
}

}  // namespace
}  // namespace penstock
