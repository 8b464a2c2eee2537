#pragma once

#include "backend/cuda/driver/device.h"
#include "backend/cuda/scan/scan.h"
#include "base/check.h"
#include "ops/op.h"
#include "ops/tensor_check.h"
#include "plan/plan.h"

/// Conversions from the terms of ops to those of the CUDA backend.
namespace penstock::ops {

inline plan::Storage storage_of(DType type) {
  require(type == DType::f32 || type == DType::bf16 || type == DType::f16, "a GPU computes in f32, bf16 or f16, not {}",
          to_string(type));
  return type == DType::f32 ? plan::Storage::f32 : type == DType::bf16 ? plan::Storage::bf16 : plan::Storage::f16;
}

/// How a recurrence that knows several ways runs over T: `sequential` is one thread for all steps of its channels,
/// which exact forward passes are, too.
inline plan::ScanAlgorithm scan_algorithm_of(const Execution& execution, bool backward) {
  require(!execution.exact || execution.algorithm != Algorithm::scan, "{}", plan::kScanIsNotExact);
  if (execution.exact && !backward) return plan::ScanAlgorithm::direct;
  switch (execution.algorithm) {
    case Algorithm::automatic:
      return plan::ScanAlgorithm::automatic;
    case Algorithm::sequential:
      return plan::ScanAlgorithm::direct;
    case Algorithm::scan:
      return plan::ScanAlgorithm::scan;
  }
  return plan::ScanAlgorithm::automatic;
}

inline cuda::Device& gpu_of(const Target& target) { return cuda::Device::get(target.device.index); }

inline cuda::StreamHandle stream_of(const Call& call) { return static_cast<cuda::StreamHandle>(call.stream); }

inline cuda::DeviceAddress address_of(const void* memory) { return reinterpret_cast<cuda::DeviceAddress>(memory); }

/// The address of an operand, or 0.
inline cuda::DeviceAddress address_of(const Operands& memory, int i) { return address_of(memory.values[i]); }

/// Stand-ins while an executable is planned, aligned as the memory of programs is: values of the workspace to
/// call_alignment, parameters in a flat store to 16 of their values.
inline constexpr cuda::DeviceAddress planned_value = call_alignment;
inline cuda::DeviceAddress planned_parameter(DType type) { return 16 * size_of(type); }

using cuda::padded;

/// x [B, T, C] without gaps.
inline cuda::DeviceSequence sequence_of(cuda::DeviceAddress data, const Batch& batch, Index channels) {
  return {data, batch.steps * channels, channels};
}

/// Returns a sequence with these strides; without strides, one without gaps.
inline cuda::DeviceSequence sequence_of(cuda::DeviceAddress data, const SequenceStrides& strides, const Batch& batch,
                                        Index channels) {
  if (strides == SequenceStrides{}) return sequence_of(data, batch, channels);
  return {data, strides.row, strides.step};
}

/// Gives a form the addresses of a call's batch, whose lengths and resets lie on the GPU.
template <class Shape>
void set_rows(Shape& shape, const Batch& batch) {
  shape.lengths = address_of(batch.lengths);
  shape.cu_seqlens = address_of(batch.cu_seqlens);
  shape.reset = address_of(batch.reset);
}

/// Rows, steps, lengths and resets of a batch. `packed`: as in Target.
template <class Shape = cuda::ScanShape>
Shape shape_of(const Batch& batch, Index packed = 0) {
  Shape shape;
  shape.rows = batch.rows;
  shape.steps = packed > 0 ? packed : batch.steps;
  if (packed > 0) shape.longest = batch.steps;
  shape.reset_row_stride = shape.steps;
  shape.reset_step_stride = 1;
  set_rows(shape, batch);
  return shape;
}

/// The batch that a target is planned for.
inline Batch planned_batch(const Target& target) {
  Batch batch{.rows = target.rows, .steps = target.steps};
  if (target.has(CallFlag::lengths)) batch.lengths = cuda::device_pointer<Index>(planned_value);
  if (target.packed > 0) batch.cu_seqlens = cuda::device_pointer<Index>(planned_value);
  if (target.has(CallFlag::reset)) batch.reset = cuda::device_pointer<std::uint8_t>(planned_value);
  return batch;
}

}  // namespace penstock::ops
