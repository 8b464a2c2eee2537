// Stacks on their way through a file.

#include <gtest/gtest.h>

#include <fstream>
#include <iterator>

#include "oracle/written_cells.h"
#include "penstock/recurrent.h"
#include "penstock/system.h"
#include "support/expect_error.h"
#include "support/temporary_folder.h"

namespace penstock::test {
namespace {

RecurrentSpec file_spec() {
  return {.cell = "gru",
          .input_size = 3,
          .hidden_size = 6,
          .heads = 2,
          .layers = 2,
          .direction = Direction::bidirectional,
          .bias = Bias::single,
          .dropout = 0.25,
          .gradient_clip = 0.1};
}

template <class Real>
void expect_survives(const std::string& path) {
  const Recurrent<Real> network(file_spec(), 11);
  network.save(path);
  const Recurrent<Real> again = Recurrent<Real>::load(path);
  EXPECT_EQ(again.spec(), network.spec());
  ASSERT_EQ(again.parameters().size(), network.parameters().size());
  for (std::size_t i = 0; i < again.parameters().size(); ++i) {
    const auto &got = again.parameters()[i].value, &want = network.parameters()[i].value;
    EXPECT_EQ(std::vector<Real>(got.begin(), got.end()), std::vector<Real>(want.begin(), want.end()));
  }
}

TEST(RecurrentFile, KeepsAStack) {
  const TemporaryFolder folder;
  expect_survives<float>(folder.path("float.safetensors"));
  expect_survives<double>(folder.path("double.safetensors"));
}

TEST(RecurrentFile, HoldsTheEquationsOfACustomCell) {
  const TemporaryFolder folder;
  const std::string path = folder.path("own.safetensors");
  const WrittenCell written = written_peephole("filed-cell");
  define_cell(written.definition, written.equations);
  const Recurrent<float> network({.cell = "filed-cell", .input_size = 2, .hidden_size = 3}, 5);
  network.save(path);
  EXPECT_EQ(Recurrent<float>::load(path).spec(), network.spec());
  std::ifstream file(path, std::ios::binary);
  const std::string text{std::istreambuf_iterator<char>(file), {}};
  EXPECT_NE(text.find("cell_equations"), std::string::npos);
  EXPECT_NE(text.find("multiply"), std::string::npos);
}

TEST(RecurrentFile, OpensOnAStream) {
  const TemporaryFolder folder;
  const std::string path = folder.path("stack.safetensors");
  for (const Device device : {Device::cpu(), Device::cuda()}) {
    if (device.is_cuda() && !cuda_info().missing.empty()) continue;
    Stream stream(device);
    const Recurrent<float> home(file_spec(), 11), there(file_spec(), stream, 11);
    there.save(path);
    const Recurrent<float> back = Recurrent<float>::load(path), again = Recurrent<float>::load(path, stream);
    EXPECT_EQ(again.device(), device);
    for (const auto& parameter : home.parameters()) {
      std::vector<float> value(parameter.value.size());
      const std::vector<float> want(parameter.value.begin(), parameter.value.end());
      for (const Recurrent<float>* const network : {&back, &again}) {
        network->read(parameter.name, value);
        EXPECT_EQ(value, want) << parameter.name << " on " << to_string(device);
      }
    }
  }
}

TEST(RecurrentFile, RefusesWhatIsNoStackOfItsType) {
  const TemporaryFolder folder;
  const std::string path = folder.path("stack.safetensors");
  expect_error(ErrorCode::io_failure, path, [&] { Recurrent<float>::load(path); });
  Recurrent<float>(file_spec()).save(path);
  expect_error(ErrorCode::incompatible, "F32", [&] { Recurrent<double>::load(path); });
  std::ifstream in(path, std::ios::binary);
  const std::string whole((std::istreambuf_iterator<char>(in)), {});
  const auto spoil = [&](const std::string& from, const std::string& to, ErrorCode code, const std::string& words) {
    std::string spoilt = whole;
    const std::size_t at = spoilt.find(from);
    ASSERT_NE(at, std::string::npos) << from;
    spoilt.replace(at, from.size(), to);                                        // as long as it was
    spoilt.replace(spoilt.find("penstock.checksum"), 17, "penstock.unsigned");  // which would see every change
    spoilt.replace(spoilt.find("penstock.checked"), 16, "penstock.unaware");
    std::ofstream(path, std::ios::binary) << spoilt;
    expect_error(code, words, [&] { Recurrent<float>::load(path); });
  };
  spoil("penstock.recurrent", "penstock.elsewhere", ErrorCode::incompatible, "holds no recurrent stack");
  spoil("gru", "grx", ErrorCode::bad_input, "grx");
  spoil("hidden_size\\\":6", "hidden_size\\\":8", ErrorCode::incompatible, "holds no weight_ih_l0 [24, 3]");
  spoil("heads\\\":2", "heads\\\":5", ErrorCode::bad_input, "heads must divide hidden_size");
}

TEST(RecurrentFile, NoDamageGoesUnnoticed) {
  const TemporaryFolder folder;
  const std::string path = folder.path("stack.safetensors");
  Recurrent<float>({.cell = "elman", .input_size = 1, .hidden_size = 1}).save(path);
  const std::string whole = folder.read("stack.safetensors");
  const auto refused = [&](const std::string& content) {
    folder.write("stack.safetensors", content);
    try {
      Recurrent<float>::load(path);
    } catch (const Error&) {
      return true;
    }
    return false;
  };
  EXPECT_FALSE(refused(whole));
  for (std::size_t i = 0; i < whole.size(); ++i) {
    std::string damaged = whole;
    damaged[i] = static_cast<char>(damaged[i] ^ (1 << i % 8));
    EXPECT_TRUE(refused(damaged)) << "byte " << i;
    EXPECT_TRUE(i % 8 != 0 || refused(whole.substr(0, i))) << "cut at " << i;
  }
  std::string unnamed = whole;
  unnamed.replace(unnamed.find("penstock.checksum"), 17, "penstock.checksun");
  folder.write("stack.safetensors", unnamed);
  expect_error(ErrorCode::bad_input, "damaged: it says that it carries a checksum, and there is none",
               [&] { Recurrent<float>::load(path); });
}

TEST(RecurrentFile, ParametersAreFoundByName) {
  Recurrent<float> network(file_spec());
  EXPECT_EQ(network.parameter("weight_ih_l1_reverse").shape, (std::vector<Index>{18, 12}));
  expect_error(ErrorCode::invalid_argument, "name must be one of weight_ih_l0", [&] { network.parameter("bias"); });
  network.parameter("bias_ih_l0").gradient[0] = 1;
  network.zero_gradients();
  EXPECT_EQ(network.parameter("bias_ih_l0").gradient[0], 0);
}

}  // namespace
}  // namespace penstock::test
