// Convolutions and products that round their inputs: each result is that of its window's own range.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "backend/cpu/instruction_sets.h"
#include "network/network_maker.h"

namespace penstock::network {
namespace {

class RoundedOperators : public ::testing::TestWithParam<std::string_view> {
 protected:
  void SetUp() override { cpu::use_isa(GetParam()); }
};

INSTANTIATE_TEST_SUITE_P(, RoundedOperators, ::testing::ValuesIn(cpu::available_isas()),
                         [](const auto& isa) { return std::string(isa.param); });

std::vector<std::int8_t> bytes(Index count) {
  std::vector<std::int8_t> made;
  for (Index i = 0; i < count; ++i) made.push_back(static_cast<std::int8_t>((i * 2654435761 >> 3) % 255 - 127));
  return made;
}

/// The product of a window with weights: the range of the window makes whole numbers of it, whose sum is exact.
double rounded_product(const std::vector<float>& window, const std::vector<std::int8_t>& weights, float scale,
                       float bias) {
  float low = 0, high = 0;
  for (const float value : window) low = std::min(low, value), high = std::max(high, value);
  const float inverse = 255.0f / (high - low), zero = std::nearbyint(-low * inverse);
  double sum = 0;
  for (std::size_t k = 0; k < window.size(); ++k) {
    sum += std::min(std::nearbyint(window[k] * inverse), 255 - zero) * static_cast<double>(weights[k]);
  }
  return static_cast<double>(bias) + sum * ((high - low) / 255.0) * static_cast<double>(scale);
}

struct Layer {
  Tensor weights, scales, bias;

