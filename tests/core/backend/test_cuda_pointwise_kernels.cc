// Every kernel between matrix products compiles for Hopper, and a sample of them for other chips, without a GPU and
// without spills. Needs NVRTC.

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "backend/cuda/driver/sources.h"
#include "backend/cuda/pointwise/changes.h"
#include "backend/cuda/pointwise/convolution.h"
#include "backend/cuda/pointwise/copy.h"
#include "backend/cuda/pointwise/embedding.h"
#include "backend/cuda/pointwise/loss.h"
#include "backend/cuda/pointwise/optimizer.h"
#include "backend/cuda/pointwise/rms_norm.h"
#include "backend/cuda/pointwise/sample.h"
#include "backend/cuda/pointwise/silu_gate.h"
#include "backend/cuda/product/few_rows_product.h"
#include "support/compiled_kernel.h"

namespace penstock::cuda {
namespace {

using plan::Storage;

constexpr Storage all_storages[] = {Storage::f32, Storage::bf16, Storage::f16};
/// A width that vectors fit, one that they do not, one that several warps share, and ones whose rows registers cannot
/// hold.
constexpr Index all_widths[] = {7, 512, 100'000, 100'003};

void add_row_kernels(std::vector<KernelSource>& list, Storage storage, Index width) {
  const auto add = [&](const KernelSource& source) { list.push_back(source); };
  add(embedding_forward_source({.width = width, .storage = storage}));
  for (const bool more : {false, true}) {
    Embedding embedding{.width = width, .storage = storage};
    embedding.add = more;
    add(embedding_backward_source(embedding, false));
    add(embedding_backward_source(embedding, true));
    RmsNorm norm{.width = width, .storage = storage, .branch = more, .add_dx = more};
    add(rms_norm_forward_source(norm));
    add(rms_norm_backward_source(norm));
    norm.sums = true;
    add(rms_norm_backward_source(norm));
    norm.dropout.probability = more ? 0.1 : 0.0;
    add(rms_norm_forward_source(norm));
    add(silu_gate_source({.width = width, .storage = storage, .backward = more}));
    add(silu_gate_source({.width = width, .storage = storage, .backward = true, .sums = true}));
    Loss loss{.width = width, .outputs = more ? Storage::f32 : storage, .gradients = storage, .gradient = more};
    add(loss_source(loss, LossPart::loss));
    loss.kind = more ? LossKind::mse : LossKind::mae;
    add(loss_source(loss, LossPart::loss));
    add(loss_source(loss, LossPart::weights));
  }
  for (const auto numbered : {CopyRows::Numbered::none, CopyRows::Numbered::from, CopyRows::Numbered::to}) {
    add(copy_rows_source(
        {.width = width, .from_stride = width, .to_stride = width, .numbered = numbered, .to = storage}));
  }
}

void add_convolutions(std::vector<KernelSource>& list, Storage storage) {
  for (const Index width : {7, 512}) {
    for (const Index taps : {1, 8, 32, 33}) {  // 8 of vectors and 32 fill the registers
      const Convolution spec{.width = width, .taps = taps, .storage = storage};
      list.push_back(convolution_source(spec, ConvolutionPart::forward));
      list.push_back(convolution_source(spec, ConvolutionPart::backward));
      if (!is_long(spec)) continue;
      list.push_back(convolution_source(spec, ConvolutionPart::state));
      list.push_back(convolution_source(spec, ConvolutionPart::weights));
    }
  }
}

void add_flat_kernels(std::vector<KernelSource>& list, Storage storage) {
  for (const bool more : {false, true}) {
    Residual residual{.storage = storage, .add = more};
    list.push_back(residual_source(residual));
    residual.dropout.probability = 0.1;
    list.push_back(residual_source(residual));
    list.push_back(optimizer_source({.kind = more ? OptimizerKind::adamw : OptimizerKind::sgd, .storage = storage}));
    list.push_back(changes_source(storage, more));
  }
  for (const Storage other : all_storages) list.push_back(cast_source(other, storage));
  list.push_back(fill_source(storage));
  list.push_back(check_finite_source(storage));
  for (const Index rows : {1, 3, 8}) {
    for (const Index inner : {7, 40, 512}) {
      ProductShape shape{.storage = storage, .result = storage, .m = rows, .n = 100, .k = inner, .b_transposed = true};
      shape.a_stride = shape.b_stride = inner, shape.epilogue = Epilogue::add_bias;
      list.push_back(few_rows_source(shape));
    }
  }
  for (const Index classes : {1, 300, 2048, 2049}) {
    list.push_back(sample_source({.classes = classes, .logits = storage}));
  }
}

std::vector<KernelSource> other_kernels() {
#define PENSTOCK_UPDATE(rule, ...) optimizer_source({.kind = OptimizerKind::rule, .copy = false}),
#define PENSTOCK_BEGIN(schedule, ...) begin_step_source(ScheduleKind::schedule),
  std::vector<KernelSource> list = {PENSTOCK_SCHEDULES(PENSTOCK_BEGIN) decide_source(),
                                    sum_squares_source(false),
                                    sum_squares_source(true),
                                    sum_parts_source(false),
                                    sum_parts_source(true),
                                    PENSTOCK_OPTIMIZERS(PENSTOCK_UPDATE) PENSTOCK_UPDATE(average)
                                        loss_source({}, LossPart::weights),
                                    loss_source({}, LossPart::finish),
                                    loss_source({}, LossPart::finish_weights)};
  for (const int bits : {1, 9, 11}) {
    for (const bool first : {false, true}) {
      for (const SortPart part : {SortPart::count, SortPart::scan, SortPart::scatter}) {
        list.push_back(sort_source(part, first, bits));
      }
    }
  }
  return list;
}

void expect_sound(const KernelSource& source, int architecture) {
  const Compiled compiled = compile_kernel(source, architecture);
  const test::Report report = test::report_of(compiled.log);
  SCOPED_TRACE(source.text() + "\n" + compiled.log);
  EXPECT_EQ(report.stack, 0);
  EXPECT_EQ(report.spills, 0);
  EXPECT_GT(report.registers, 0);
  EXPECT_LE(report.shared, 48 << 10);
  EXPECT_THAT(compiled.log, testing::Not(testing::HasSubstr("warning")));
}

/// Only Hopper has every kernel compiled: before it, kernels do not start early, which is all that differs.
class EveryChip : public testing::TestWithParam<int> {
 protected:
  void SetUp() override { test::need_nvrtc(GetParam()); }

