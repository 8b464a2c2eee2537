// Operators against straightforward loops in double, at ugly sizes, with each instruction set.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <map>

#include "backend/cpu/instruction_sets.h"
#include "network/network_maker.h"

namespace penstock::network {
namespace {

class NetworkOperators : public ::testing::TestWithParam<std::string_view> {
 protected:
  void SetUp() override { cpu::use_isa(GetParam()); }
};

INSTANTIATE_TEST_SUITE_P(, NetworkOperators, ::testing::ValuesIn(cpu::available_isas()),
                         [](const auto& isa) { return std::string(isa.param); });

/// As constants, and with the first tensor as an input: folding and running have to agree, too.
void expect_near(const std::string& op, const std::vector<Tensor>& reads, const std::vector<Attribute>& attributes,
                 const Shape& shape, const std::vector<double>& expected, double tolerance = 2e-5) {
  for (const bool as_inputs : {false, true}) {
    const Tensor result = run_node(op, reads, attributes, as_inputs);
    ASSERT_EQ(result.shape, shape) << op;
    const std::vector<float> values = result.as<float>();
    for (std::size_t i = 0; i < expected.size(); ++i) {
      ASSERT_NEAR(values[i], expected[i], tolerance * (1 + std::fabs(expected[i]))) << op << " at " << i;
    }
  }
}

TEST_P(NetworkOperators, FunctionsOfOneNumber) {
  const std::vector<float> x = {-90,  -20.5f, -3,   -1,   -0.25f, -1e-4f, 0,  1e-4f, 0.3f,
                                0.5f, 1,      2.5f, 3.5f, 7,      19,     40, 88};
  const auto sigmoid = [](double v) { return 1 / (1 + std::exp(-v)); };
  const std::map<std::string, std::function<double(double)>> functions = {
      {"Neg", [](double v) { return -v; }},
      {"Abs", [](double v) { return std::fabs(v); }},
      {"Exp", [](double v) { return std::exp(v); }},
      {"Floor", [](double v) { return std::floor(v); }},
      {"Ceil", [](double v) { return std::ceil(v); }},
      {"Round", [](double v) { return std::nearbyint(v); }},
      {"Sign", [](double v) { return (v > 0) - (v < 0); }},
      {"Sin", [](double v) { return std::sin(v); }},
      {"Cos", [](double v) { return std::cos(v); }},
      {"Erf", [](double v) { return std::erf(v); }},
      {"Relu", [](double v) { return std::max(v, 0.0); }},
      {"LeakyRelu", [](double v) { return v < 0 ? 0.01 * v : v; }},
      {"Elu", [](double v) { return v < 0 ? std::expm1(v) : v; }},
      {"Selu", [](double v) { return 1.0507009873554805 * (v > 0 ? v : 1.6732632423543772 * std::expm1(v)); }},
      {"Sigmoid", sigmoid},
      {"HardSigmoid", [](double v) { return std::clamp(0.2 * v + 0.5, 0.0, 1.0); }},
      {"Tanh", [](double v) { return std::tanh(v); }},
      {"Softplus", [](double v) { return v > 30 ? v : std::log1p(std::exp(v)); }},
      {"Softsign", [](double v) { return v / (1 + std::fabs(v)); }},
      {"HardSwish", [](double v) { return v * std::clamp(v / 6 + 0.5, 0.0, 1.0); }},
      {"Gelu", [](double v) { return v * 0.5 * (1 + std::erf(v * std::sqrt(0.5))); }},
      {"Mish", [](double v) { return v * std::tanh(v > 30 ? v : std::log1p(std::exp(v))); }},
      {"Swish", [&](double v) { return v * sigmoid(v); }},
  };
  for (const auto& [op, function] : functions) {
    std::vector<double> expected;
    for (const float value : x) expected.push_back(function(static_cast<double>(value)));
    expect_near(op, {floats({static_cast<Index>(x.size())}, x)}, {}, {static_cast<Index>(x.size())}, expected, 2e-6);
  }
}

TEST_P(NetworkOperators, FunctionsAtTheEnds) {
  const float infinity = std::numeric_limits<float>::infinity(), nan = std::numeric_limits<float>::quiet_NaN();
  const Tensor x = floats({4}, {-infinity, infinity, nan, -1});
  const auto of = [&](const std::string& op) { return run_node(op, {x}).as<float>(); };
  EXPECT_EQ(of("Exp")[0], 0);
  EXPECT_EQ(of("Exp")[1], infinity);
  EXPECT_EQ(of("Log")[1], infinity);
  EXPECT_TRUE(std::isnan(of("Log")[3]));
  EXPECT_EQ(run_node("Log", {floats({1}, {0})}).as<float>()[0], -infinity);
  EXPECT_EQ(of("Sigmoid")[1], 1);
  EXPECT_EQ(of("Relu")[0], 0);
  for (const std::string op : {"Exp", "Log", "Relu", "Sigmoid", "Tanh", "Sqrt", "Abs", "Floor", "Erf", "Softplus"}) {
    EXPECT_TRUE(std::isnan(of(op)[2])) << op;
  }
}

/// A product over the axes of an equation such as "bij,jk->bik".
std::vector<double> einsum(const std::string& a, const std::string& b, const std::string& c, const Tensor& x,
                           const Tensor& y, std::map<char, Index> extents, Shape& shape) {
  std::string all = c;
  for (const char letter : a + b) {
    if (all.find(letter) == std::string::npos) all += letter;
  }
  for (const char letter : c) shape.push_back(extents[letter]);
  std::vector<double> result(static_cast<std::size_t>(count(shape)));
  std::map<char, Index> at;
  const auto place = [&](const std::string& letters) {
    Index i = 0;
    for (const char letter : letters) i = i * extents[letter] + at[letter];
    return static_cast<std::size_t>(i);
  };
  const std::vector<float> left = x.as<float>(), right = y.as<float>();
  const std::function<void(std::size_t)> go = [&](std::size_t k) {
    if (k == all.size()) {
      result[place(c)] += static_cast<double>(left[place(a)]) * static_cast<double>(right[place(b)]);
      return;
    }
    for (at[all[k]] = 0; at[all[k]] < extents[all[k]]; ++at[all[k]]) go(k + 1);
  };
  go(0);
  return result;
}

TEST_P(NetworkOperators, ProductsOverAnyAxes) {
  const std::map<char, Index> extents = {{'b', 3}, {'i', 7}, {'j', 19}, {'k', 70}, {'g', 2}, {'h', 5}};
  const std::vector<std::array<std::string, 3>> equations = {
      {"ij", "jk", "ik"},   {"ji", "jk", "ik"},       {"ij", "kj", "ik"},    {"bij", "bjk", "bik"},
      {"bij", "jk", "bik"}, {"ij", "bjk", "bik"},     {"bgi", "gih", "bgh"}, {"bigj", "gjk", "bigk"},
      {"ij", "ij", ""},     {"i", "j", "ij"},         {"ij", "jk", "ki"},    {"bijg", "gkj", "kbi"},
      {"j", "jk", "k"},     {"bhij", "bhkj", "bhik"},
  };
  for (const auto& [a, b, c] : equations) {
    const auto shape_of = [&](const std::string& letters) {
      Shape shape;
      for (const char letter : letters) shape.push_back(extents.at(letter));
      return shape;
    };
    const Tensor x = noise(shape_of(a), 1), y = noise(shape_of(b), 2);
    Shape shape;
    const std::vector<double> expected = einsum(a, b, c, x, y, extents, shape);
    expect_near("Einsum", {x, y}, {{"equation", {}, {}, a + "," + b + "->" + c}}, shape, expected);
    // Both as inputs: nothing is packed beforehand.
    Maker maker;
    const int left = maker.input("x", x.shape), right = maker.input("y", y.shape);
    maker.output(maker.node("Einsum", {left, right}, {{"equation", {}, {}, a + "," + b + "->" + c}}));
    Running running(maker.network, {x.shape, y.shape});
    ASSERT_TRUE(running.status.ok()) << running.status.text;
    running.set(0, x), running.set(1, y);
    running.run();
    const std::vector<float> values = running.output(0).as<float>();
    for (std::size_t i = 0; i < expected.size(); ++i) ASSERT_NEAR(values[i], expected[i], 1e-4) << a << b << c;
  }
}

TEST_P(NetworkOperators, MatMulAndGemm) {
  for (const Index rows : {1, 2, 5, 13}) {
    for (const Index inner : {1, 17}) {
      for (const Index columns : {1, 15, 64, 131}) {
        const std::map<char, Index> extents = {{'i', rows}, {'j', inner}, {'k', columns}, {'b', 2}};
        const Tensor a = noise({2, rows, inner}, 3), b = noise({inner, columns}, 4), bias = noise({columns}, 5);
        Shape shape;
        expect_near("MatMul", {a, b}, {}, {2, rows, columns}, einsum("bij", "jk", "bik", a, b, extents, shape));
        const Tensor turned = noise({inner, rows}, 6);
        shape.clear();
        std::vector<double> expected = einsum("ji", "jk", "ik", turned, b, extents, shape);
        for (std::size_t i = 0; i < expected.size(); ++i) {
          const std::size_t column = i % static_cast<std::size_t>(columns);
          expected[i] = 0.5 * expected[i] + 2 * static_cast<double>(bias.as<float>()[column]);
        }
        expect_near("Gemm", {turned, b, bias}, {{"transA", {1}}, {"alpha", {}, {0.5f}}, {"beta", {}, {2}}}, shape,
                    expected);
      }
    }
  }
}

/// A case of a convolution along two axes; with height 1 and `flat`, along one.
struct ConvCase {
  Index images, channels, height, width, maps, groups, kernel_h, kernel_w, stride_h, stride_w, dilation, before, after;
  bool flat = false;
};
constexpr ConvCase kConvs[] = {
    {1, 1, 1, 40, 3, 1, 1, 5, 1, 1, 1, 2, 2, true},
    {2, 3, 1, 33, 37, 1, 1, 3, 1, 2, 1, 1, 1, true},
    {1, 1, 1, 576, 258, 1, 1, 256, 1, 128, 1, 0, 64, true},
    {13, 70, 1, 4, 65, 1, 1, 3, 1, 1, 1, 1, 1, true},
    {1, 8, 1, 300, 8, 8, 1, 7, 1, 3, 2, 4, 0, true},
    {1, 5, 9, 11, 7, 1, 3, 3, 1, 1, 1, 1, 1},
    {2, 4, 10, 13, 6, 2, 3, 2, 2, 3, 1, 0, 2},
    {1, 3, 17, 30, 20, 1, 1, 1, 1, 1, 1, 0, 0},
    {1, 6, 12, 9, 6, 6, 3, 3, 2, 2, 2, 3, 1},
    {1, 2, 5, 130, 3, 1, 5, 4, 1, 2, 1, 2, 2},
    {1, 16, 40, 41, 5, 1, 3, 3, 1, 1, 3, 3, 3},
    {50, 2, 1, 1, 4, 1, 1, 1, 2, 2, 1, 0, 0},
    {27, 6, 1, 6, 70, 1, 1, 5, 1, 2, 1, 3, 4, true},
    {7, 6, 1, 9, 70, 1, 1, 2, 1, 4, 1, 3, 0, true},
    {9, 6, 3, 4, 40, 1, 2, 2, 2, 2, 2, 1, 1},
    // In tiles; the last one some rows of them at a time.
    {2, 16, 9, 21, 17, 1, 3, 3, 1, 1, 1, 1, 1},
    {1, 20, 37, 70, 16, 1, 3, 3, 1, 1, 1, 0, 2},
    {1, 400, 16, 16, 16, 1, 3, 3, 1, 1, 1, 1, 1},
    // Planes of some rows of results at a time.
    {2, 12, 150, 75, 5, 1, 3, 3, 2, 2, 1, 1, 1},
    {1, 16, 70, 100, 6, 2, 3, 3, 1, 1, 2, 2, 2},
    // Places of windows that only padding has.
    {1, 3, 1, 9, 4, 1, 4, 3, 1, 1, 1, 3, 0},
    {1, 4, 2, 5, 6, 2, 3, 4, 2, 2, 3, 8, 3},
    // The only row of windows is padding.
    {7, 4, 1, 4, 64, 1, 1, 2, 2, 1, 1, 1, 0},
    // Groups of one map.
    {2, 20, 1, 37, 20, 20, 1, 3, 1, 2, 1, 1, 1, true},
    {1, 6, 3, 5, 3, 3, 1, 1, 1, 1, 1, 0, 0},
};

std::vector<Attribute> attributes_of(const ConvCase& c) {
  const auto list = [&](Index h, Index w) { return c.flat ? std::vector<Index>{w} : std::vector<Index>{h, w}; };
  const auto pads =
      c.flat ? std::vector<Index>{c.before, c.after} : std::vector<Index>{c.before, c.before, c.after, c.after};
  return {{"group", {c.groups}},
          {"strides", list(c.stride_h, c.stride_w)},
          {"dilations", list(c.dilation, c.dilation)},
          {"pads", pads}};
}

TEST_P(NetworkOperators, Convolutions) {
  for (const ConvCase& c : kConvs) {
    const Index per_group = c.channels / c.groups, maps = c.maps / c.groups;
    const Index pad_h = c.flat ? 0 : c.before, end_h = c.flat ? 0 : c.after;
    const Index out_h = (c.height + pad_h + end_h - c.dilation * (c.kernel_h - 1) - 1) / c.stride_h + 1;
    const Index out_w = (c.width + c.before + c.after - c.dilation * (c.kernel_w - 1) - 1) / c.stride_w + 1;
    const auto shape = [&](Index n, Index m, Index h, Index w) { return c.flat ? Shape{n, m, w} : Shape{n, m, h, w}; };
    const Tensor x = noise(shape(c.images, c.channels, c.height, c.width), 7);
    const Tensor w = noise(shape(c.maps, per_group, c.kernel_h, c.kernel_w), 8), bias = noise({c.maps}, 9);
    const std::vector<float> of_x = x.as<float>(), of_w = w.as<float>(), of_bias = bias.as<float>();
    std::vector<double> expected;
    for (Index i = 0; i < c.images * c.maps * out_h * out_w; ++i) {
      const Index column = i % out_w, row = i / out_w % out_h, map = i / out_w / out_h % c.maps,
                  image = i / out_w / out_h / c.maps;
      double sum = static_cast<double>(of_bias[map]);
      for (Index k = 0; k < per_group * c.kernel_h * c.kernel_w; ++k) {
        const Index kw = k % c.kernel_w, kh = k / c.kernel_w % c.kernel_h, channel = k / c.kernel_w / c.kernel_h;
        const Index at_h = row * c.stride_h + kh * c.dilation - pad_h,
                    at_w = column * c.stride_w + kw * c.dilation - c.before;
        if (at_h < 0 || at_h >= c.height || at_w < 0 || at_w >= c.width) continue;
        const Index from = ((image * c.channels + map / maps * per_group + channel) * c.height + at_h) * c.width + at_w;
        sum +=
            static_cast<double>(of_x[from]) * static_cast<double>(of_w[map * per_group * c.kernel_h * c.kernel_w + k]);
      }
      expected.push_back(sum);
    }
    expect_near("Conv", {x, w, bias}, attributes_of(c), shape(c.images, c.maps, out_h, out_w), expected, 1e-4);

    // The zeros before come from Pad, with and without another reader of what it writes.
    for (const bool is_read_again : {false, true}) {
      Maker maker;
      ConvCase rest = c;
      rest.before = 0;
      const std::vector<Index> pads = c.flat ? std::vector<Index>{0, 0, c.before, 0, 0, 0}
                                             : std::vector<Index>{0, 0, c.before, c.before, 0, 0, 0, 0};
      const int padded = maker.node("Pad", {maker.input("x", x.shape), maker.constant(pads)});
      maker.output(maker.node("Conv", {padded, maker.constant(w), maker.constant(bias)}, attributes_of(rest)));
      if (is_read_again) maker.output(padded);
      Running running(maker.network, {x.shape});
      ASSERT_TRUE(running.status.ok()) << running.status.text;
      for (const Tensor& each : {noise(x.shape, 10), x}) running.set(0, each), running.run();
      const std::vector<float> values = running.output(0).as<float>();
      ASSERT_EQ(values.size(), expected.size());
      for (std::size_t i = 0; i < expected.size(); ++i) ASSERT_NEAR(values[i], expected[i], 1e-4);
    }
  }
}

TEST_P(NetworkOperators, TransposedConvolutions) {
  for (const ConvCase& c : kConvs) {
    if (c.before + c.after >= c.kernel_w) continue;
    const Index per_group = c.channels / c.groups, maps = 3;
    const Index pad_h = c.flat ? 0 : c.before, end_h = c.flat ? 0 : c.after;
    const Index out_h = (c.height - 1) * c.stride_h + c.dilation * (c.kernel_h - 1) + 1 - pad_h - end_h;
    const Index out_w = (c.width - 1) * c.stride_w + c.dilation * (c.kernel_w - 1) + 1 - c.before - c.after;
    if (out_h < 1 || out_w < 1) continue;
    const auto shape = [&](Index n, Index m, Index h, Index w) { return c.flat ? Shape{n, m, w} : Shape{n, m, h, w}; };
    const Tensor x = noise(shape(c.images, c.channels, c.height, c.width), 10);
    const Tensor w = noise(shape(c.channels, maps, c.kernel_h, c.kernel_w), 11);
    const std::vector<float> of_x = x.as<float>(), of_w = w.as<float>();
    std::vector<double> expected(static_cast<std::size_t>(c.images * maps * c.groups * out_h * out_w));
    for (Index i = 0; i < static_cast<Index>(of_x.size()); ++i) {
      const Index column = i % c.width, row = i / c.width % c.height, channel = i / c.width / c.height % c.channels;
      const Index image = i / c.width / c.height / c.channels;
      for (Index k = 0; k < maps * c.kernel_h * c.kernel_w; ++k) {
        const Index kw = k % c.kernel_w, kh = k / c.kernel_w % c.kernel_h, map = k / c.kernel_w / c.kernel_h;
        const Index at_h = row * c.stride_h + kh * c.dilation - pad_h,
                    at_w = column * c.stride_w + kw * c.dilation - c.before;
        if (at_h < 0 || at_h >= out_h || at_w < 0 || at_w >= out_w) continue;
        const Index to = ((image * c.groups * maps + channel / per_group * maps + map) * out_h + at_h) * out_w + at_w;
        expected[to] +=
            static_cast<double>(of_x[i]) * static_cast<double>(of_w[channel * maps * c.kernel_h * c.kernel_w + k]);
      }
    }
    expect_near("ConvTranspose", {x, w}, attributes_of(c), shape(c.images, maps * c.groups, out_h, out_w), expected,
                1e-4);
  }
}

/// The largest or the mean of what a window has of a row of `in` elements.
double pooled(const std::vector<float>& x, Index in, Index first, Index size, Index dilation, bool averages) {
  double result = averages ? 0 : -HUGE_VAL;
  Index count = 0;
  for (Index k = 0; k < size; ++k) {
    const Index at = first + k * dilation;
    if (at < 0 || at >= in) continue;
    result = averages ? result + x[at] : std::max<double>(result, x[at]);
    ++count;
  }
  return averages ? result / static_cast<double>(count) : result;
}

TEST_P(NetworkOperators, Pools) {
  for (const Index stride : {1, 2, 3}) {
    for (const Index dilation : {1, 2}) {
      for (const Index in : {7, 19, 40}) {
        const Index size = 4, before = 2, after = 1,
                    out = (in + before + after - dilation * (size - 1) - 1) / stride + 1;
        const Tensor x = noise({1, 1, in}, 5);
        const std::vector<float> row = x.as<float>();
        for (const bool averages : {false, true}) {
          std::vector<double> expected;
          for (Index i = 0; i < out; ++i) {
            expected.push_back(pooled(row, in, i * stride - before, size, dilation, averages));
          }
          // The same along columns and along rows.
          for (const bool along_rows : {false, true}) {
            const Shape shape = along_rows ? Shape{1, 1, 1, in} : Shape{1, 1, in, 1};
            const Shape result = along_rows ? Shape{1, 1, 1, out} : Shape{1, 1, out, 1};
            const auto pair = [&](Index value) {
              return along_rows ? std::vector<Index>{1, value} : std::vector<Index>{value, 1};
            };
            const std::vector<Index> pads =
                along_rows ? std::vector<Index>{0, before, 0, after} : std::vector<Index>{before, 0, after, 0};
            expect_near(averages ? "AveragePool" : "MaxPool", {floats(shape, row)},
                        {{"kernel_shape", pair(size)},
                         {"strides", pair(stride)},
                         {"dilations", pair(dilation)},
                         {"pads", pads}},
                        result, expected);
          }
        }
      }
    }
  }
}

TEST_P(NetworkOperators, ReductionsAlongAnyAxes) {
  const Shape x = {3, 5, 2, 19};
  const Tensor tensor = noise(x, 12);
  const std::vector<float> values = tensor.as<float>();
  for (const std::vector<Index>& axes : std::vector<std::vector<Index>>{{3}, {0}, {1, 2}, {-1, 0}, {0, 1, 2, 3}}) {
    std::map<Index, std::vector<double>> groups;
    Shape shape = x;
    for (const Index axis : axes) shape[(axis + 4) % 4] = 1;
    for (Index i = 0; i < static_cast<Index>(values.size()); ++i) {
      Index to = 0, rest = i;
      Shape at(4);
      for (Index axis = 3; axis >= 0; --axis) at[axis] = rest % x[axis], rest /= x[axis];
      for (Index axis = 0; axis < 4; ++axis) to = to * shape[axis] + (shape[axis] == 1 ? 0 : at[axis]);
      groups[to].push_back(static_cast<double>(values[i]));
    }
    const auto expected = [&](const std::function<double(const std::vector<double>&)>& of) {
      std::vector<double> all;
      for (const auto& [place, group] : groups) all.push_back(of(group));
      return all;
    };
    const auto sum_of = [](const std::vector<double>& v, const std::function<double(double)>& of) {
      double sum = 0;
      for (const double each : v) sum += of(each);
      return sum;
    };
    const auto check = [&](const std::string& op, const std::function<double(const std::vector<double>&)>& of) {
      expect_near(op, {tensor, integers(axes)}, {}, shape, expected(of));
    };
    check("ReduceSum", [&](const auto& v) { return sum_of(v, [](double a) { return a; }); });
    check("ReduceMean",
          [&](const auto& v) { return sum_of(v, [](double a) { return a; }) / static_cast<double>(v.size()); });
    check("ReduceMax", [&](const auto& v) { return *std::ranges::max_element(v); });
    check("ReduceMin", [&](const auto& v) { return *std::ranges::min_element(v); });
    check("ReduceL1", [&](const auto& v) { return sum_of(v, [](double a) { return std::fabs(a); }); });
    check("ReduceL2", [&](const auto& v) { return std::sqrt(sum_of(v, [](double a) { return a * a; })); });
    check("ReduceLogSumExp", [&](const auto& v) { return std::log(sum_of(v, [](double a) { return std::exp(a); })); });
  }
}

/// h of a layer of LSTM or GRU cells, by their equations.
std::vector<double> recurrence(bool lstm, const Tensor& x, const Tensor& w, const Tensor& r, const Tensor& bias,
                               Index t, Index b, Index input, Index hidden) {
  const std::vector<float> of_x = x.as<float>(), of_w = w.as<float>(), of_r = r.as<float>(), of_bias = bias.as<float>();
  const auto sigmoid = [](double v) { return 1 / (1 + std::exp(-v)); };
  std::vector<double> h(static_cast<std::size_t>(b * hidden)), c = h, result;
  for (Index step = 0; step < t; ++step) {
    const std::vector<double> before = h;
    for (Index i = 0; i < b * hidden; ++i) {
      const Index row = i / hidden, unit = i % hidden;
      double wx[4] = {}, rh[4] = {};
      for (Index g = 0; g < (lstm ? 4 : 3); ++g) {
        const Index line = g * hidden + unit;
        wx[g] = static_cast<double>(of_bias[line]);
        for (Index k = 0; k < input; ++k)
          wx[g] +=
              static_cast<double>(of_w[line * input + k]) * static_cast<double>(of_x[(step * b + row) * input + k]);
        for (Index k = 0; k < hidden; ++k)
          rh[g] += static_cast<double>(of_r[line * hidden + k]) * before[row * hidden + k];
      }
      if (lstm) {
        c[i] = sigmoid(wx[1] + rh[1]) * c[i] + sigmoid(wx[0] + rh[0]) * std::tanh(wx[2] + rh[2]);
        h[i] = sigmoid(wx[3] + rh[3]) * std::tanh(c[i]);
      } else {
        const double z = sigmoid(wx[1] + rh[1]);
        h[i] = (1 - z) * std::tanh(wx[2] + sigmoid(wx[0] + rh[0]) * rh[2]) + z * before[i];
      }
    }
    result.insert(result.end(), h.begin(), h.end());
  }
  return result;
}

TEST_P(NetworkOperators, LayersOfCells) {
  for (const bool lstm : {true, false}) {
    for (const auto& [t, b, input, hidden] :
         std::vector<std::array<Index, 4>>{{1, 1, 3, 5}, {7, 1, 20, 33}, {105, 2, 5, 17}, {2, 3, 1, 1}}) {
      const Index units = (lstm ? 4 : 3) * hidden;
      const Tensor x = noise({t, b, input}, 13), w = noise({1, units, input}, 14), r = noise({1, units, hidden}, 15);
      const Tensor bias = noise({1, units}, 16);
      expect_near("Recurrent", {x, w, r, bias}, {{"cell", {}, {}, lstm ? "lstm" : "gru"}}, {t, b, hidden},
                  recurrence(lstm, x, w, r, bias, t, b, input, hidden));
    }
  }
}

TEST_P(NetworkOperators, ALayerGoesStepByStepAsOverASequence) {
  for (const std::string cell : {"lstm", "gru", "gru-before", "elman", "elman-relu", "slstm"}) {
    Maker maker;
    const Index units = (cell == "lstm" || cell == "slstm" ? 4 : cell.starts_with("gru") ? 3 : 1) * 9;
    const int x = maker.input("x", {-1, 1, 4});
    std::vector<int> reads = {x,  maker.constant(noise({1, units, 4}, 17)), maker.constant(noise({1, units, 9}, 18)),
                              -1, maker.constant(noise({1, units}, 19)),    maker.input("h", {1, 1, 9})};
    const std::size_t states = cell == "lstm" ? 2 : cell == "slstm" ? 4 : 1;
    for (std::size_t k = 1; k < states; ++k) reads.push_back(maker.input("c", {1, 1, 9}));
    maker.output(maker.node("Recurrent", reads, {{"cell", {}, {}, cell}}, static_cast<int>(1 + states)));
    std::vector<Shape> shapes = {{11, 1, 4}};
    for (std::size_t k = 0; k < states; ++k) {
      maker.output(maker.network.nodes.back().writes[1 + k]);
      maker.network.states.push_back({static_cast<int>(1 + k), static_cast<int>(1 + k)});
      shapes.push_back({1, 1, 9});
    }
    Running whole(maker.network, shapes);
    shapes[0] = {1, 1, 4};
    Running step(maker.network, shapes);
    ASSERT_TRUE(whole.status.ok() && step.status.ok()) << cell << whole.status.text;
    const Tensor all = noise({11, 1, 4}, 20);
    whole.set(0, all);
    whole.run();
    const std::vector<float> values = all.as<float>(), expected = whole.output(0).as<float>();
    for (Index t = 0; t < 11; ++t) {
      step.set(0, floats({4}, {values.begin() + 4 * t, values.begin() + 4 * t + 4}));
      step.run();
      const std::vector<float> y = step.output(0).as<float>();
      for (Index i = 0; i < 9; ++i) ASSERT_NEAR(y[i], expected[9 * t + i], 1e-5) << cell << " step " << t;
    }
  }
}

/// A convolution, of a row or of an image [channels, 10, 20] in tiles; the norm of a batch, x sigmoid(x), a product
/// with a bias, an activation.
Maker fused(bool in_pieces, bool of_image) {
  Maker maker;
  const int x = maker.input("x", of_image ? Shape{1, 16, 10, 20} : Shape{1, 3, 20});
  const auto constant = [&](const Shape& shape, std::uint64_t seed) { return maker.constant(noise(shape, seed)); };
  const Index maps = of_image ? 18 : 8;
  const int weights = constant(of_image ? Shape{maps, 16, 3, 3} : Shape{maps, 3, 3}, 21);
  const std::vector<Index> pads(of_image ? 4 : 2, 1);
  const int conv = maker.node("Conv", {x, weights}, {{"pads", pads}});
  std::vector<float> variances(static_cast<std::size_t>(maps));
  std::iota(variances.begin(), variances.end(), 1.0f);
  const int norm = maker.node("BatchNormalization", {conv, constant({maps}, 22), constant({maps}, 23),
                                                     constant({maps}, 24), maker.constant(floats({maps}, variances))});
  const int swish = maker.node("Mul", {norm, maker.node("Sigmoid", {norm})});
  const int sum = maker.node("Add", {maker.node("MatMul", {swish, constant({20, 33}, 25)}), constant({33}, 26)});
  maker.output(maker.node("Relu", {sum}));
  if (in_pieces) {  // outputs stay, so nothing can be taken into what is before it
    for (const Node& node : maker.network.nodes) maker.output(node.writes[0]);
  }
  return maker;
}

TEST_P(NetworkOperators, WhatIsFusedComputesTheSame) {
  for (const bool of_image : {false, true}) {
    const Shape shape = of_image ? Shape{1, 16, 10, 20} : Shape{1, 3, 20};
    Running together(fused(false, of_image).network, {shape}), apart(fused(true, of_image).network, {shape});
    ASSERT_TRUE(together.status.ok() && apart.status.ok()) << together.status.text << apart.status.text;
    for (Running* running : {&together, &apart}) {
      running->set(0, noise(shape, 27));
      running->run();
    }
    const std::vector<float> a = together.output(0).as<float>(), b = apart.output(0).as<float>();
    for (std::size_t i = 0; i < a.size(); ++i) ASSERT_NEAR(a[i], b[i], 1e-4 * (1 + std::fabs(b[i])));
    // The tiles of an image take more than all tensors.
    EXPECT_TRUE(of_image || together.program->workspace_bytes() < apart.program->workspace_bytes());
    together.set(0, noise(shape, 27));
    together.run();
    EXPECT_EQ(together.output(0).as<float>(), a);  // the same bits
  }
}

}  // namespace
}  // namespace penstock::network
