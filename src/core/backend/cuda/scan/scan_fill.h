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
  arguments.restarts = device_pointer<const float>(shape.restarts.data);
  arguments.restart_row = shape.restarts.row, arguments.restart_step = shape.restarts.step;
  arguments.learnt = device_pointer<const char>(shape.learnt);
  arguments.header = device_pointer<ScanHeader>(workspace);
  arguments.steps = shape.steps;
  arguments.channels = static_cast<int>(shape.channels);
  arguments.channel_tiles = static_cast<int>(plan.channel_tiles(shape.channels));
  arguments.chains = static_cast<int>(shape.rows * plan.channel_tiles(shape.channels));
  return arguments;
}

/// Sets the arguments that depend on the direction.
inline void set_tensors(ScanArguments& arguments, const ScanForward& call) {
  const Index bytes = plan::size_of(call.shape.storage);
  set_all(arguments.in, call.terms, call.shape.rule.gates, bytes);
  arguments.out[0] = tensor_of(call.y, bytes);
  arguments.state_in = device_pointer<const float>(call.state_in);
  arguments.state_out = device_pointer<float>(call.state_out);
  arguments.earlier = device_pointer<const float>(call.earlier);
  arguments.descending = call.shape.reverse ? 1 : 0;
}

inline void set_tensors(ScanArguments& arguments, const ScanBackward& call) {
  const Index bytes = plan::size_of(call.shape.storage);
  const ScanRule& rule = call.shape.rule;
  set_all(arguments.in, call.terms, rule.read_back, bytes);
  arguments.in[rule.read_back] = tensor_of(call.y, bytes);
  arguments.in[rule.read_back + 1] = tensor_of(call.dy, bytes);
  set_all(arguments.out, call.dterms, rule.gates, bytes);
  arguments.state_in = device_pointer<const float>(call.dstate_out);
  arguments.state_out = device_pointer<float>(call.dstate_in);
  arguments.earlier = device_pointer<const float>(call.earlier);
  arguments.entry = device_pointer<const float>(call.state_in);
  arguments.dlearnt = device_pointer<float>(call.dlearnt);
  arguments.drestarts = device_pointer<float>(call.drestarts);
  const bool of_steps = call.shape.restarts.step != 0;
  arguments.drestart_group = of_steps ? 0 : call.shape.rows * call.shape.channels;
  arguments.drestart_row = of_steps ? call.shape.restarts.row : call.shape.channels;
  arguments.drestart_step = call.shape.restarts.step;
  arguments.descending = call.shape.reverse ? 0 : 1;
}

}  // namespace penstock::cuda::fill
