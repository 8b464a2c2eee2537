// Products of floats as pairs of float16, on threads of the CPU: the library's host code launches kernels on a fake
// driver, and their texts run as on a GPU, with tensor cores that cut sums off as real ones do.

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <limits>
#include <type_traits>

#include "backend/cuda/driver/driver.h"
#include "backend/cuda/pointwise/arguments.h"
#include "backend/cuda/product/float_pairs.h"
#include "backend/cuda/product/sum_splits.h"
#include "base/random.h"
#include "kernel_threads.h"
#include "support/fake_cuda.h"

alignas(1024) char memory[penstock::test::kSharedBytes];

namespace float_pairs_texts {

struct Texts {
  using Run = void (*)(unsigned blocks, const void* parameters);
  Run split_a, split_b, multiply, repair;
  std::string of_split_a, of_split_b, of_product;  // constants, in the order of the library
};

namespace forward {
constexpr int kTilesN = 3, kDepth = 4, kVector = 2, kPieceA = 16, kPieceB = 16;
constexpr bool kBias = true, kSumsOfA = false, kTransposedA = false, kTransposedB = true;
}  // namespace forward
#define PENSTOCK_CASE forward
#include "backend/float_pairs_texts.inl"

namespace of_x {
constexpr int kTilesN = 2, kDepth = 5, kVector = 1, kPieceA = 4, kPieceB = 4;
constexpr bool kBias = false, kSumsOfA = false, kTransposedA = false, kTransposedB = false;
}  // namespace of_x
#define PENSTOCK_CASE of_x
#include "backend/float_pairs_texts.inl"

namespace of_weight {
constexpr int kTilesN = 4, kDepth = 8, kVector = 2, kPieceA = 4, kPieceB = 4;
constexpr bool kBias = false, kSumsOfA = true, kTransposedA = true, kTransposedB = false;
}  // namespace of_weight
#define PENSTOCK_CASE of_weight
#include "backend/float_pairs_texts.inl"

}  // namespace float_pairs_texts

namespace penstock::cuda {
namespace {

using float_pairs_texts::Texts;
using Floats = std::vector<float>;

struct Case {
  const char* name;
  const Texts* texts;
  Index m, n, k;
  bool a_transposed = false, b_transposed = false;
  Epilogue epilogue = Epilogue::nothing;
  bool add = false;
  int tiles_n = 1, depth = 4;
  Index split_k = 0;  // 0: all
  Index gap = 0;      // behind each row
};

std::vector<Case> cases() {
  using namespace float_pairs_texts;  // NOLINT(google-build-using-namespace)
  return {{.name = "forward",
           .texts = &forward::texts,
           .m = 131,
           .n = 26,
           .k = 200,
           .b_transposed = true,
           .epilogue = Epilogue::add_bias,
           .tiles_n = forward::kTilesN,
           .depth = forward::kDepth},
          {.name = "of_x",
           .texts = &of_x::texts,
           .m = 70,
           .n = 17,
           .k = 130,
           .add = true,
           .tiles_n = of_x::kTilesN,
           .depth = of_x::kDepth,
           .gap = 3},
          {.name = "of_weight",
           .texts = &of_weight::texts,
           .m = 140,
           .n = 34,
           .k = 420,
           .a_transposed = true,
           .epilogue = Epilogue::sum_columns,
           .add = true,
           .tiles_n = of_weight::kTilesN,
           .depth = of_weight::kDepth,
           .split_k = 192}};
}

ProductShape shape_of(const Case& c) {
  ProductShape shape{.m = c.m, .n = c.n, .k = c.k, .a_transposed = c.a_transposed, .b_transposed = c.b_transposed};
  shape.a_stride = (c.a_transposed ? c.m : c.k) + c.gap;
  shape.b_stride = (c.b_transposed ? c.k : c.n) + c.gap;
  shape.d_stride = c.n + c.gap;
  shape.epilogue = c.epilogue;
  return shape;
}

plan::GpuProductPlan plan_of(const Case& c) {
  plan::GpuProductPlan plan;
  plan.warpgroups = plan.pairs = true;
  plan.teams_m = 2, plan.tiles_m = 4, plan.tiles_n = c.tiles_n;
  plan.depth = c.depth, plan.most_m = plan.grid_m(c.m);
  plan.split_k = c.split_k > 0 ? c.split_k : (c.k + 63) / 64 * 64;
  plan.splits = (c.k + plan.split_k - 1) / plan.split_k;
  return plan;
}

std::string constants_of(const KernelSource& source) {
  std::string all;
  for (const Constant& constant : source.constants) {
    if (constant.declaration == "constexpr int kSharedBytes") continue;
    all += (all.empty() ? "" : " ") + constant.value;
  }
  return all;
}

/// Runs what the library launches.
class OnThreads : public LaunchObserver {
 public:
  explicit OnThreads(const Texts& texts) : texts_(texts) {
    test::fake_driver().launching = [this](void* const* arguments) { parameters_ = arguments[0]; };
    Kernel::observe(this);
  }
  ~OnThreads() override {
    Kernel::observe(nullptr);
    test::fake_driver().launching = {};
  }

