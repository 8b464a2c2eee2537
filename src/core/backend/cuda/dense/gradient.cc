#include <algorithm>

#include "backend/cuda/dense/executable.h"
#include "backend/cuda/dense/fill.h"
#include "backend/cuda/dense/head.h"
#include "backend/cuda/product/float_product.h"
#include "backend/cuda/product/sum_splits.h"

namespace penstock::cuda {

using namespace fill;  // NOLINT(google-build-using-namespace): one file's worth of a header

namespace {

/// Sizes of head_gradient.cuh: units of gates (M) and positions of a block, its threads, and padding in shared memory.
constexpr int kTileM = 256, kStep = 32, kGradientThreads = 256, kGap = 8;
constexpr Index kFewestPositions = 256;  // of a chunk: adding up more of them would take longer than they do

/// Columns of a tile: as many as the registers of halves hold sums of, and floats half of that.
int columns_of(const DenseSpec& spec) {
  return spec.storage != plan::Storage::f32 && spec.hidden / spec.heads > 64 ? 128 : 64;
}

Index unit_pitch_of(const DenseSpec& spec) { return product_pitch(spec.hidden, spec.storage); }

ProductShape product_of(const DenseSpec& spec, Index first, Index count, Index positions, int alignment) {
  const Index size = plan::size_of(spec.storage), H = spec.hidden;
  ProductShape shape{.storage = spec.storage, .result = plan::Storage::f32, .tf32 = spec.tf32};
  shape.m = count * H, shape.n = H, shape.k = positions;
  shape.k_varies = true;
  shape.a_transposed = true;
  shape.a_stride = gate_pitch(spec), shape.b_stride = unit_pitch_of(spec), shape.d_stride = H;
  shape.a_alignment = common_alignment(16, {alignment, first * H * size});
  shape.d_alignment = common_alignment(16, {H * H * 4});
  return shape;
}

Index blocks_of(Index units, Index tile) { return (units + tile - 1) / tile; }

/// Tiles of all heads.
Index tiles_of(const DenseSpec& spec, Index gates) {
  const Index D = spec.hidden / spec.heads;
  return spec.heads * blocks_of(gates * D, kTileM) * blocks_of(D, columns_of(spec));
}

}  // namespace

KernelSource head_gradient_source(const DenseSpec& spec, Index gates, int alignment) {
  KernelSource source;
  const int size = plan::size_of(spec.storage), stages = size == 2 ? 4 : 3, columns = columns_of(spec);
  const Index D = spec.hidden / spec.heads;
  source.entry = "DenseHeadGradient";
  source.file = "backend/cuda/kernels/dense/head_gradient.cuh";
  source.shared_bytes = stages * kStep * (kTileM + columns + 2 * kGap) * size;
  source.constants = {{"using Storage", spec.tf32 ? "Tf32" : storage_type(spec.storage)},
                      {"constexpr int kHead", D},
                      {"constexpr int kGates", gates},
                      {"constexpr int kTileN", columns},
                      {"constexpr int kAccess", common_alignment(16, {alignment, D * size})},
                      {"constexpr int kStages", stages},
                      {"constexpr int kSharedBytes", source.shared_bytes}};
  source.plan = fmt::format("gradients of {} gates of recurrent matrices: tiles of {} x {}", gates, kTileM, columns);
  return source;
}

RecurrentGradient::RecurrentGradient(Device& device, const DenseSpec& spec, Index positions, int alignment)
    : spec_(spec), positions_(positions), gates_(plan::cell_traits(spec.cell).gates()) {
  const Index first = plan::cell_traits(spec.cell).first_gates;
  groups_.resize(first < gates_ ? 2 : 1);
  groups_[0].count = first;
  if (first < gates_) groups_[1].first = first, groups_[1].count = gates_ - first;
  if (spec.heads == 1) {
    for (Group& group : groups_) {
      group.product = MatrixProduct(device, product_of(spec, group.first, group.count, positions, alignment));
    }
    return;
  }
  const Index wanted = device.model().multiprocessors / tiles_of(spec, gates_);
  const Index chunks = std::clamp<Index>(wanted, 1, std::max<Index>(1, positions / kFewestPositions));
  chunk_ = (blocks_of(positions, chunks) + kStep - 1) / kStep * kStep;
  chunks_ = blocks_of(positions, chunk_);
  for (Group& group : groups_) {
    group.kernel = &Kernel::load(device, head_gradient_source(spec, group.count, alignment));
    group.blocks = static_cast<unsigned>(tiles_of(spec, group.count) * chunks_);
  }
  if (chunks_ > 1) sum_ = &Kernel::load(device, sum_splits_source(chunks_));
}

Index RecurrentGradient::unit_pitch() const { return unit_pitch_of(spec_); }

std::size_t RecurrentGradient::workspace_bytes() const {
  std::size_t bytes = 0;
  for (const Group& group : groups_) bytes = std::max(bytes, group.product.workspace_bytes());
  const Index D = spec_.hidden / spec_.heads;
  if (chunks_ > 1) bytes = static_cast<std::size_t>(4 * chunks_ * gates_ * spec_.hidden * D);
  return (bytes + 255) / 256 * 256;
}

void RecurrentGradient::run_group(const Group& group, DeviceAddress gates, DeviceAddress operand,
                                  DeviceAddress gradient, DeviceAddress workspace, StreamHandle stream) const {
  const Index size = plan::size_of(spec_.storage), H = spec_.hidden, D = H / spec_.heads;
  const DeviceAddress from = gates + static_cast<DeviceAddress>(group.first * H * size);
  const auto skipped = static_cast<DeviceAddress>(group.first * D * D * 4);
  if (group.kernel == nullptr) {
    group.product.run(from, operand, gradient + skipped, 0, workspace, stream);
    return;
  }
  HeadGradientArguments arguments{};
  arguments.gates = device_pointer<const char>(from);
  arguments.operand = device_pointer<const char>(operand);
  arguments.partial = device_pointer<float>((chunks_ > 1 ? workspace : gradient) + skipped);
  arguments.positions = positions_, arguments.chunk = chunk_;
  arguments.gate_stride = gate_pitch(spec_) * size, arguments.operand_stride = unit_pitch() * size;
  arguments.hidden = static_cast<int>(H), arguments.heads = static_cast<int>(spec_.heads);
  arguments.gates_of_all = static_cast<int>(gates_);
  group.kernel->launch(group.blocks, kGradientThreads, arguments, stream);
}

void RecurrentGradient::run(DeviceAddress gates, DeviceAddress entering, DeviceAddress second, DeviceAddress gradient,
                            DeviceAddress workspace, StreamHandle stream) const {
  for (const Group& group : groups_) {
    run_group(group, gates, group.first == 0 ? entering : second, gradient, workspace, stream);
  }
  if (sum_ == nullptr) return;
  SumSplitsArguments arguments{};
  arguments.partial = device_pointer<const float>(workspace);
  arguments.d = device_pointer<float>(gradient);
  arguments.m = gates_ * spec_.hidden, arguments.n = arguments.d_stride = spec_.hidden / spec_.heads;
  arguments.splits = static_cast<int>(chunks_);
  run_sum_splits(*sum_, arguments, stream);
}

}  // namespace penstock::cuda
