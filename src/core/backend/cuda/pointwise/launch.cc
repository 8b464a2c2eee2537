#include "backend/cuda/pointwise/launch.h"

#include <algorithm>
#include <limits>

#include "backend/cuda/pointwise/arguments.h"
#include "base/check.h"
#include "base/training_step.h"

namespace penstock::cuda {
namespace {

constexpr int kMostThreads = 1024;
/// Values of a row in a thread: as many as leave room for two tensors and their gradients in registers.
constexpr int kMostHeldValues = 32;

}  // namespace

int vector_for(Index width, int alignment, std::initializer_list<plan::Storage> storages, int most) {
  const auto fits = [&](int vector) {
    return width % vector == 0 && std::ranges::all_of(storages, [&](plan::Storage storage) {
             return std::min(kAlignment, vector * plan::size_of(storage)) <= alignment;
           });
  };
  const bool halves = std::ranges::any_of(storages, [](plan::Storage storage) { return plan::size_of(storage) == 2; });
  int vector = std::min(most, halves ? 8 : 4);
  while (vector > 1 && !fits(vector)) vector /= 2;
  return vector;
}

RowPlan plan_rows(Index width, int vector, int wanted) {
  RowPlan plan{.width = width, .vector = vector};
  const Index vectors = (width + vector - 1) / vector;
  while (plan.group < kMostThreads && plan.group * wanted < vectors) plan.group *= 2;
  plan.steps = static_cast<int>((vectors + plan.group - 1) / plan.group);
  plan.threads = std::max(plan.group, kBlockThreads);
  plan.held = plan.steps * vector <= kMostHeldValues;
  return plan;
}

void RowPlan::add_to(KernelSource& source) const {
  source.constants.insert(source.constants.end(), {{"constexpr int kWidth", width},
                                                   {"constexpr int kThreads", threads},
                                                   {"constexpr int kGroup", group},
                                                   {"constexpr int kVector", vector},
                                                   {"constexpr int kSteps", steps},
                                                   {"constexpr bool kHeld", held}});
  source.plan =
      fmt::format("{}: a row of {} for {} threads, {} vectors of {} each", source.entry, width, group, steps, vector);
}

unsigned blocks_for(Index items, Index per_block, Index most) {
  return static_cast<unsigned>(std::min(most, (items + per_block - 1) / per_block));
}

Index resident_blocks(const Device& device, int of_multiprocessor) {
  return static_cast<Index>(device.model().multiprocessors) * of_multiprocessor;
}

Index all_resident(const Device& device, const Kernel& kernel, int threads) {
  return resident_blocks(device, std::max(1, kernel.resident({.block = static_cast<unsigned>(threads)})));
}

KernelSource pointwise_source(std::string entry, const std::string& file, std::vector<Constant> constants) {
  KernelSource source;
  source.entry = std::move(entry);
  source.file = "backend/cuda/kernels/pointwise/" + file + ".cuh";
  source.constants = std::move(constants);
  source.early = true;
  source.plan = source.entry;
  return source;
}

void require_size(Index value, Index least, const char* name) {
  constexpr Index most = std::numeric_limits<int>::max() / 2;
  require(value >= least && value <= most, "{} must be in {}..{}, not {}", name, least, most, value);
}

void require_aligned(DeviceAddress address, int alignment, const char* name) {
  require_address(address, name);
  require_optional(address, alignment, name);
}

void require_optional(DeviceAddress address, int alignment, const char* name) {
  require(address % static_cast<DeviceAddress>(alignment) == 0, "{} must be aligned to {} bytes", name, alignment);
}

void require_positions(const Positions& positions) {
  require_size(positions.rows, 0, "rows");
  require_size(positions.steps, 1, "steps");
  require_size(positions.count(), 0, "rows * steps");
}

void require_lengths(const Positions& positions, DeviceAddress lengths) {
  require((lengths != 0) == positions.lengths || positions.count() == 0, "lengths must be {}",
          positions.lengths ? "an address on the GPU" : "null, as they were when this was prepared");
}

KernelSource sum_parts_source(bool add) {
  return pointwise_source("SumParts", "sum_parts", {{"constexpr bool kAdd", add}, {"constexpr int kGroups", 32}});
}

SumParts::SumParts(Device& device, Index parts, Index size, bool add)
    : parts_(parts), size_(size), kernel_(&Kernel::load(device, sum_parts_source(add))) {}

void SumParts::run(DeviceAddress partial, DeviceAddress first, Index first_size, DeviceAddress second,
                   StreamHandle stream) const {
  if (size_ == 0) return;
  SumPartsArguments arguments{};
  arguments.partial = device_pointer<const float>(partial);
  arguments.first = device_pointer<float>(first);
  arguments.second = device_pointer<float>(second);
  arguments.first_size = first_size;
  arguments.size = size_;
  arguments.parts = static_cast<int>(parts_);
  kernel_->launch(blocks_for(size_, 32), kMostThreads, arguments, stream);
}

}  // namespace penstock::cuda
