// Convolutions by a fast Fourier transform: as near to sums in double as products with the filters, with the same bits
// for a row in any batch; other filters are multiplied. And products of the windows of many images.

#include <gtest/gtest.h>

#include <cmath>
#include <numbers>

#include "backend/cpu/instruction_sets.h"
#include "network/network_maker.h"
#include "network/spectrum.h"

namespace penstock::network {
namespace {

struct Case {
  Index images, samples, size, stride, bins;
  Index before = 0, after = 0;
  double sign = -1;

  Index frames() const { return (samples + before + after - size) / stride + 1; }
  std::string text() const { return std::to_string(size) + " by " + std::to_string(images); }
};

constexpr Case kCases[] = {
    {1, 640, 256, 128, 129},         {7, 640, 256, 128, 129},         {16, 160, 64, 32, 33, 0, 0, 1},
    {100, 96, 64, 32, 20},           {3, 200, 64, 9, 33, 3, 9},       {2, 1500, 512, 160, 257, 256, 256},
    {1, 4000, 1024, 512, 400, 7, 0}, {5, 300, 128, 60, 65, 0, 20, 1}, {1, 20'000, 4096, 2000, 64},
};

/// [2 bins, 1, size]: a window that is not symmetric times cosines and sines.
std::vector<float> filters_of(const Case& of) {
  std::vector<float> filters;
  for (Index map = 0; map < 2 * of.bins; ++map) {
    for (Index n = 0; n < of.size; ++n) {
      const double t = static_cast<double>(n) / static_cast<double>(of.size);
      const double window = std::pow(std::sin(std::numbers::pi * t), 2) * (1 + t) + 0.01;
      const double angle =
          2 * std::numbers::pi * static_cast<double>(map % of.bins * n % of.size) / static_cast<double>(of.size);
      filters.push_back(static_cast<float>(window * (map < of.bins ? std::cos(angle) : of.sign * std::sin(angle))));
    }
  }
  return filters;
}

/// The result [images, maps, frames].
std::vector<float> result_of(const Case& of, const Tensor& x, const std::vector<float>& filters, bool by_transforms) {
  Maker maker;
  const int filter = maker.constant(floats({2 * of.bins, 1, of.size}, filters));
  const std::vector<Attribute> attributes = {{"strides", {of.stride}}, {"pads", {of.before, of.after}}};
  maker.output(maker.node("Conv", {maker.input("x", x.shape), filter}, attributes));
  Running running(maker.network, {x.shape}, by_transforms ? &prepare_spectrum : nullptr);
  EXPECT_TRUE(running.status.ok()) << running.status.text;
  running.set(0, x);
  running.run();
  return running.output(0).as<float>();
}

/// The root mean square of the distance from sums in double, over some of the maps.
double distance(const Case& of, const std::vector<float>& x, const std::vector<float>& filters,
                const std::vector<float>& y) {
  const Index maps = 2 * of.bins, frames = of.frames();
  double sum = 0;
  Index count = 0;
  for (Index image = 0; image < of.images; ++image) {
    for (Index map = image % 3; map < maps; map += 1 + maps / 40) {
      for (Index frame = 0; frame < frames; ++frame, ++count) {
        double expected = 0;
        for (Index n = 0; n < of.size; ++n) {
          const Index at = frame * of.stride + n - of.before;
          if (at >= 0 && at < of.samples) {
            expected += static_cast<double>(x[image * of.samples + at]) * filters[map * of.size + n];
          }
        }
        sum += std::pow(y[(image * maps + map) * frames + frame] - expected, 2);
      }
    }
  }
  return std::sqrt(sum / static_cast<double>(count));
}

class Spectra : public ::testing::TestWithParam<std::string_view> {
 protected:
  void SetUp() override { cpu::use_isa(GetParam()); }
};

INSTANTIATE_TEST_SUITE_P(, Spectra, ::testing::ValuesIn(cpu::available_isas()),
                         [](const auto& isa) { return std::string(isa.param); });

TEST_P(Spectra, AreAsExactAsProducts) {
  for (const Case& of : kCases) {
    const Tensor x = noise({of.images, 1, of.samples}, 3);
    const std::vector<float> filters = filters_of(of);
    const std::vector<float> y = result_of(of, x, filters, true), products = result_of(of, x, filters, false);
    ASSERT_EQ(y.size(), products.size()) << of.text();
    EXPECT_TRUE(y != products) << of.text() << " was not transformed";
    const double own = distance(of, x.as<float>(), filters, y);
    EXPECT_LE(own, distance(of, x.as<float>(), filters, products)) << of.text();
  }
}

TEST_P(Spectra, OfARowDoNotDependOnOthers) {
  for (const Index samples : {256, 640}) {  // one frame of each row, and four
    const Case of{100, samples, 256, 128, 129};
    const std::vector<float> filters = filters_of(of);
    const Tensor all = noise({of.images, 1, of.samples}, 5);
    const std::vector<float> values = all.as<float>(), whole = result_of(of, all, filters, true);
    for (const Index images : {1, 7, 16}) {
      Case part = of;
      part.images = images;
      const Index first = 3 * of.samples, size = images * of.samples, results = 2 * of.bins * of.frames();
      const Tensor x =
          floats({images, 1, of.samples}, std::vector<float>(values.begin() + first, values.begin() + first + size));
      const std::vector<float> y = result_of(part, x, filters, true);
      const std::vector<float> expected(whole.begin() + 3 * results, whole.begin() + (3 + images) * results);
      EXPECT_TRUE(y == expected) << images << " of " << samples;
    }
  }
}

TEST_P(Spectra, OtherFiltersAreMultiplied) {
  const Case of{7, 640, 256, 128, 129};
  const Tensor x = noise({of.images, 1, of.samples}, 6);
  const auto are_products = [&](const std::vector<float>& filters) {
    return result_of(of, x, filters, false) == result_of(of, x, filters, true);
  };
  std::vector<float> filters = filters_of(of);
  EXPECT_FALSE(are_products(filters));
  for (const std::size_t at : {std::size_t{300}, filters.size() - 1}) {
    filters = filters_of(of);
    filters[at] += 1e-5f;
    EXPECT_TRUE(are_products(filters)) << at;
  }
  filters = filters_of(of);
  for (std::size_t i = 0; i < filters.size() / 2; ++i) std::swap(filters[i], filters[filters.size() / 2 + i]);
  EXPECT_TRUE(are_products(filters));
  EXPECT_TRUE(are_products(std::vector<float>(filters.size(), 0.0f)));
  for (const float changed : {1e-8f, 3e-7f}) {  // where the window is small beside its largest value
    filters = filters_of(of);
    const std::vector<float> window(filters.begin(), filters.begin() + of.size);
    for (Index i = 0; i < 2 * of.bins * of.size; ++i) {
      const Index n = i % of.size;
      filters[i] = n == 128 ? filters[i] : filters[i] / window[n] * 1e-8f;
    }
    filters[10] = changed;
    EXPECT_EQ(are_products(filters), changed > 1e-8f) << changed;
  }
}

TEST_P(Spectra, ConvolutionsOfManyImagesHaveTheBitsOfFew) {
  const Index channels = 70, length = 9, maps = 65, few = 3;
  const Tensor x = noise({27, channels, length}, 7), w = noise({maps, channels, 5}, 8);
  const std::vector<float> values = x.as<float>();
  const Tensor first = floats({few, channels, length}, {values.begin(), values.begin() + few * channels * length});
  const std::vector<Attribute> attributes = {{"strides", {2}}, {"pads", {4, 4}}};
  const std::vector<float> all = run_node("Conv", {x, w}, attributes, true).as<float>();
  const std::vector<float> part = run_node("Conv", {first, w}, attributes, true).as<float>();
  EXPECT_EQ(std::vector<float>(all.begin(), all.begin() + static_cast<std::ptrdiff_t>(part.size())), part);
}

/// Images of samples that become magnitudes of a transform, then three convolutions. The last of them has one map.
Network chain(const Case& of, const std::vector<float>& filters, bool of_products) {
  Maker maker;
  const auto half = [&](int read, Index first) {
    return maker.node("Slice", {read, maker.constant({first * of.bins}), maker.constant({(first + 1) * of.bins}),
                                maker.constant({1})});
  };
  const auto square = [&](int read) { return maker.node("Pow", {read, maker.constant(floats({}, {2.0f}))}); };
  const int filter = maker.constant(floats({2 * of.bins, 1, of.size}, filters));
  const int x = maker.input("x", {-1, 1, of.samples});
  const int both = maker.node("Conv", {x, filter}, {{"strides", {of.stride}}});
  int last = maker.node("Sqrt", {maker.node("Add", {square(half(both, 0)), square(half(both, 1))})});
  if (of_products) last = maker.node("Relu", {last});  // magnitudes that another step writes
  const auto convolve = [&](const Shape& shape, Index stride, Index before, Index after) {
    const int weights = maker.constant(noise(shape, 11)), bias = maker.constant(noise({shape[0]}, 12));
    const int sums = maker.node("Conv", {last, weights, bias}, {{"strides", {stride}}, {"pads", {before, after}}});
    last = maker.node("Sigmoid", {sums});  // 0 becomes another number
  };
  convolve({70, of.bins, 3}, 1, 1, 1);
  convolve({33, 70, 3}, 2, 2, 0);
  convolve({19, 33, (of.frames() - 1) / 2 + 1}, 1, 0, 0);
  convolve({1, 19, 1}, 1, 0, 0);
  maker.output(last);
  return maker.network;
}

TEST_P(Spectra, ChainsOfManyImagesHaveTheBitsOfFew) {
  for (const Index samples : {640, 768}) {
    const Case of{53, samples, 256, 128, 129};
    const std::vector<float> filters = filters_of(of);
    const Tensor x = noise({of.images, 1, samples}, 9);
    const std::vector<float> values = x.as<float>();
    const auto run = [&](const Network& network, const Tensor& images) {
      Running running(network, {images.shape}, &prepare_spectrum);
      EXPECT_TRUE(running.status.ok()) << running.status.text;
      for (int turn = 0; turn < 2; ++turn) {  // zeros around images are there when other steps have had their place
        running.set(0, images);
        running.session->run();
      }
      return running.output(0).as<float>();
    };
    const Network network = chain(of, filters, false);
    const std::vector<float> all = run(network, x), separate = run(chain(of, filters, true), x);
    EXPECT_EQ(all, separate);
    for (const Index images : {1, 5, 6}) {
      const Tensor part = floats({images, 1, samples}, {values.begin(), values.begin() + images * samples});
      EXPECT_EQ(run(network, part), std::vector<float>(all.begin(), all.begin() + images)) << images;
    }
  }
}

}  // namespace
}  // namespace penstock::network
