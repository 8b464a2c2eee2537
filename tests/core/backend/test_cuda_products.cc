// Products on a GPU against sums in double: floats by kernels of our own, cuBLASLt's choices kept on disk. Skipped
// where there is no GPU.

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <filesystem>
#include <limits>
#include <vector>

#include "backend/cuda/driver/disk_cache.h"
#include "backend/cuda/driver/driver.h"
#include "backend/cuda/product/matrix_product.h"
#include "base/random.h"
#include "support/expect_error.h"
#include "support/gpu.h"

namespace penstock::cuda {
namespace {

using plan::Storage;

/// Returns the bound that split_product.cuh promises for a sum of K products, relative to the sum of their sizes.
double allowed(Index k) { return 0x1p-18 + static_cast<double>(k) * 0x1p-28; }

/// Floats of either sign whose sizes are `range` powers of two apart.
std::vector<float> numbers(Random& random, Index count, int range) {
  std::vector<float> values;
  for (Index i = 0; i < count; ++i) {
    const double size = std::exp2(range * (random.uniform() - 0.5));
    values.push_back(static_cast<float>(size * (2 * random.uniform() - 1)));
  }
  return values;
}

Buffer upload(Stream& stream, const std::vector<float>& values) {
  Buffer buffer(stream, values.size() * sizeof(float));
  buffer.upload(values.data(), buffer.bytes());
  return buffer;
}

std::vector<float> download(const Buffer& buffer, Index count) {
  std::vector<float> values(static_cast<std::size_t>(count));
  buffer.download(values.data(), values.size() * sizeof(float));
  return values;
}

struct Case {
  const char* name;
  Index m, n, k;
  bool a_transposed = false, b_transposed = false, add = false;
  Epilogue epilogue = Epilogue::nothing;
  Index gap = 0;  // behind each row
  int range = 0;  // of the factors' exponents
};

ProductShape shape_of(const Case& c) {
  ProductShape shape{.epilogue = c.epilogue};
  shape.m = c.m, shape.n = c.n, shape.k = c.k;
  shape.a_transposed = c.a_transposed, shape.b_transposed = c.b_transposed;
  shape.a_stride = (c.a_transposed ? c.m : c.k) + c.gap;
  shape.b_stride = (c.b_transposed ? c.k : c.n) + c.gap;
  shape.d_stride = c.n + c.gap;
  return shape;
}

class FloatProductTest : public testing::TestWithParam<Case> {
 protected:
  void SetUp() override {
    if (!driver_complaint().empty()) GTEST_SKIP() << driver_complaint();
    stream = std::make_unique<Stream>(Device::get(0));
    a = numbers(random, (c.a_transposed ? c.k : c.m) * shape.a_stride, c.range);
    b = numbers(random, (c.b_transposed ? c.n : c.k) * shape.b_stride, c.range);
    d = numbers(random, c.m * shape.d_stride, 0);
    vector = numbers(random, std::max(c.m, c.n), 0);
  }

  Case c = GetParam();
  ProductShape shape = shape_of(c);
  Random random{3};
  std::unique_ptr<Stream> stream;
  std::vector<float> a, b, d, vector;

  double a_at(Index row, Index inner) const {
    return a[static_cast<std::size_t>(c.a_transposed ? inner * shape.a_stride + row : row * shape.a_stride + inner)];
  }
  double b_at(Index inner, Index column) const {
    return b[static_cast<std::size_t>(c.b_transposed ? column * shape.b_stride + inner
                                                     : inner * shape.b_stride + column)];
  }

  /// Runs a product; leaves D and the vector behind it.
  template <class Engine>
  void run(const Engine& product, std::vector<float>& got, std::vector<float>& got_vector) {
    const Buffer a_gpu = upload(*stream, a), b_gpu = upload(*stream, b), d_gpu = upload(*stream, d),
                 vector_gpu = upload(*stream, vector);
    Buffer workspace(*stream, product.workspace_bytes());
    workspace.fill(0xff);
    product.run(a_gpu.address(), b_gpu.address(), d_gpu.address(), vector_gpu.address(), workspace.address(),
                stream->handle(), c.add);
    got = download(d_gpu, static_cast<Index>(d.size()));
    got_vector = download(vector_gpu, static_cast<Index>(vector.size()));
  }