  void expect_all_sound(const std::vector<KernelSource>& list) const {
    const std::size_t every = GetParam() == 90 || test::compiles_all() ? 1 : GetParam() == 80 ? 12 : 24;
    for (std::size_t i = 0; i < list.size(); i += every) expect_sound(list[i], GetParam());
  }
};

TEST_P(EveryChip, RowsFitTheirRegisters) {
  for (const Storage storage : all_storages) {
    for (const Index width : all_widths) {
      // f16 differs from bf16 in one instruction. The sample has each width, and short and long rows of each storage.
      const bool sampled = storage == Storage::f32 ? width == 512 || width == 100'003 : width != 100'003;
      if (storage == Storage::f16 ? width != 512 : !sampled && !test::compiles_all()) continue;
      std::vector<KernelSource> list;
      add_row_kernels(list, storage, width);
      expect_all_sound(list);
    }
  }
}

TEST_P(EveryChip, ConvolutionsFitTheirRegisters) {
  for (const Storage storage : {Storage::f32, Storage::bf16}) {
    std::vector<KernelSource> list;
    add_convolutions(list, storage);
    expect_all_sound(list);
  }
}

TEST_P(EveryChip, FlatKernelsCompile) {
  for (const Storage storage : all_storages) {
    std::vector<KernelSource> list;
    add_flat_kernels(list, storage);
    expect_all_sound(list);
  }
}

TEST_P(EveryChip, OthersCompile) { expect_all_sound(other_kernels()); }

TEST(EarlyKernels, WaitBeforeAllElse) {
  int found = 0;
  for (const auto& [name, text] : kernel_sources()) {
    const bool early = name.find("kernels/pointwise/") != std::string::npos || name.ends_with("/scan_forward.cuh") ||
                       name.ends_with("/scan_backward.cuh") || name.ends_with("/sum_columns.cuh") ||
                       name.ends_with("/few_rows_product.cuh");
    const std::size_t entry = text.find("extern \"C\" __global__");
    if (!early || entry == std::string::npos) continue;
    ++found;
    EXPECT_EQ(text.find("extern \"C\"", entry + 1), std::string::npos) << name << " has two entries";
    const std::size_t body = text.find_first_not_of(" \n", text.find('{', entry) + 1);
    EXPECT_EQ(text.compare(body, 22, "WaitForKernelBefore();"), 0) << name;
  }
  EXPECT_GT(found, 30);
}

INSTANTIATE_TEST_SUITE_P(Cuda, EveryChip, testing::ValuesIn(test::kChips),
                         [](const auto& chip) { return "sm_" + std::to_string(chip.param); });

}  // namespace
}  // namespace penstock::cuda
