// Products of int8 on every instruction set: the floats that an oracle makes of sums of integers, to the bit.

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <vector>

#include "backend/cpu/instruction_sets.h"
#include "backend/cpu/kernels.h"
#include "base/aligned.h"
#include "base/random.h"

namespace penstock::cpu {
namespace {

/// A product: rows [rows, inputs] of x with a matrix [outputs, inputs].
struct Product {
  Index inputs, outputs, rows;
  std::vector<std::int8_t> weights;
  std::vector<float> scales, bias, x;

  Int8Matrix matrix() const { return {weights.data(), scales.data()}; }
};

Product product(Random& random, Index inputs, Index outputs, Index rows) {
  Product p{inputs, outputs, rows, {}, {}, {}, {}};
  for (Index i = 0; i < inputs * outputs; ++i) {
    p.weights.push_back(static_cast<std::int8_t>(static_cast<int>(random.below(255)) - 127));
  }
  for (Index i = 0; i < outputs; ++i) {
    p.scales.push_back(static_cast<float>(std::abs(random.normal())) * 0.01f);
    p.bias.push_back(static_cast<float>(random.normal()));
  }
  for (Index i = 0; i < rows * inputs; ++i) p.x.push_back(static_cast<float>(random.normal()));
  return p;
}

/// Sums in 64 bits of factors that are rounded one by one.
std::vector<float> by_integers(const Product& p) {
  std::vector<float> y;
  for (Index r = 0; r < p.rows; ++r) {
    const float* const x = p.x.data() + r * p.inputs;
    float most = 0.0f;
    bool finite = true;
    for (Index i = 0; i < p.inputs; ++i) {
      most = std::max(most, std::abs(x[i]));
      finite = finite && std::isfinite(x[i]);
    }
    const float scale = most < 1e-30f ? 0.0f : most / 127.0f, inverse = most < 1e-30f ? 0.0f : 127.0f / most;
    for (Index o = 0; o < p.outputs; ++o) {
      std::int64_t sum = 0;
      for (Index i = 0; finite && i < p.inputs; ++i) {
        sum += std::lround(std::nearbyint(x[i] * inverse)) * std::int64_t{p.weights[o * p.inputs + i]};
      }
      const float factor = scale * p.scales[o];
      const float term = static_cast<float>(sum) * factor;
      y.push_back(finite ? p.bias[o] + term : std::numeric_limits<float>::quiet_NaN());
    }
  }
  return y;
}

std::vector<float> by_kernels(const CellKernels<float>& kernels, const Product& p) {
  AlignedVector<float> packed(kernels.scan_panels(p.inputs, p.outputs));
  kernels.pack_scan(p.inputs, p.outputs, {nullptr, nullptr, p.matrix()}, packed.data());
  AlignedVector<std::uint16_t> rounded((kScanSites + kRoundedRows) * kernels.rounded_inputs(p.inputs), 0xffff);
  std::vector<float> y(static_cast<std::size_t>(p.rows * p.outputs) + 1, -7.0f);
  const Index first = 0, length = p.rows;
  ScanLayer<float> job;
  job.plan.rows = 1;
  job.plan.row_of = &first;
  job.plan.length = &length;
  job.plan.cells = {&first, 1};
  job.input = p.inputs;
  job.hidden = p.outputs;
  job.gates = 1;
  job.x = p.x.data();
  job.x_map = {&first, p.inputs};
  job.packed = packed.data();
  job.bias = p.bias.data();
  job.wx = y.data();
  job.rounded = rounded.data();
  ScanLayerPart part;
  part.slot_end = 1;
  part.end = p.rows;
  part.block_end = (p.outputs + kernels.lanes - 1) / kernels.lanes;
  kernels.scan_layer(job, part);
  EXPECT_EQ(y.back(), -7.0f) << "written past the last value";
  y.pop_back();
  return y;
}

void expect_the_oracles(const CellKernels<float>& kernels, const Product& p) {
  const std::vector<float> got = by_kernels(kernels, p), want = by_integers(p);
  for (std::size_t i = 0; i < want.size(); ++i) {
    const bool same = std::isnan(want[i]) ? std::isnan(got[i]) : std::memcmp(&got[i], &want[i], sizeof(float)) == 0;
    ASSERT_TRUE(same) << p.rows << " x " << p.inputs << " x " << p.outputs << ", value " << i << ": " << got[i]
                      << " instead of " << want[i];
  }
}

/// The kernels that machines with and without dot products of bytes would run on the set in use.
std::vector<CellKernels<float>> all_kernels() {
  std::vector<CellKernels<float>> kernels(2);
  kernels[0] = int8_kernels(kInt8Product);
  FillInt8(kInt8Product, kernels[1]);
  return kernels;
}

class Int8Of : public testing::TestWithParam<std::string_view> {
 protected:
  void SetUp() override { use_isa(GetParam()); }
  void TearDown() override { use_isa(available_isas().front()); }
};

TEST_P(Int8Of, ProductsAreThoseOfIntegers) {
  Random random(3);
  for (const CellKernels<float>& kernels : all_kernels()) {
    for (const Index inputs : {1, 2, 3, 4, 5, 7, 8, 15, 16, 17, 31, 33, 63, 64, 65, 129, 257, 1031}) {
      for (const Index outputs : {1, 3, 4, 5, 8, 15, 16, 17, 33, 67}) {
        for (const Index rows : {1, 2, 3, 5, 6, 7, 9, 13, 18, 131}) {
          if (inputs * outputs * rows > 1 << 20) continue;
          ASSERT_NO_FATAL_FAILURE(expect_the_oracles(kernels, product(random, inputs, outputs, rows)));
        }
      }
    }
  }
}

TEST_P(Int8Of, LargestSumsAreExact) {
  Random random(5);
  constexpr Index inputs = 70001, outputs = 17, rows = 7;  // sums of 16129 * 70001 beyond 2^30
  Product p = product(random, inputs, outputs, rows);
  for (Index o = 0; o < outputs; ++o) {
    for (Index i = 0; i < inputs; ++i) p.weights[o * inputs + i] = static_cast<std::int8_t>(o % 2 == 0 ? 127 : -127);
  }
  for (Index r = 0; r < rows; ++r) {
    for (Index i = 0; i < inputs; ++i) p.x[r * inputs + i] = r % 3 == 0 ? 1.0f : r % 3 == 1 ? -1.0f : 0.25f;
    if (r % 3 == 2) p.x[r * inputs + 5] = 1.0f;
  }
  for (const CellKernels<float>& kernels : all_kernels()) expect_the_oracles(kernels, p);
}

TEST_P(Int8Of, RowsOfNothingAndOfNoNumbers) {
  Random random(7);
  constexpr Index inputs = 37, rows = 9;
  Product p = product(random, inputs, 19, rows);
  const auto row = [&](Index r) { return p.x.begin() + r * inputs; };
  std::fill_n(row(0), inputs, 0.0f);
  std::fill_n(row(1), inputs, 1e-35f);
  row(2)[36] = std::numeric_limits<float>::quiet_NaN();
  row(3)[0] = -std::numeric_limits<float>::infinity();
  row(4)[17] = 3e38f;
  row(5)[17] = -std::numeric_limits<float>::quiet_NaN();
  std::ranges::fill(p.scales, 1e-3f);
  p.scales[3] = 0.0f;
  for (const CellKernels<float>& kernels : all_kernels()) expect_the_oracles(kernels, p);
}

INSTANTIATE_TEST_SUITE_P(Each, Int8Of, testing::ValuesIn(available_isas()),
                         [](const auto& each) { return std::string(each.param); });

}  // namespace
}  // namespace penstock::cpu