  int unfit_of_a = 0, unfit_of_b = 0;
  bool replaced = false;

  void before_launch() override {}
  void after_launch(const std::string& kernel) override {
    const unsigned blocks = test::fake_driver().grid;
    if (kernel == "Fill") {
      const auto& fill = of<FillArguments>();
      std::fill_n(reinterpret_cast<float*>(fill.to), fill.size, fill.value);
    } else if (kernel == "SplitPairs") {
      (splits_++ == 0 ? texts_.split_a : texts_.split_b)(blocks, parameters_);
    } else if (kernel == "FloatPairs") {
      unfit_of_a = *of<FloatPairsArguments>().a.count, unfit_of_b = *of<FloatPairsArguments>().b.count;
      texts_.multiply(blocks, parameters_);
    } else if (kernel == "RepairProduct") {
      texts_.repair(blocks, parameters_);
    } else if (kernel == "SumSplits") {
      sum_splits(of<SumSplitsArguments>());
    } else {
      ASSERT_EQ(kernel, "FloatProduct");
      ASSERT_EQ(of<FloatProductArguments>().unfit[0], unfit_of_a);
      replaced = std::max(unfit_of_a, unfit_of_b) > PairedMatrix::most_repaired;
    }
  }

 private:
  template <class Arguments>
  const Arguments& of() const {
    return *static_cast<const Arguments*>(parameters_);
  }

  static void sum_splits(const SumSplitsArguments& args) {
    if (std::max(args.unfit[0], args.unfit[1]) > PairedMatrix::most_repaired) return;
    const Index product = args.m * args.n, all = product + (args.sums == nullptr ? 0 : args.m);
    for (Index at = 0; at < all; ++at) {
      float sum = 0;
      for (int split = 0; split < args.splits; ++split) sum += args.partial[split * all + at];
      float& to = at < product ? args.d[at / args.n * args.d_stride + at % args.n] : args.sums[at - product];
      to = sum + (args.add != 0 && at < product ? to : 0);
    }
  }

  const Texts& texts_;
  const void* parameters_ = nullptr;
  int splits_ = 0;
};

DeviceAddress address_of(const Floats& values) { return reinterpret_cast<DeviceAddress>(values.data()); }

class FloatPairsText : public testing::TestWithParam<Case> {
 protected:
  static void SetUpTestSuite() {
    test::look_for_cuda_in(PENSTOCK_FAKE_CUDA);
    ::setenv("PENSTOCK_CACHE_DIR", "", 1);  // what is compiled here is no kernel
    ::setenv("PENSTOCK_PLANS", "", 1);
    ASSERT_EQ(driver_complaint(), "");
  }

  void SetUp() override {
    fill(a, (c.a_transposed ? c.k : c.m) * shape.a_stride);
    fill(b, (c.b_transposed ? c.n : c.k) * shape.b_stride);
    fill(d, c.m * shape.d_stride);
    fill(vector, std::max(c.m, c.n));
    before = d;
  }

  Case c = GetParam();
  ProductShape shape = shape_of(c);
  plan::GpuProductPlan plan = plan_of(c);
  Random random{5};
  Floats a, b, d, before, vector;

  void fill(Floats& values, Index count) {
    values.clear();
    for (Index i = 0; i < count; ++i) values.push_back(static_cast<float>(random.normal()));
  }
  float& a_at(Index row, Index k) {
    return a[static_cast<std::size_t>(c.a_transposed ? k * shape.a_stride + row : row * shape.a_stride + k)];
  }
  float& b_at(Index k, Index column) {
    return b[static_cast<std::size_t>(c.b_transposed ? column * shape.b_stride + k : k * shape.b_stride + column)];
  }

