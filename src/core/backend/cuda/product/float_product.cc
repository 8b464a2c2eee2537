#include "backend/cuda/product/float_product.h"

#include <algorithm>

#include "backend/cuda/driver/range.h"
#include "backend/cuda/product/float_pairs.h"
#include "backend/cuda/product/sum_splits.h"
#include "backend/cuda/product/warpgroup_multiply.h"
#include "backend/cuda/scan/scan.h"
#include "base/check.h"

namespace penstock::cuda {
namespace {

/// Two columns of D are stored at once where each pair lies within a row and is aligned.
int vector_of(const ProductShape& shape) {
  return shape.d_alignment % 8 == 0 && shape.d_stride % 2 == 0 && shape.n % 2 == 0 ? 2 : 1;
}

/// Returns the number of floats of the partial sums of one split, M * N and the sums of columns.
Index partial_floats(const ProductShape& shape) {
  return shape.m * shape.n + (shape.epilogue == Epilogue::sum_columns ? shape.m : 0);
}

ProductShape checked(const ProductShape& shape) {
  require(shape.storage == plan::Storage::f32 && shape.result == plan::Storage::f32,
          "an fp32 GEMM must be of f32, not {} to {}", to_string(shape.storage), to_string(shape.result));
  return shape;
}

}  // namespace

int piece_of(int alignment, Index stride, Index columns) {
  return common_alignment(std::min(alignment, 16), {4 * stride, 4 * columns});
}

int stored_columns(const ProductShape& shape, const plan::GpuProductPlan& plan) {
  if (plan.splits == 1) return vector_of(shape);
  // Splits go to the workspace, row after row.
  return partial_floats(shape) % 2 == 0 && shape.n % 2 == 0 ? 2 : 1;
}

plan::GpuProductProblem problem_of(const ProductShape& shape) {
  plan::GpuProductProblem problem{.m = shape.m, .n = shape.n, .k = shape.k};
  problem.a_transposed = shape.a_transposed, problem.b_transposed = shape.b_transposed;
  problem.one_split = shape.epilogue == Epilogue::add_bias || shape.exact;
  problem.exact = shape.exact;
  if (shape.exact) problem.m = kExactRows;
  return problem;
}

KernelSource float_product_source(const ProductShape& shape, const plan::GpuProductPlan& plan) {
  KernelSource source;
  source.entry = "FloatProduct";
  source.constants = {
      {"constexpr int kTeamsM", plan.teams_m},
      {"constexpr int kTeamsN", plan.teams_n},
      {"constexpr int kTilesM", plan.tiles_m},
      {"constexpr int kTilesN", plan.tiles_n},
      {"constexpr int kDepth", plan.depth},
      {"constexpr bool kTransposedA", shape.a_transposed},
      {"constexpr bool kTransposedB", shape.b_transposed},
      {"constexpr int kPieceA", piece_of(shape.a_alignment, shape.a_stride, shape.a_transposed ? shape.m : shape.k)},
      {"constexpr int kPieceB", piece_of(shape.b_alignment, shape.b_stride, shape.b_transposed ? shape.k : shape.n)},
      {"constexpr int kVector", stored_columns(shape, plan)},
      {"constexpr bool kBias", shape.epilogue == Epilogue::add_bias},
      {"constexpr int kBlocks", plan.blocks},
      {"constexpr int kSharedBytes", plan.shared}};
  if (plan.warpgroups) {
    source.file = "backend/cuda/kernels/product/warpgroup_product.cuh";
    source.constants.emplace_back("constexpr int kAhead", plan.ahead);
    source.constants.emplace_back("constexpr bool kSumsOfA", shape.epilogue == Epilogue::sum_columns);
    source.constants.emplace_back("constexpr bool kResident", plan.resident());
    const Index last = (shape.k - 1) % plan::GpuProductPlan::step + 1;
    source.constants.emplace_back("constexpr bool kHalfLast",
                                  plan.splits == 1 && 2 * last <= plan::GpuProductPlan::step);
    source.functions = warpgroup_multiply(plan.tiles_n * plan::GpuProductPlan::columns);
  } else {
    source.file = "backend/cuda/kernels/product/float_product.cuh";
  }
  source.shared_bytes = static_cast<int>(plan.shared);
  source.plan = plan.explain();
  return source;
}

KernelSource sum_splits_source(Index splits) {
  const SplitBlocks blocks = split_blocks(splits);
  KernelSource source;
  source.entry = "SumSplits";
  source.file = "backend/cuda/kernels/product/sum_splits.cuh";
  source.constants = {{"constexpr int kGroups", blocks.groups}, {"constexpr int kAcross", blocks.across}};
  source.plan = "sums over splits of a product";
  return source;
}

void run_sum_splits(const Kernel& kernel, const SumSplitsArguments& arguments, StreamHandle stream) {
  const SplitBlocks of = split_blocks(arguments.splits);
  const Index elements = arguments.m * arguments.n + (arguments.sums == nullptr ? 0 : arguments.m);
  const Index blocks = (elements + of.across - 1) / of.across;
  kernel.launch(static_cast<unsigned>(blocks), static_cast<unsigned>(of.across * of.groups), arguments, stream);
}

FloatProduct::FloatProduct(Device& device, const ProductShape& shape)
    : FloatProduct(device, shape, plan_gpu_product(problem_of(shape), device.model())) {}

FloatProduct::FloatProduct(Device& device, const ProductShape& shape, const plan::GpuProductPlan& plan)
    : shape_(checked(shape)), plan_(plan) {
  if (plan.pairs) {
    pairs_ = std::make_shared<const FloatPairs>(device, shape, plan);
  } else {
    kernel_ = &Kernel::load(device, float_product_source(shape, plan));
  }
  require(shape.epilogue != Epilogue::add_bias || plan.splits == 1,
          "a bias is added to a product of one split, not of {}", plan.splits);
  if (plan.splits > 1) splits_ = &Kernel::load(device, sum_splits_source(plan.splits));
}

std::size_t FloatProduct::splits_bytes() const {
  return plan_.splits > 1 ? static_cast<std::size_t>(4 * plan_.splits * partial_floats(shape_)) : 0;
}

std::size_t FloatProduct::workspace_bytes() const {
  return pairs_ ? padded(splits_bytes()) + pairs_->workspace_bytes() : splits_bytes();
}

void FloatProduct::run(DeviceAddress a, DeviceAddress b, DeviceAddress d, DeviceAddress vector, DeviceAddress workspace,
                       StreamHandle stream, bool add, DeviceAddress unfit) const {
  const Range range("penstock fp32 GEMM");
  const auto fits = [](DeviceAddress address, int alignment) {
    return address % static_cast<DeviceAddress>(std::min(alignment, 16)) == 0;
  };
  require(fits(a, shape_.a_alignment) && fits(b, shape_.b_alignment) && fits(d, shape_.d_alignment),
          "the matrices of a product must be aligned to the {}, {} and {} bytes that were prepared", shape_.a_alignment,
          shape_.b_alignment, shape_.d_alignment);
  const bool has_sums = shape_.epilogue == Epilogue::sum_columns, whole = plan_.splits == 1;
  FloatProductArguments arguments{};
  arguments.a = device_pointer<const float>(a);
  arguments.b = device_pointer<const float>(b);
  arguments.d = device_pointer<float>(whole ? d : workspace);
  arguments.bias = shape_.epilogue == Epilogue::add_bias ? device_pointer<const float>(vector) : nullptr;
  if (has_sums) {
    arguments.sums = whole ? device_pointer<float>(vector) : device_pointer<float>(workspace) + shape_.m * shape_.n;
  }
  arguments.a_stride = shape_.a_stride, arguments.b_stride = shape_.b_stride;
  arguments.d_stride = whole ? shape_.d_stride : shape_.n;
  arguments.d_split = arguments.sums_split = partial_floats(shape_);
  arguments.m = shape_.m, arguments.n = shape_.n, arguments.k = shape_.k;
  arguments.split_k = plan_.split_k;
  arguments.tiles_m = static_cast<int>(plan_.blocks_m(shape_.m));
  arguments.tiles_n = static_cast<int>(plan_.grid_n(shape_.n));
  arguments.add = whole && add ? 1 : 0;
  const DeviceAddress pairs = workspace + padded(splits_bytes());
  if (pairs_) unfit = pairs_->counts(pairs);
  arguments.unfit = device_pointer<const int>(unfit);
  if (pairs_) {
    pairs_->multiply(arguments, pairs, stream);
  } else {
    const Index blocks = plan_.splits * arguments.tiles_m * arguments.tiles_n;
    kernel_->launch(static_cast<unsigned>(blocks), static_cast<unsigned>(plan_.threads()), arguments, stream);
  }
  if (!whole) add_splits(d, has_sums ? vector : 0, workspace, stream, add, unfit);
  if (!pairs_) return;
  arguments.d = device_pointer<float>(d), arguments.d_stride = shape_.d_stride;
  pairs_->repair(arguments, pairs, stream);
  pairs_->replace(a, b, d, vector, pairs, stream, add);
}

void FloatProduct::add_splits(DeviceAddress d, DeviceAddress sums, DeviceAddress workspace, StreamHandle stream,
                              bool add, DeviceAddress unfit) const {
  SumSplitsArguments arguments{};
  arguments.partial = device_pointer<const float>(workspace);
  arguments.d = device_pointer<float>(d);
  arguments.sums = device_pointer<float>(sums);
  arguments.d_stride = shape_.d_stride, arguments.m = shape_.m, arguments.n = shape_.n;
  arguments.splits = static_cast<int>(plan_.splits);
  arguments.add = add ? 1 : 0;
  arguments.unfit = device_pointer<const int>(unfit);
  run_sum_splits(*splits_, arguments, stream);
}

}  // namespace penstock::cuda
