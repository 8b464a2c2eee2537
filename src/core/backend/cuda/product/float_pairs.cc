#include "backend/cuda/product/float_pairs.h"

#include <algorithm>

#include "backend/cuda/product/warpgroup_multiply.h"

namespace penstock::cuda {
namespace {

constexpr Index kRepairThreads = 512, kRepairLines = 8;  // as the kernel has them

/// Returns the threads of a block that makes pairs, and the rows that it has.
constexpr unsigned split_threads(bool transposed) { return transposed ? 128 : 256; }
constexpr Index split_rows(bool transposed) { return transposed ? 128 : 32; }

/// Returns the bytes in which threads of such a block swap parts of whole rows.
constexpr int split_bytes(bool transposed) { return transposed ? 128 * PairedMatrix::line : 0; }

/// Returns the bytes of sums of the lines that a block of the repair has.
constexpr int repair_bytes() { return 4 * 4 * kRepairThreads; }

/// Hands out parts of a workspace.
struct Places {
  DeviceAddress next;

  template <class T>
  T* take(Index count) {
    T* const place = device_pointer<T>(next);
    next += padded(static_cast<std::size_t>(count) * sizeof(T));
    return place;
  }
};

Index rows_of(const plan::GpuProductPlan& plan, const ProductShape& shape, bool of_a) {
  return of_a ? plan.grid_m(shape.m) * plan.tile_m() : plan.grid_n(shape.n) * plan.tile_n();
}

void take_pairs(PairedMatrix& pairs, Places& places, Index blocks, bool sums) {
  pairs.high = places.take<char>(blocks * pairs.rows * PairedMatrix::line);
  pairs.low = places.take<char>(blocks * pairs.rows * PairedMatrix::line);
  pairs.scale = places.take<float>(blocks * pairs.rows);
  if (sums) pairs.sums = places.take<float>(blocks * pairs.rows);
  pairs.list = places.take<int>(PairedMatrix::most_repaired);
}

/// Returns the plan that makes the product without pairs. Mostly its launch has nothing to do, so it has no more blocks
/// than run at once.
plan::GpuProductPlan plan_of_whole(const ProductShape& shape, const plan::GpuModel& gpu) {
  plan::GpuProductProblem problem = problem_of(shape);
  problem.one_split = true;
  plan::GpuProductPlan plan = plan_product_without_pairs(problem, gpu);
  plan.most_m = std::max<Index>(1, std::min(plan.most_m, gpu.multiprocessors / plan.grid_n(shape.n)));
  return plan;
}

bool wants_sums(const ProductShape& shape) { return shape.epilogue == Epilogue::sum_columns; }

}  // namespace

KernelSource float_pairs_source(const ProductShape& shape, const plan::GpuProductPlan& plan) {
  KernelSource source;
  source.entry = "FloatPairs";
  source.file = "backend/cuda/kernels/product/float_pairs.cuh";
  source.constants = {{"constexpr int kTilesN", plan.tiles_n},
                      {"constexpr int kDepth", plan.depth},
                      {"constexpr int kVector", stored_columns(shape, plan)},
                      {"constexpr bool kBias", shape.epilogue == Epilogue::add_bias},
                      {"constexpr bool kSumsOfA", wants_sums(shape)},
                      {"constexpr int kSharedBytes", plan.shared}};
  source.functions = warpgroup_multiply_shared(plan.tile_n(), plan::Storage::f16);
  source.shared_bytes = static_cast<int>(plan.shared);
  source.plan = plan.explain();
  return source;
}

KernelSource split_pairs_source(const ProductShape& shape, bool of_a) {
  KernelSource source;
  source.entry = "SplitPairs";
  source.file = "backend/cuda/kernels/product/split_pairs.cuh";
  const bool transposed = of_a ? shape.a_transposed : !shape.b_transposed;
  const int piece = of_a ? piece_of(shape.a_alignment, shape.a_stride, shape.k)
                         : piece_of(shape.b_alignment, shape.b_stride, shape.k);
  source.constants = {{"constexpr bool kTransposed", transposed},
                      {"constexpr int kPiece", transposed ? 4 : piece},
                      {"constexpr bool kSums", of_a && wants_sums(shape)},
                      {"constexpr bool kNarrow", !of_a}};
  source.shared_bytes = split_bytes(transposed);
  source.plan = "pairs of float16";
  return source;
}

KernelSource repair_product_source(const ProductShape& shape) {
  KernelSource source;
  source.entry = "RepairProduct";
  source.file = "backend/cuda/kernels/product/repair_product.cuh";
  source.constants = {{"constexpr bool kTransposedA", shape.a_transposed},
                      {"constexpr bool kTransposedB", shape.b_transposed}};
  source.shared_bytes = repair_bytes();
  source.plan = "products of rows that have no pairs";
  return source;
}

FloatPairs::FloatPairs(Device& device, const ProductShape& shape, const plan::GpuProductPlan& plan)
    : shape_(shape),
      plan_(plan),
      blocks_((shape.k + PairedMatrix::block - 1) / PairedMatrix::block),
      multiprocessors_(static_cast<unsigned>(device.model().multiprocessors)),
      clear_(device, 2 + rows_of(plan, shape, true) + rows_of(plan, shape, false), plan::Storage::f32),
      whole_(device, shape, plan_of_whole(shape, device.model())),
      split_a_(&Kernel::load(device, split_pairs_source(shape, true))),
      split_b_(&Kernel::load(device, split_pairs_source(shape, false))),
      kernel_(&Kernel::load(device, float_pairs_source(shape, plan))),
      repair_(&Kernel::load(device, repair_product_source(shape))) {}

FloatPairsArguments FloatPairs::arguments_of(const FloatProductArguments& product, DeviceAddress workspace) const {
  FloatPairsArguments arguments{};
  arguments.product = product;
  arguments.a.rows = rows_of(plan_, shape_, true), arguments.b.rows = rows_of(plan_, shape_, false);
  Places places{workspace};
  // All that is cleared, side by side.
  int* const counts = places.take<int>(2 + arguments.a.rows + arguments.b.rows);
  arguments.a.count = counts, arguments.b.count = counts + 1;
  arguments.a.unfit = counts + 2, arguments.b.unfit = arguments.a.unfit + arguments.a.rows;
  take_pairs(arguments.a, places, blocks_, wants_sums(shape_));
  take_pairs(arguments.b, places, blocks_, false);
  arguments.blocks = static_cast<int>(blocks_);
  arguments.split_blocks = static_cast<int>(plan_.split_k / PairedMatrix::block);
  arguments.splits = static_cast<int>(plan_.splits);
  return arguments;
}

std::size_t FloatPairs::workspace_bytes() const {
  const FloatPairsArguments arguments = arguments_of({}, 0);
  // The list of B is the last part.
  return reinterpret_cast<std::size_t>(arguments.b.list) + padded(sizeof(int) * PairedMatrix::most_repaired);
}

DeviceAddress FloatPairs::counts(DeviceAddress workspace) const { return workspace; }

void FloatPairs::split(const Kernel& kernel, bool transposed, const float* matrix, Index stride, Index rows,
                       const PairedMatrix& pairs, StreamHandle stream) const {
  const SplitPairsArguments arguments{.matrix = matrix, .stride = stride, .rows = rows, .k = shape_.k, .pairs = pairs};
  const Index at_once = split_rows(transposed), launched = (rows + at_once - 1) / at_once * blocks_;
  kernel.launch(static_cast<unsigned>(launched), split_threads(transposed), arguments, stream);
}

void FloatPairs::multiply(const FloatProductArguments& product, DeviceAddress workspace, StreamHandle stream) const {
  const FloatPairsArguments arguments = arguments_of(product, workspace);
  clear_.run(counts(workspace), 0.0F, stream);
  split(*split_a_, shape_.a_transposed, product.a, product.a_stride, product.m, arguments.a, stream);
  split(*split_b_, !shape_.b_transposed, product.b, product.b_stride, product.n, arguments.b, stream);
  const auto tiles = static_cast<unsigned>(plan_.splits * product.tiles_m * product.tiles_n);
  kernel_->launch(std::min(tiles, multiprocessors_), static_cast<unsigned>(plan_.threads()), arguments, stream);
}

void FloatPairs::repair(const FloatProductArguments& product, DeviceAddress workspace, StreamHandle stream) const {
  const Index blocks = (product.n + kRepairLines - 1) / kRepairLines + (product.m + kRepairLines - 1) / kRepairLines;
  const unsigned most = 4 * multiprocessors_;  // mostly there is nothing to do
  repair_->launch(std::min(static_cast<unsigned>(blocks), most), kRepairThreads, arguments_of(product, workspace),
                  stream);
}

void FloatPairs::replace(DeviceAddress a, DeviceAddress b, DeviceAddress d, DeviceAddress vector,
                         DeviceAddress workspace, StreamHandle stream, bool add) const {
  whole_.run(a, b, d, vector, 0, stream, add, counts(workspace));
}

}  // namespace penstock::cuda