  OnThreads multiply() {
    OnThreads machine(*c.texts);
    Device& device = Device::get(0);
    const FloatProduct product(device, shape, plan);
    const std::vector<std::uint64_t> workspace((product.workspace_bytes() + 300) / 8, ~std::uint64_t{0});
    const auto at = (reinterpret_cast<DeviceAddress>(workspace.data()) + 255) / 256 * 256;
    const Floats bias = vector;
    product.run(address_of(a), address_of(b), address_of(d), address_of(vector), at, nullptr, c.add);
    return machine;
  }

  /// Returns the largest errors of D and of plain sums of floats, in units of 2^-24 of the sum of the products' sizes.
  std::pair<double, double> errors() {
    double worst = 0, plain_worst = 0;
    for (Index row = 0; row < c.m; ++row) {
      for (Index column = 0; column < c.n; ++column) {
        const auto at = static_cast<std::size_t>(row * shape.d_stride + column);
        const float start = (c.epilogue == Epilogue::add_bias ? vector[static_cast<std::size_t>(column)] : 0) +
                            (c.add ? before[at] : 0);
        double want = start, sizes = std::abs(want);
        float plain = start;
        for (Index k = 0; k < c.k; ++k) {
          const double product = static_cast<double>(a_at(row, k)) * b_at(k, column);
          want += product, sizes += std::abs(product);
          plain += a_at(row, k) * b_at(k, column);
        }
        if (!std::isfinite(want)) {
          EXPECT_EQ(std::isnan(d[at]), std::isnan(want)) << row << ", " << column;
          EXPECT_TRUE(std::isnan(want) || d[at] == static_cast<float>(want)) << row << ", " << column;
          continue;
        }
        if (sizes == 0) sizes = std::numeric_limits<double>::min();
        EXPECT_TRUE(std::isfinite(d[at])) << row << ", " << column;
        worst = std::max(worst, std::abs(d[at] - want) / sizes * 0x1p24);
        plain_worst = std::max(plain_worst, std::abs(plain - want) / sizes * 0x1p24);
      }
    }
    return {worst, plain_worst};
  }

