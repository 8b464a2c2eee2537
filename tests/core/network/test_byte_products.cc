// Products of bytes: exact, and layers that take them have the bits of those that multiply floats.

#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "backend/cpu/instruction_sets.h"
#include "network/kernels.h"
#include "network/network_maker.h"

namespace penstock::network {
namespace {

class ByteProducts : public ::testing::TestWithParam<std::string_view> {
 protected:
  void SetUp() override { cpu::use_isa(GetParam()); }
};

INSTANTIATE_TEST_SUITE_P(, ByteProducts, ::testing::ValuesIn(cpu::available_isas()),
                         [](const auto& isa) { return std::string(isa.param); });

/// Whole numbers from `low` to 127, with both ends among them.
std::vector<float> whole(Index count, int low, int seed) {
  std::vector<float> values;
  for (Index i = 0; i < count; ++i) {
    const Index mixed = (i * 2654435761 + seed * 40503 + (i >> 3) * 97) & 0xffff;
    values.push_back(static_cast<float>(low + mixed % (128 - low)));
  }
  values.front() = static_cast<float>(low), values.back() = 127;
  return values;
}

TEST_P(ByteProducts, AreThoseOfIntegers) {
  const Kernels kernels = kernels_in_use();
  if (kernels.multiply_bytes == nullptr) GTEST_SKIP() << "this instruction set multiplies floats";
  for (const Index rows : {1, 2, 3, 4, 5, 9}) {
    for (const Index columns : {1, 17, 64, 130}) {
      for (const Index inner : {1, 4, 67}) {
        const std::vector<float> a = whole(rows * inner, -128, 1), b = whole(columns * inner, -128, 2);
        std::vector<float> panels(kernels.byte_panels(inner, columns)), c(rows * columns);
        kernels.pack_bytes(inner, columns, b.data(), panels.data());
        const Index stride = (inner + 3) / 4 * 4;
        std::vector<std::int8_t> bytes(rows * stride);
        std::vector<std::int32_t> sums(rows);
        for (Index i = 0; i < rows * inner; ++i) {
          bytes[i / inner * stride + i % inner] = static_cast<std::int8_t>(a[i]);
          sums[i / inner] += static_cast<std::int32_t>(a[i]);
        }
        const std::vector<float> scale = whole(columns, 1, 3), bias = whole(columns, -9, 4);
        kernels.multiply_bytes({rows, columns, inner, bytes.data(), sums.data(), stride, 37, 0.25f, panels.data(),
                                scale.data(), bias.data(), c.data(), columns});
        for (Index i = 0; i < rows * columns; ++i) {
          const Index row = i / columns, column = i % columns;
          std::int64_t sum = 0;
          for (Index k = 0; k < inner; ++k) {
            sum += static_cast<std::int64_t>((a[row * inner + k] + 37) * b[column * inner + k]);
          }
          ASSERT_EQ(c[i], bias[column] + static_cast<float>(sum) * (0.25f * scale[column])) << rows << columns << inner;
        }
      }
    }
  }
}

/// Outputs of a quantised LSTM in both directions whose matrices are multiplied by `factor`, and the scales divided.
std::vector<float> outputs_of(Index steps, Index rows, Index input, Index hidden, float factor) {
  Maker maker;
  const Index units = 4 * hidden;
  const auto matrix = [&](Index inner, int seed) {
    std::vector<float> values = whole(2 * units * inner, -128, seed);
    for (float& value : values) value *= factor;
    return maker.constant(floats({2, units, inner}, values));
  };
  const auto scale = [&](float of_all) {
    std::vector<float> values;
    for (Index i = 0; i < 2 * units; ++i) values.push_back(of_all * static_cast<float>(1 + i % 3) / factor);
    return maker.constant(floats({2, units}, values));
  };
  const int x = maker.input("x", {steps, rows, input});
  std::vector<int> reads = {x, matrix(input, 1), matrix(hidden, 2)};
  for (int seed = 3; seed < 5; ++seed) reads.push_back(maker.constant(noise({2, units}, seed)));
  for (const int absent : {-1, -1, -1, -1}) reads.push_back(absent);
  for (const float of_all : {0.004f, 0.002f}) reads.push_back(scale(of_all));
  maker.output(maker.node("Recurrent", reads,
                          {{"cell", {}, {}, "lstm"}, {"direction", {}, {}, "bidirectional"}, {"quantised", {1}}}));
  Running running(maker.network, {{steps, rows, input}});
  EXPECT_TRUE(running.status.ok()) << running.status.text;
  running.set(0, noise({steps, rows, input}, 9));
  running.run();
  return running.output(0).as<float>();
}

TEST_P(ByteProducts, OfLayersHaveTheBitsOfFloats) {
  for (const Index rows : {1, 3}) {
    for (const Index hidden : {5, 40}) {
      const std::vector<float> bytes = outputs_of(7, rows, 19, hidden, 1),
                               as_floats = outputs_of(7, rows, 19, hidden, 2);
      EXPECT_EQ(bytes, as_floats);
      float most = 0;
      for (const float value : bytes) most = std::max(most, std::abs(value));
      EXPECT_GT(most, 0.1f);
    }
  }
}

}  // namespace
}  // namespace penstock::network
