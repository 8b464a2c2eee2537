// Products of bytes: exact, and layers that take them have the bits of those that multiply floats.

#include <gtest/gtest.h>

#include <algorithm>
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
        std::vector<ByteProduct::Row> of_rows(rows);
        for (Index row = 0; row < rows; ++row) {
          const auto number = static_cast<std::int32_t>(row);
          of_rows[row] = {0, 37 - number, 0.25f * static_cast<float>(1 + row), 1000 * number - 9};
        }
        for (Index i = 0; i < rows * inner; ++i) {
          bytes[i / inner * stride + i % inner] = static_cast<std::int8_t>(a[i]);
          of_rows[i / inner].sum += static_cast<std::int32_t>(a[i]);
        }
        const std::vector<float> scale = whole(columns, 1, 3), bias = whole(columns, -9, 4);
        kernels.multiply_bytes({rows, columns, inner, bytes.data(), of_rows.data(), stride, panels.data(), scale.data(),
                                bias.data(), c.data(), columns});
        for (Index i = 0; i < rows * columns; ++i) {
          const Index row = i / columns, column = i % columns;
          std::int64_t sum = of_rows[row].more;
          for (Index k = 0; k < inner; ++k) {
            sum += (static_cast<std::int64_t>(a[row * inner + k]) + of_rows[row].shift) *
                   static_cast<std::int64_t>(b[column * inner + k]);
          }
          ASSERT_EQ(c[i], bias[column] + static_cast<float>(sum) * (of_rows[row].scale * scale[column]))
              << rows << columns << inner;
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

/// x as DynamicQuantizeLinear has it, without its zero point.
std::vector<Index> levels_of(const std::vector<float>& x) {
  const float low = std::min(0.0f, *std::ranges::min_element(x)), high = std::max(0.0f, *std::ranges::max_element(x));
  const float scale = (high - low) / 255.0f, zero = std::nearbyint(-low / scale);
  std::vector<Index> levels;
  for (const float value : x) {
    levels.push_back(static_cast<Index>(std::clamp(std::nearbyint(value / scale), -zero, 255 - zero)));
  }
  return levels;
}

constexpr Index kZeroOfWeights = 121;

/// A product of x and bytes: an integer, and its sum with a bias as a float.
Maker quantised_product(const char* op, const Shape& x, const Shape& w, const Shape& bias, std::vector<Index>& weights,
                        const std::vector<Attribute>& attributes) {
  Maker maker;
  weights.clear();
  std::vector<std::int32_t> biases;
  for (Index i = 0; i < count(w); ++i) weights.push_back((i * 2654435761 >> 3) & 255);
  for (Index i = 0; i < count(bias); ++i) biases.push_back(static_cast<std::int32_t>(1000 * i - 777));
  const int bytes = maker.node("DynamicQuantizeLinear", {maker.input("x", x)}, {}, 3);
  const auto constant = [&](const Shape& shape, const std::vector<Index>& values) {
    return maker.constant(tensor(Type::u8, shape, std::vector<std::uint8_t>(values.begin(), values.end())));
  };
  const int product =
      maker.node(op, {bytes, constant(w, weights), bytes + 2, constant({}, {kZeroOfWeights})}, attributes);
  const int sum = maker.node("Add", {product, maker.constant(tensor(Type::i32, bias, biases))});
  maker.output(product);
  maker.output(maker.node("Cast", {sum}, {{"to", {1}}}));
  return maker;
}

TEST_P(ByteProducts, OfConvolutionsAreThoseOfIntegers) {
  const Index channels = 17, maps = 21, h = 6, w = 9;
  for (const Index stride : {1, 2}) {
    const Index images = 2, size = 3, dilation = 3 - stride;
    const Index out_h = (h + 1 - dilation * 2) / stride + 1, out_w = (w - dilation * 2) / stride + 1;
    std::vector<Index> weights;
    const Maker maker =
        quantised_product("ConvInteger", {images, channels, h, w}, {maps, channels, size, size}, {maps, 1, 1}, weights,
                          {{"pads", {1, 0, 1, 1}}, {"strides", {stride, stride}}, {"dilations", {dilation, dilation}}});
    Running running(maker.network, {{images, channels, h, w}});
    ASSERT_TRUE(running.status.ok()) << running.status.text;
    const Tensor x = noise({images, channels, h, w}, 5);
    running.set(0, x);
    running.run();
    const std::vector<Index> levels = levels_of(x.as<float>());
    const auto whole = running.output(0).as<std::int32_t>();
    const auto sums = running.output(1).as<float>();
    ASSERT_EQ(static_cast<Index>(whole.size()), images * maps * out_h * out_w);
    for (Index i = 0; i < static_cast<Index>(whole.size()); ++i) {
      const Index column = i % out_w, row = i / out_w % out_h, map = i / out_w / out_h % maps;
      const Index image = i / out_w / out_h / maps;
      Index sum = 0;
      for (Index k = 0; k < channels * size * size; ++k) {
        const Index y = row * stride + k / size % size * dilation - 1, z = column * stride + k % size * dilation;
        if (y < 0 || y >= h || z < 0 || z >= w) continue;
        sum += levels[((image * channels + k / size / size) * h + y) * w + z] *
               (weights[map * channels * size * size + k] - kZeroOfWeights);
      }
      ASSERT_EQ(whole[i], sum) << "stride " << stride << ", result " << i;
      ASSERT_EQ(sums[i], static_cast<float>(sum + 1000 * map - 777)) << "stride " << stride << ", result " << i;
    }
  }
}

TEST_P(ByteProducts, OfMatricesAreThoseOfIntegers) {
  for (const Index rows : {1, 70}) {
    const Index inner = 37, columns = 90;
    std::vector<Index> weights;
    const Maker maker = quantised_product("MatMulInteger", {2, rows, inner}, {inner, columns}, {columns}, weights, {});
    Running running(maker.network, {{2, rows, inner}});
    ASSERT_TRUE(running.status.ok()) << running.status.text;
    const Tensor x = noise({2, rows, inner}, 5);
    running.set(0, x);
    running.run();
    const std::vector<Index> levels = levels_of(x.as<float>());
    const auto whole = running.output(0).as<std::int32_t>();
    const auto sums = running.output(1).as<float>();
    for (Index i = 0; i < 2 * rows * columns; ++i) {
      Index sum = 0;
      for (Index k = 0; k < inner; ++k) {
        sum += levels[i / columns * inner + k] * (weights[k * columns + i % columns] - kZeroOfWeights);
      }
      ASSERT_EQ(whole[i], sum) << rows << " rows, result " << i;
      ASSERT_EQ(sums[i], static_cast<float>(sum + 1000 * (i % columns) - 777)) << rows << " rows, result " << i;
    }
  }
}

}  // namespace
}  // namespace penstock::network