  void expect_right(const std::vector<float>& got, const std::vector<float>& got_vector) const {
    double worst = 0;
    for (Index row = 0; row < c.m; ++row) {
      for (Index column = 0; column < shape.d_stride; ++column) {
        const auto at = static_cast<std::size_t>(row * shape.d_stride + column);
        if (column >= c.n) {
          ASSERT_EQ(got[at], d[at]) << "row " << row << " beyond its end";
          continue;
        }
        double want = c.epilogue == Epilogue::add_bias ? vector[static_cast<std::size_t>(column)] : 0, sizes = 0;
        if (c.add) want += d[at];
        sizes = std::abs(want);
        for (Index inner = 0; inner < c.k; ++inner) {
          const double product = a_at(row, inner) * b_at(inner, column);
          want += product;
          sizes += std::abs(product);
        }
        worst = std::max(worst, std::abs(got[at] - want) / sizes);
        ASSERT_LE(std::abs(got[at] - want), allowed(c.k) * sizes) << "row " << row << ", column " << column;
      }
    }
    RecordProperty("worst", fmt::format("{:.2e}", worst));
    if (c.epilogue != Epilogue::sum_columns) return;
    for (Index row = 0; row < c.m; ++row) {
      double want = 0, sizes = 0;
      for (Index inner = 0; inner < c.k; ++inner) want += a_at(row, inner), sizes += std::abs(a_at(row, inner));
      ASSERT_LE(std::abs(got_vector[static_cast<std::size_t>(row)] - want), static_cast<double>(c.k) * 0x1p-24 * sizes);
    }
  }
};

TEST_P(FloatProductTest, KeepsWhatItPromises) {
  std::vector<float> got, got_vector, again, again_vector;
  const FloatProduct product(stream->device(), shape);
  run(product, got, got_vector);
  expect_right(got, got_vector);
  run(product, again, again_vector);
  EXPECT_EQ(got, again) << "the same bits when run again";
  EXPECT_EQ(got_vector, again_vector);
}

/// Every shape of a block gives a right answer, not only the one that is chosen.
TEST_P(FloatProductTest, ByOtherPlansToo) {
  const std::vector<plan::GpuProductPlan> plans = product_plans(problem_of(shape), stream->device().model());
  for (std::size_t i = 0; i < plans.size(); i += 1 + plans.size() / 9) {
    SCOPED_TRACE(plans[i].explain());
    std::vector<float> got, got_vector;
    run(FloatProduct(stream->device(), shape, plans[i]), got, got_vector);
    expect_right(got, got_vector);
  }
}

class FloatPairsTest : public FloatProductTest {
 protected:
  /// Plans with pairs: the best, and the one with the widest tiles.
  std::vector<plan::GpuProductPlan> plans() const {
    std::vector<plan::GpuProductPlan> all = product_plans(problem_of(shape), stream->device().model());
    std::erase_if(all, [](const plan::GpuProductPlan& plan) { return !plan.pairs; });
    const auto widest = std::ranges::max_element(all, {}, &plan::GpuProductPlan::tiles_n);
    return all.empty() ? all : std::vector{all.front(), *widest};
  }
  float& a_of(Index row, Index inner) {
    return a[static_cast<std::size_t>(c.a_transposed ? inner * shape.a_stride + row : row * shape.a_stride + inner)];
  }
  float& b_of(Index inner, Index column) {
    return b[static_cast<std::size_t>(c.b_transposed ? column * shape.b_stride + inner
                                                     : inner * shape.b_stride + column)];
  }
  void expect_right_by_pairs() {
    for (const plan::GpuProductPlan& plan : plans()) {
      SCOPED_TRACE(plan.explain());
      std::vector<float> got, got_vector, again, again_vector;
      const FloatProduct product(stream->device(), shape, plan);
      run(product, got, got_vector);
      expect_right(got, got_vector);
      run(product, again, again_vector);
      EXPECT_EQ(got, again) << "the same bits when run again";
      EXPECT_EQ(got_vector, again_vector);
    }
  }
};

TEST_P(FloatPairsTest, KeepWhatIsPromised) { expect_right_by_pairs(); }

/// Floats far smaller than those beside them, in some rows and columns and then in too many to repair.
TEST_P(FloatPairsTest, AreRepairedOrReplaced) {
  for (const Index unfit : {5, 40}) {
    for (Index i = 0; i < unfit; ++i) a_of(i * 3 % c.m, i % c.k) *= 0x1p-50F;
    b_of(c.k / 2, c.n - 1) *= 0x1p-60F;
    SCOPED_TRACE(unfit);
    expect_right_by_pairs();
  }
}

/// Where floats are far apart, most rows are unfit, and a product without pairs takes over: its infinities become NaN.
TEST_P(FloatPairsTest, PassInfinitiesAndNanOn) {
  const bool replaced = c.range > 28;
  a_of(0, 0) = std::numeric_limits<float>::infinity();
  b_of(0, c.n - 1) = 0;
  b_of(c.k - 1, c.n / 2) = std::numeric_limits<float>::quiet_NaN();
  for (const plan::GpuProductPlan& plan : plans()) {
    std::vector<float> got, got_vector;
    run(FloatProduct(stream->device(), shape, plan), got, got_vector);
    for (Index row = 0; row < c.m; ++row) {
      for (Index column = 0; column < c.n; ++column) {
        double want = 0;
        for (Index inner = 0; inner < c.k; ++inner) want += a_at(row, inner) * b_at(inner, column);
        const float value = got[static_cast<std::size_t>(row * shape.d_stride + column)];
        const std::string where = fmt::format("{}\n{}, {}", plan.explain(), row, column);
        ASSERT_EQ(std::isfinite(value), std::isfinite(want)) << where;
        ASSERT_TRUE(replaced || std::isnan(value) == std::isnan(want)) << where;
      }
    }
  }
}

std::vector<Case> cases() {
  std::vector<Case> list = {
      {.name = "ones", .m = 1, .n = 1, .k = 1},
      {.name = "forward", .m = 131, .n = 100, .k = 37, .b_transposed = true, .epilogue = Epilogue::add_bias},
      {.name = "forward_aligned", .m = 257, .n = 200, .k = 100, .b_transposed = true, .epilogue = Epilogue::add_bias},
      {.name = "forward_gaps",
       .m = 65,
       .n = 33,
       .k = 31,
       .b_transposed = true,
       .epilogue = Epilogue::add_bias,
       .gap = 3},
      {.name = "of_x", .m = 129, .n = 97, .k = 203},
      {.name = "of_x_added", .m = 64, .n = 104, .k = 64, .add = true},
      {.name = "of_weight", .m = 66, .n = 9, .k = 1013, .a_transposed = true, .epilogue = Epilogue::sum_columns},
      {.name = "of_weight_aligned",
       .m = 200,
       .n = 100,
       .k = 2051,
       .a_transposed = true,
       .epilogue = Epilogue::sum_columns},
      {.name = "of_weight_added", .m = 17, .n = 5, .k = 700, .a_transposed = true, .add = true},
      {.name = "both_transposed", .m = 7, .n = 3, .k = 5, .a_transposed = true, .b_transposed = true},
      {.name = "many_tiles", .m = 700, .n = 333, .k = 517, .b_transposed = true, .epilogue = Epilogue::add_bias},
      {.name = "many_tiles_of_x", .m = 1025, .n = 260, .k = 400},
      {.name = "many_tiles_of_weight",
       .m = 260,
       .n = 300,
       .k = 4097,
       .a_transposed = true,
       .add = true,
       .epilogue = Epilogue::sum_columns},
      {.name = "sizes_far_apart", .m = 40, .n = 24, .k = 80, .b_transposed = true, .range = 40}};
  return list;
}

INSTANTIATE_TEST_SUITE_P(Cuda, FloatProductTest, testing::ValuesIn(cases()),
                         [](const auto& param) { return std::string(param.param.name); });
INSTANTIATE_TEST_SUITE_P(Cuda, FloatPairsTest, testing::ValuesIn(cases()),
                         [](const auto& param) { return std::string(param.param.name); });

TEST(FloatProductArguments, AreChecked) {
  if (!driver_complaint().empty()) GTEST_SKIP() << driver_complaint();
  Device& device = Device::get(0);
  test::expect_error(ErrorCode::invalid_argument, "an fp32 GEMM must be of f32, not bf16 to f32",
                     [&] { FloatProduct(device, {.storage = Storage::bf16}); });
  test::expect_error(ErrorCode::invalid_argument, "a product must have sizes of at least 1, not 0 x 1 x 1",
                     [&] { FloatProduct(device, {.m = 0}); });
}

class FewRows : public test::GpuTest {};

TEST_P(FewRows, AreProductsLikeOthers) {
  struct Sizes {
    Index m, n, k, gap;
  };
  for (const auto& [m, n, k, gap] : {Sizes{1, 1, 1, 0}, Sizes{1, 257, 128, 0}, Sizes{2, 5, 7, 3}, Sizes{8, 130, 515, 0},
                                     Sizes{3, 512, 1024, 8}, Sizes{5, 33, 24, 1}}) {
    for (const Epilogue epilogue : {Epilogue::nothing, Epilogue::add_bias}) {
      SCOPED_TRACE(testing::Message() << m << " x " << n << " x " << k << ", gap " << gap);
      ProductShape shape{.storage = storage, .result = storage, .m = m, .n = n, .k = k, .b_transposed = true};
      shape.a_stride = shape.b_stride = k + gap, shape.d_stride = n + gap, shape.epilogue = epilogue;
      shape.a_alignment = shape.b_alignment = shape.d_alignment = 16;
      ASSERT_TRUE(FewRowsProduct::fits(shape));
      const test::Doubles a = numbers(m * shape.a_stride, 1, storage), b = numbers(n * shape.b_stride, 1, storage);
      const test::Doubles bias = numbers(n, 1, storage), before = numbers(m * shape.d_stride, 1, storage);
      const Buffer a_gpu = put(a, storage), b_gpu = put(b, storage), bias_gpu = put(bias, storage);
      Buffer d = put(before, storage);
      const MatrixProduct product(device(), shape);
      EXPECT_EQ(product.workspace_bytes(), 0u);
      repeat(
          [&] {
            product.run(a_gpu.address(), b_gpu.address(), d.address(),
                        epilogue == Epilogue::add_bias ? bias_gpu.address() : 0, 0, stream->handle());
          },
          [&] { return get(d, storage); });
      test::Doubles want = before;
      for (Index row = 0; row < m; ++row) {
        for (Index column = 0; column < n; ++column) {
          double sum = epilogue == Epilogue::add_bias ? bias[static_cast<std::size_t>(column)] : 0.0;
          for (Index inner = 0; inner < k; ++inner) {
            sum += a[static_cast<std::size_t>(row * shape.a_stride + inner)] *
                   b[static_cast<std::size_t>(column * shape.b_stride + inner)];
          }
          want[static_cast<std::size_t>(row * shape.d_stride + column)] = sum;
        }
      }
      EXPECT_TRUE(test::close(get(d, storage), want, allowed(k, 1), 1.0));
    }
  }
  const ProductShape nine{.m = 9, .b_transposed = true}, as_it_is{.m = 1};
  EXPECT_FALSE(FewRowsProduct::fits(nine));
  EXPECT_FALSE(FewRowsProduct::fits(as_it_is));
}

INSTANTIATE_TEST_SUITE_P(Cuda, FewRows, testing::Values(Storage::f32, Storage::bf16, Storage::f16),
                         [](const auto& param) { return std::string(to_string(param.param)); });

class OverPositions : public test::GpuTest {};

/// Gradients of weights: sums over the positions of a batch, however many these are, by an algorithm that was chosen
/// for about as many.
TEST_P(OverPositions, HaveEveryPosition) {
  if (storage != Storage::f32 && !find_blas().complaint.empty()) GTEST_SKIP() << find_blas().complaint;
  struct Sizes {
    Index m, n, k;
  };
  for (const auto& [m, n, k] : {Sizes{264, 8, 5122}, Sizes{1056, 8, 5122}, Sizes{1056, 8, 5120}, Sizes{1056, 16, 5122},
                                Sizes{128, 5, 603}, Sizes{96, 40, 4097}, Sizes{64, 8, 33}, Sizes{32, 24, 1}}) {
    for (const bool varies : {false, true}) {
      SCOPED_TRACE(testing::Message() << m << " x " << n << " x " << k << (varies ? ", as for others" : ""));
      ProductShape shape{.storage = storage, .result = Storage::f32, .m = m, .n = n, .k = k, .a_transposed = true};
      shape.a_stride = m, shape.b_stride = shape.d_stride = n;
      shape.k_varies = varies;
      const test::Doubles a = numbers(k * m, 1, storage), b = numbers(k * n, 1, storage);
      const Buffer a_gpu = put(a, storage), b_gpu = put(b, storage);
      Buffer d = put(test::Doubles(static_cast<std::size_t>(m * n), 0.0), Storage::f32);
      const MatrixProduct product(device(), shape);
      Buffer workspace(*stream, product.workspace_bytes());
      product.run(a_gpu.address(), b_gpu.address(), d.address(), 0, workspace.address(), stream->handle());
      test::Doubles want(static_cast<std::size_t>(m * n), 0.0);
      for (Index inner = 0; inner < k; ++inner) {
        for (Index at = 0; at < m * n; ++at) {
          want[static_cast<std::size_t>(at)] +=
              a[static_cast<std::size_t>(inner * m + at / n)] * b[static_cast<std::size_t>(inner * n + at % n)];
        }
      }
      // Sums of floats; of floats themselves, each product is what three of 11 bits make of it.
      EXPECT_TRUE(test::close(get(d, Storage::f32), want, cuda::allowed(k) * std::sqrt(static_cast<double>(k)), 1.0));
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Cuda, OverPositions, testing::Values(Storage::f32, Storage::bf16, Storage::f16),
                         [](const auto& param) { return std::string(to_string(param.param)); });

/// A 16-bit GEMM of ones, whose result everybody knows.
void expect_sixteens(Stream& stream) {
  constexpr Index size = 16;
  ProductShape shape{.storage = Storage::bf16, .m = size, .n = size, .k = size};
  shape.a_stride = shape.b_stride = shape.d_stride = size;
  const Product product(stream.device(), shape);
  const std::vector<std::uint16_t> ones(size * size, 0x3f80);
  Buffer factor(stream, ones.size() * sizeof ones[0]), d(stream, size * size * sizeof(float)),
      workspace(stream, product.workspace_bytes());
  factor.upload(ones.data(), factor.bytes());
  product.run(factor.address(), factor.address(), d.address(), 0, workspace.address(), stream.handle());
  EXPECT_THAT(download(d, size * size), testing::Each(float{size}));
}

TEST(KeptChoices, AreCheckedBeforeTheyAreUsed) {
  if (!driver_complaint().empty()) GTEST_SKIP() << driver_complaint();
  if (!find_blas().complaint.empty()) GTEST_SKIP() << find_blas().complaint;
  Stream stream(Device::get(0));
  expect_sixteens(stream);
  expect_sixteens(stream);  // by the choice that was kept
  const DiskCache& cache = DiskCache::of_process();
  if (cache.folder().empty()) GTEST_SKIP() << "PENSTOCK_CACHE_DIR asks for no cache";
  constexpr std::size_t algorithm = 64;
  int spoilt = 0;
  for (const auto& file : std::filesystem::directory_iterator(cache.folder())) {
    const std::string name = file.path().stem().string();
    const std::optional<std::string> content = cache.get(name);
    if (!content || content->size() != algorithm) continue;
    cache.put(name, std::string(algorithm, '\x5a'));
    ++spoilt;
  }
  EXPECT_GE(spoilt, 1);
  forget_choices();
  expect_sixteens(stream);
}

/// Factors of bf16 whose rows are no multiples of 16 bytes: large ones are copied, unless zeros follow their rows in
/// memory. Nothing else that follows is multiplied, and nothing is written beyond 16 bytes.
TEST(HalfProduct, CopiesFactorsOfNarrowAlignment) {
  if (!driver_complaint().empty()) GTEST_SKIP() << driver_complaint();
  Stream stream(Device::get(0));
  Random random(5);
  const auto halves = [&](Index count) {
    std::vector<std::uint16_t> values;
    for (Index i = 0; i < count; ++i) {
      const auto value = static_cast<float>(2 * random.uniform() - 1);
      values.push_back(static_cast<std::uint16_t>(std::bit_cast<std::uint32_t>(value) >> 16));
    }
    return values;
  };
  const auto value = [](std::uint16_t half) {
    return static_cast<double>(std::bit_cast<float>(static_cast<std::uint32_t>(half) << 16));
  };
  const auto on_gpu = [&](const auto& values) {
    Buffer buffer(stream, values.size() * sizeof(values[0]));
    buffer.upload(values.data(), buffer.bytes());
    return buffer;
  };
  // Rows in memory `pitch` values apart, with `between` in the gaps.
  const auto spread = [](const std::vector<std::uint16_t>& values, Index width, Index pitch, std::uint16_t between) {
    std::vector<std::uint16_t> rows(values.size() / width * pitch, between);
    for (std::size_t i = 0; i < values.size(); ++i) rows[i / width * pitch + i % width] = values[i];
    return rows;
  };
  constexpr std::uint16_t nan = 0x7fff;
  struct Sizes {
    Index m, n, k;
    bool a_transposed, b_transposed, padded;
  };
  for (const auto& [m, n, k, a_transposed, b_transposed, padded] :
       {Sizes{6000, 3004, 2804, false, true, false}, Sizes{6000, 2804, 3004, false, true, true},
        Sizes{1802, 901, 30000, true, false, false}, Sizes{1802, 901, 30000, true, false, true},
        Sizes{12000, 700, 1600, false, false, false}, Sizes{12000, 700, 1604, false, false, true}}) {
    SCOPED_TRACE(testing::Message() << m << " x " << n << " x " << k << (padded ? ", padded" : ""));
    const auto pitch_of = [padded = padded](Index width) {
      return padded ? product_pitch(width, Storage::bf16) : width;
    };
    ProductShape shape{.storage = Storage::bf16, .a_transposed = a_transposed, .b_transposed = b_transposed};
    shape.m = m, shape.n = n, shape.k = k;
    shape.a_stride = pitch_of(a_transposed ? m : k), shape.b_stride = b_transposed ? k : n;
    shape.d_stride = pitch_of(n), shape.a_padded = shape.d_padded = padded;
    const std::vector<std::uint16_t> a = halves(m * k), b = halves(k * n);
    const Buffer a_gpu = on_gpu(spread(a, a_transposed ? m : k, shape.a_stride, a_transposed ? nan : 0)),
                 b_gpu = on_gpu(b);
    Buffer d_gpu(stream, sizeof(float) * m * shape.d_stride);
    d_gpu.fill(0xff);
    const MatrixProduct product(stream.device(), shape);
    EXPECT_GE(product.workspace_bytes(), 2 * b.size()) << "b is to be copied";
    Buffer workspace(stream, product.workspace_bytes());
    workspace.fill(0xff);
    product.run(a_gpu.address(), b_gpu.address(), d_gpu.address(), 0, workspace.address(), stream.handle());
    product.run(a_gpu.address(), b_gpu.address(), d_gpu.address(), 0, workspace.address(), stream.handle(), true);
    const std::vector<float> got = download(d_gpu, m * shape.d_stride);
    for (Index row = 0; row < m; row += m / 3) {
      for (Index column = 0; column < n; ++column) {
        double want = 0;
        for (Index inner = 0; inner < k; ++inner) {
          want += value(a[static_cast<std::size_t>(a_transposed ? inner * m + row : row * k + inner)]) *
                  value(b[static_cast<std::size_t>(b_transposed ? column * k + inner : inner * n + column)]);
        }
        ASSERT_NEAR(got[static_cast<std::size_t>(row * shape.d_stride + column)], 2 * want, 1e-2) << "row " << row;
      }
      for (Index column = (n + 7) / 8 * 8; column < shape.d_stride; ++column) {
        ASSERT_TRUE(std::isnan(got[static_cast<std::size_t>(row * shape.d_stride + column)])) << "column " << column;
      }
    }
  }
}

}  // namespace
}  // namespace penstock::cuda