  void expect_right() {
    const auto [worst, plain] = errors();
    RecordProperty("worst", fmt::format("{:.2f}, plain floats {:.2f}", worst, plain));
    EXPECT_LE(worst, std::max(1.0, plain)) << "less exact than plain floats";
    for (Index row = 0; row < c.m; ++row) {
      for (Index column = c.n; column < shape.d_stride; ++column) {
        const auto at = static_cast<std::size_t>(row * shape.d_stride + column);
        ASSERT_EQ(d[at], before[at]) << "row " << row << " beyond its end";
      }
    }
    if (c.epilogue != Epilogue::sum_columns) return;
    for (Index row = 0; row < c.m; ++row) {
      double want = 0, sizes = 0;
      for (Index k = 0; k < c.k; ++k) want += a_at(row, k), sizes += std::abs(a_at(row, k));
      const float got = vector[static_cast<std::size_t>(row)];
      if (std::isfinite(want)) {
        ASSERT_NEAR(got, want, static_cast<double>(c.k) * 0x1p-24 * sizes);
      } else {
        ASSERT_EQ(std::isnan(got), std::isnan(want));
      }
    }
  }
};

TEST_P(FloatPairsText, IsThatOfTheLibrary) {
  EXPECT_EQ(constants_of(split_pairs_source(shape, true)), c.texts->of_split_a);
  EXPECT_EQ(constants_of(split_pairs_source(shape, false)), c.texts->of_split_b);
  EXPECT_EQ(constants_of(float_pairs_source(shape, plan)), c.texts->of_product);
}

TEST_P(FloatPairsText, Multiplies) {
  const OnThreads machine = multiply();
  EXPECT_EQ(machine.unfit_of_a, 0);
  EXPECT_EQ(machine.unfit_of_b, 0);
  expect_right();
}

/// Rows of any size, and columns that are far from each other.
TEST_P(FloatPairsText, ScalesRows) {
  for (Index row = 0; row < c.m; ++row) {
    for (Index k = 0; k < c.k; ++k) a_at(row, k) *= std::ldexp(1.0F, static_cast<int>(row * 53 % 200) - 120);
  }
  for (Index column = 0; column < c.n; ++column) {
    for (Index k = 0; k < c.k; ++k) b_at(k, column) *= std::ldexp(1.0F, static_cast<int>(column * 17 % 60) - 40);
  }
  const OnThreads machine = multiply();
  EXPECT_EQ(machine.unfit_of_a + machine.unfit_of_b, 0);
  expect_right();
}

TEST_P(FloatPairsText, RepairsWhatDoesNotFit) {
  constexpr float infinity = std::numeric_limits<float>::infinity();
  a_at(5, 3) = infinity;
  a_at(6, 9) = std::numeric_limits<float>::quiet_NaN();
  a_at(7, 2) = 0x1p-50F;                                                // beside numbers about 1
  for (Index k = 0; k < 64; ++k) a_at(8, k) = k == 63 ? 1e20F : 1e-3F;  // that only some columns see
  for (Index k = 0; k < c.k; ++k) a_at(9, k) = 0x1p-149F * static_cast<float>(k % 50);
  a_at(c.m - 1, c.k - 1) = 0x1.234p-40F;
  b_at(63, 2) = 0, b_at(1, 3) = -infinity, b_at(c.k - 1, c.n - 1) = 0x1.01p-45F;
  for (Index k = 0; k < c.k; ++k) b_at(k, 4) *= 0x1p-100F;
  const OnThreads machine = multiply();
  EXPECT_EQ(machine.unfit_of_a, 5);
  EXPECT_EQ(machine.unfit_of_b, 3);
  EXPECT_FALSE(machine.replaced);
  expect_right();
}

TEST_P(FloatPairsText, LeavesTooManyToPlainFloats) {
  for (Index row = 0; row <= PairedMatrix::most_repaired; ++row) a_at(2 * row, 1) = 0x1p-60F;
  const OnThreads machine = multiply();
  EXPECT_EQ(machine.unfit_of_a, PairedMatrix::most_repaired + 1);
  EXPECT_TRUE(machine.replaced);
  EXPECT_EQ(d, before) << "nothing is written before the product of plain floats";
}

/// As many powers of two apart as the numbers of test_cuda_products.cc: nothing but the replacement sees infinity.
TEST_P(FloatPairsText, LeavesNumbersFarApartToPlainFloats) {
  for (float& value : a) value *= std::exp2(40 * (static_cast<float>(random.uniform()) - 0.5F));
  a_at(0, 0) = std::numeric_limits<float>::infinity();
  const OnThreads machine = multiply();
  EXPECT_GT(machine.unfit_of_a, PairedMatrix::most_repaired);
  EXPECT_TRUE(machine.replaced);
  EXPECT_EQ(d, before);
}

class FloatPairsError : public FloatPairsText {};

/// Long sums of numbers of one sign, whose errors add up, and of numbers far apart.
TEST_P(FloatPairsError, IsThatOfPlainFloatsAtMost) {
  for (const bool positive : {false, true}) {
    const int range = positive ? 0 : 12;
    for (Floats* values : {&a, &b}) {
      for (float& value : *values) {
        const double size = std::exp2(range * (random.uniform() - 0.5)) * random.uniform();
        value = static_cast<float>(positive || random.uniform() < 0.5 ? size : -size);
      }
    }
    const OnThreads machine = multiply();
    const auto [worst, plain] = errors();
    RecordProperty(positive ? "of_one_sign" : "far_apart", fmt::format("{:.2f}, plain floats {:.2f}", worst, plain));
    EXPECT_LE(worst, plain);
    d = before;
  }
}

INSTANTIATE_TEST_SUITE_P(Backend, FloatPairsError,
                         testing::Values(Case{.name = "long",
                                              .texts = &float_pairs_texts::of_x::texts,
                                              .m = 24,
                                              .n = 16,
                                              .k = 1024,
                                              .tiles_n = float_pairs_texts::of_x::kTilesN,
                                              .depth = float_pairs_texts::of_x::kDepth}),
                         [](const auto& param) { return std::string(param.param.name); });
INSTANTIATE_TEST_SUITE_P(Backend, FloatPairsText, testing::ValuesIn(cases()),
                         [](const auto& param) { return std::string(param.param.name); });

}  // namespace
}  // namespace penstock::cuda
