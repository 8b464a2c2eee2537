#pragma once

#include "backend/cuda/scan/scan.h"

/// The parameters of the kernels that run over [B, T, C], filled in from a call.
namespace penstock::cuda::fill {

#include "backend/cuda/kernels/scan/scan_arguments.h"

inline ScanTensor tensor_of(const DeviceSequence& sequence, Index bytes) {
  return {device_pointer<char>(sequence.data), sequence.row_stride * bytes, sequence.step_stride * bytes};
}

inline void set_all(ScanTensor* tensors, const ScanTerms& terms, int count, Index bytes) {
  for (int g = 0; g < count; ++g) tensors[g] = tensor_of(terms[static_cast<std::size_t>(g)], bytes);
}

/// Returns the arguments that do not depend on the direction. `workspace`: the header and the words that blocks pass
/// on.
inline ScanArguments arguments_of_shape(const ScanShape& shape, const plan::GpuScanPlan& plan,
                                        DeviceAddress workspace) {
  ScanArguments arguments{};
  arguments.lengths = device_pointer<const long long>(shape.lengths);
  arguments.cu_seqlens = device_pointer<const long long>(shape.cu_seqlens);
  arguments.reset = device_pointer<const unsigned char>(shape.reset);
  arguments.reset_row_stride = shape.reset_row_stride;
  arguments.reset_step_stride = shape.reset_step_stride;
  arguments.learnt = device_pointer<const char>(shape.learnt);
  arguments.header = device_pointer<ScanHeader>(workspace);
  arguments.steps = shape.steps;
  arguments.channels = static_cast<int>(shape.channels);
  arguments.channel_tiles = static_cast<int>(plan.channel_tiles(shape.channels));
  arguments.chains = static_cast<int>(shape.rows * plan.channel_tiles(shape.channels));
  return arguments;
}

}  // namespace penstock::cuda::fill
