#include "backend/cuda/pointwise/copy.h"

#include "backend/cuda/pointwise/arguments.h"
#include "base/check.h"
#include "base/training_step.h"

namespace penstock::cuda {
namespace {

constexpr int kCastVector = 8;

Index copied_of(const CopyRows& spec) { return spec.copied > 0 ? spec.copied : spec.width; }

RowPlan plan_of(const CopyRows& spec) {
  int vector = vector_for(spec.width, spec.alignment, {spec.from, spec.to});
  for (const Index place : {copied_of(spec), spec.from_stride, spec.to_stride, spec.from_batch, spec.to_batch}) {
    while (place % vector != 0) vector /= 2;
  }
  return plan_rows(spec.width, vector);
}

}  // namespace

KernelSource copy_rows_source(const CopyRows& spec) {
  KernelSource source = pointwise_source("CopyRows", "copy_rows",
                                         {{"using From", storage_type(spec.from)},
                                          {"using To", storage_type(spec.to)},
                                          {"constexpr bool kBatches", spec.batches},
                                          {"constexpr int kNumbered", static_cast<int>(spec.numbered)},
                                          {"constexpr int kCopied", copied_of(spec)}});
  plan_of(spec).add_to(source);
  return source;
}

KernelSource cast_source(plan::Storage from, plan::Storage to) {
  return pointwise_source("Cast", "cast",
                          {{"using From", storage_type(from)},
                           {"using To", storage_type(to)},
                           {"constexpr int kVector", kCastVector},
                           {"constexpr int kThreads", kBlockThreads}});
}

KernelSource fill_source(plan::Storage storage) {
  return pointwise_source("Fill", "fill",
                          {{"using Storage", storage_type(storage)},
                           {"constexpr int kVector", kAlignment / plan::size_of(storage)},
                           {"constexpr int kThreads", kBlockThreads}});
}

CopyRowsExecutable::CopyRowsExecutable(Device& device, const CopyRows& spec) : spec_(spec), plan_(plan_of(spec)) {
  require_positions(spec.positions);
  require_size(spec.width, 1, "width");
  const Index copied = copied_of(spec);
  require(copied <= spec.width, "copied must be at most the width of {}, not {}", spec.width, copied);
  require(spec.batches || (spec.to_stride >= spec.width && (spec.from_stride >= copied || spec.from_stride == 0)),
          "rows must be at least their width of {} apart, or 0 where they are read, not {} and {}", spec.width,
          spec.from_stride, spec.to_stride);
  kernel_ = &Kernel::load(device, copy_rows_source(spec));
}

void CopyRowsExecutable::run(const CopyRowsCall& call, StreamHandle stream) const {
  require_lengths(spec_.positions, call.lengths);
  if (spec_.positions.count() == 0) return;
  require_aligned(call.from, spec_.alignment, "from");
  require_aligned(call.to, spec_.alignment, "to");
  CopyArguments arguments{};
  arguments.from = device_pointer<const char>(call.from);
  arguments.to = device_pointer<char>(call.to);
  arguments.condition = device_pointer<const int>(call.condition);
  arguments.lengths = device_pointer<const long long>(call.lengths);
  arguments.numbers = device_pointer<const int>(call.numbers);
  arguments.rows = spec_.positions.count();
  arguments.from_stride = spec_.from_stride;
  arguments.to_stride = spec_.to_stride;
  arguments.from_batch = spec_.from_batch;
  arguments.to_batch = spec_.to_batch;
  arguments.steps = static_cast<int>(spec_.positions.steps);
  kernel_->launch(blocks_for(arguments.rows, plan_.rows_of_block()), static_cast<unsigned>(plan_.threads), arguments,
                  stream);
}

CastExecutable::CastExecutable(Device& device, Index size, plan::Storage from, plan::Storage to)
    : size_(size), kernel_(&Kernel::load(device, cast_source(from, to))) {
  require(size >= 0, "size must not be negative, not {}", size);
}

void CastExecutable::run(DeviceAddress from, DeviceAddress to, DeviceAddress condition, StreamHandle stream) const {
  if (size_ == 0) return;
  require_aligned(from, kAlignment, "from");
  require_aligned(to, kAlignment, "to");
  const CastArguments arguments{device_pointer<const char>(from), device_pointer<char>(to),
                                device_pointer<const int>(condition), size_};
  kernel_->launch(blocks_for(size_, Index{kBlockThreads} * kCastVector), kBlockThreads, arguments, stream);
}

FillExecutable::FillExecutable(Device& device, Index size, plan::Storage storage)
    : size_(size), storage_(storage), kernel_(&Kernel::load(device, fill_source(storage))) {
  require(size >= 0, "size must not be negative, not {}", size);
}

void FillExecutable::run(DeviceAddress to, float value, StreamHandle stream) const {
  if (size_ == 0) return;
  require_aligned(to, kAlignment, "to");
  const FillArguments arguments{device_pointer<char>(to), size_, value};
  kernel_->launch(blocks_for(size_, Index{kBlockThreads} * kAlignment / plan::size_of(storage_)), kBlockThreads,
                  arguments, stream);
}

}  // namespace penstock::cuda