  Layer(const Shape& shape, Index outputs)
      : weights(tensor(Type::i8, shape, bytes(count(shape)))), scales(noise({outputs}, 3)), bias(noise({outputs}, 4)) {}
  /// Results for x.
  Tensor run(const std::string& op, const Tensor& x, const std::vector<Attribute>& attributes = {}) const {
    return run_node(op, {x, weights, scales, bias}, attributes, true);
  }
};

/// Three roundings of the largest size that values have.
void expect_near(float value, double expected, double size) {
  ASSERT_NEAR(static_cast<double>(value), expected,
              4 * size * static_cast<double>(std::numeric_limits<float>::epsilon()));
}

TEST_P(RoundedOperators, ConvolutionsRoundEachWindow) {
  for (const Index channels : {3, 17}) {  // fewer and more than windows share ranges for
    for (const Index stride : {1, 2}) {
      const Index images = 2, maps = 21, h = 9, w = 12, size = 3, dilation = 3 - stride;
      const Index out_h = (h + 1 - dilation * 2) / stride + 1, out_w = (w - dilation * 2) / stride + 1;
      const Layer layer({maps, channels, size, size}, maps);
      const Tensor x = noise({images, channels, h, w}, 5);
      const Tensor y =
          layer.run("RoundedConv", x,
                    {{"pads", {1, 0, 1, 1}}, {"strides", {stride, stride}}, {"dilations", {dilation, dilation}}});
      ASSERT_EQ(y.shape, (Shape{images, maps, out_h, out_w}));
      const auto in = x.as<float>(), got = y.as<float>(), scale = layer.scales.as<float>(),
                 bias = layer.bias.as<float>();
      const auto weights = layer.weights.as<std::int8_t>();
      const Index inner = channels * size * size;
      for (Index i = 0; i < static_cast<Index>(got.size()); ++i) {
        const Index column = i % out_w, row = i / out_w % out_h, map = i / out_w / out_h % maps;
        const Index image = i / out_w / out_h / maps;
        std::vector<float> window;
        for (Index k = 0; k < inner; ++k) {
          const Index at = row * stride + k / size % size * dilation - 1, to = column * stride + k % size * dilation;
          const bool there = at >= 0 && at < h && to >= 0 && to < w;
          window.push_back(there ? in[((image * channels + k / size / size) * h + at) * w + to] : 0.0f);
        }
        const std::vector<std::int8_t> own(weights.begin() + map * inner, weights.begin() + (map + 1) * inner);
        const double expected = rounded_product(window, own, scale[map], bias[map]);
        ASSERT_NO_FATAL_FAILURE(expect_near(got[i], expected, std::abs(expected) + 1)) << channels << " " << stride;
      }
    }
  }
}

TEST_P(RoundedOperators, ProductsRoundEachRow) {
  const Index rows = 70, inner = 37, columns = 90;
  for (const bool turned : {false, true}) {
    const Layer layer(turned ? Shape{columns, inner} : Shape{inner, columns}, columns);
    const Tensor x = noise({2, rows, inner}, 5);
    const Tensor y = layer.run("RoundedMatMul", x, {{"transB", {turned ? 1 : 0}}});
    const auto in = x.as<float>(), got = y.as<float>(), scale = layer.scales.as<float>(), bias = layer.bias.as<float>();
    const auto weights = layer.weights.as<std::int8_t>();
    ASSERT_EQ(y.shape, (Shape{2, rows, columns}));
    for (Index i = 0; i < 2 * rows * columns; ++i) {
      const Index row = i / columns, column = i % columns;
      std::vector<std::int8_t> own;
      for (Index k = 0; k < inner; ++k) own.push_back(weights[turned ? column * inner + k : k * columns + column]);
      const double expected =
          rounded_product({in.begin() + row * inner, in.begin() + (row + 1) * inner}, own, scale[column], bias[column]);
      ASSERT_NO_FATAL_FAILURE(expect_near(got[i], expected, std::abs(expected) + 1)) << turned << " " << i;
    }
  }
}

/// A part of the last axis.
Tensor columns_of(const Tensor& all, Index begin, Index count) {
  const auto values = all.as<float>();
  const Index w = all.shape.back(), rows = static_cast<Index>(values.size()) / w;
  std::vector<float> part;
  for (Index row = 0; row < rows; ++row) {
    part.insert(part.end(), values.begin() + row * w + begin, values.begin() + row * w + begin + count);
  }
  Shape shape = all.shape;
  shape.back() = count;
  return floats(shape, part);
}

TEST_P(RoundedOperators, BatchesAndChunksHaveTheSameBits) {
  const Index channels = 40, maps = 24, frames = 100, size = 3;
  const Layer layer({maps, channels, size}, maps);
  for (const Index images : {1, 5}) {
    const Tensor x = noise({images, channels, frames}, 7);
    const Tensor whole = layer.run("RoundedConv", x);
    for (Index begin = 0; begin + size <= frames; begin += 29) {
      const Index taken = std::min<Index>(31, frames - begin);
      EXPECT_EQ(layer.run("RoundedConv", columns_of(x, begin, taken)).as<float>(),
                columns_of(whole, begin, taken - 2).as<float>());
    }
    const auto values = x.as<float>();
    const Tensor first = floats({1, channels, frames}, {values.begin(), values.begin() + channels * frames});
    const auto all = whole.as<float>(), alone = layer.run("RoundedConv", first).as<float>();
    EXPECT_TRUE(std::equal(alone.begin(), alone.end(), all.begin()));
  }
}

TEST_P(RoundedOperators, WindowsThatAreNotFiniteAreNaN) {
  const Index channels = 20, maps = 18, frames = 9, bad = 4;
  const Layer layer({maps, channels, 3}, maps);
  const Tensor x = noise({1, channels, frames}, 7);
  const auto fine = layer.run("RoundedConv", x).as<float>();
  for (const float value : {std::numeric_limits<float>::infinity(), -std::numeric_limits<float>::infinity(),
                            std::numeric_limits<float>::quiet_NaN()}) {
    auto changed = x.as<float>();
    changed[5 * frames + bad] = value;
    const auto got = layer.run("RoundedConv", floats(x.shape, changed)).as<float>();
    for (Index i = 0; i < static_cast<Index>(got.size()); ++i) {
      const Index frame = i % (frames - 2);
      const bool reads = frame <= bad && bad < frame + 3;
      EXPECT_TRUE(reads ? std::isnan(got[i]) : got[i] == fine[i]) << value << " in frame " << frame;
    }
  }
  const auto none = layer.run("RoundedConv", floats(x.shape, std::vector<float>(channels * frames))).as<float>();
  for (Index i = 0; i < static_cast<Index>(none.size()); ++i) {
    EXPECT_EQ(none[i], layer.bias.as<float>()[i / (frames - 2)]);
  }
}

TEST_P(RoundedOperators, RefuseWhatTheyCannotRun) {
  const auto status_of = [](const Tensor& weights, const Tensor& scales, std::vector<Attribute> attributes = {}) {
    Maker maker;
    const int x = maker.input("x", {1, 4, 6});
    maker.output(
        maker.node("RoundedConv", {x, maker.constant(weights), maker.constant(scales)}, std::move(attributes)));
    return Running(maker.network, {{1, 4, 6}}).status;
  };
  const Tensor weights = tensor(Type::i8, {2, 4, 3}, bytes(24)), scales = noise({2}, 1);
  EXPECT_TRUE(status_of(weights, scales).ok());
  EXPECT_THAT(status_of(tensor(Type::i8, {2, 5, 3}, bytes(30)), scales).text,
              testing::HasSubstr("weights of shape [2, 5, 3] do not fit an input of shape [1, 4, 6]"));
  EXPECT_THAT(status_of(weights, noise({3}, 1)).text,
              testing::HasSubstr("a scale or a bias of shape [3], expected [2]"));
  EXPECT_THAT(status_of(noise({2, 4, 3}, 1), scales).text, testing::HasSubstr("supported: int8"));
  EXPECT_FALSE(status_of(weights, scales, {{"pads", {-1, 0}}}).ok());
}

}  // namespace
}  // namespace penstock::network
