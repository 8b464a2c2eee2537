#include "backend/cuda/product/sum_columns.h"

#include <algorithm>

#include "backend/cuda/scan/scan.h"
#include "base/check.h"

namespace penstock::cuda {
namespace {

#include "backend/cuda/kernels/product/sum_columns_arguments.h"

constexpr int kRowGroups = 16;
constexpr Index kRowsOfASplit = 64;  // at least, lest adding up the splits takes longer than they do
constexpr int kMostColumns = 4;      // of a thread

int vector_of(const ColumnSums& sums) {
  const int size = plan::size_of(sums.storage);
  int vector = std::clamp(sums.alignment / size, 1, kMostColumns);
  while (sums.columns % vector != 0) vector /= 2;
  return vector;
}

}  // namespace

KernelSource sum_columns_source(const ColumnSums& sums) {
  KernelSource source;
  source.entry = "SumColumns";
  source.file = "backend/cuda/kernels/product/sum_columns.cuh";
  source.early = true;
  source.constants = {{"using Storage", storage_type(sums.storage)},
                      {"using Result", storage_type(sums.result)},
                      {"constexpr int kVector", vector_of(sums)},
                      {"constexpr int kGroups", kRowGroups}};
  source.plan = fmt::format("sums of columns: {} columns a thread", vector_of(sums));
  return source;
}

SumColumnsExecutable::SumColumnsExecutable(Device& device, const ColumnSums& sums) : sums_(sums) {
  const Index tile = Index{32} * vector_of(sums);
  tiles_ = (sums.columns + tile - 1) / tile;
  const Index wanted = std::max<Index>(1, 2 * device.model().multiprocessors / tiles_);
  splits_ = std::clamp<Index>(sums.rows / kRowsOfASplit, 1, wanted);
  kernel_ = &Kernel::load(device, sum_columns_source(sums));
}

std::size_t SumColumnsExecutable::workspace_bytes() const {
  return static_cast<std::size_t>(4 * (tiles_ + splits_ * sums_.columns));
}

void SumColumnsExecutable::run(DeviceAddress matrix, DeviceAddress result, DeviceAddress workspace,
                               StreamHandle stream) const {
  SumColumnsArguments arguments{};
  arguments.matrix = device_pointer<const char>(matrix);
  arguments.sums = device_pointer<char>(result);
  arguments.finished = device_pointer<unsigned>(workspace);
  arguments.partial = device_pointer<float>(workspace) + tiles_;
  arguments.rows = sums_.rows;
  arguments.stride = (sums_.stride > 0 ? sums_.stride : sums_.columns) * plan::size_of(sums_.storage);
  arguments.columns = static_cast<int>(sums_.columns);
  arguments.splits = static_cast<int>(splits_);
  kernel_->launch(static_cast<unsigned>(tiles_ * splits_), 32 * kRowGroups, arguments, stream);
}

}  // namespace penstock::cuda
