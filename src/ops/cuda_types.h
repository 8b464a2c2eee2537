#pragma once

#include "backend/cuda/scan/scan.h"
#include "penstock/cuda.h"

/// From the public interface to the backend's terms.
namespace penstock::ops {

inline plan::Storage storage_of(CudaType type) {
  return type == CudaType::f32 ? plan::Storage::f32 : type == CudaType::bf16 ? plan::Storage::bf16 : plan::Storage::f16;
}

inline plan::Regime regime_of(CudaRegime regime) {
  switch (regime) {
    case CudaRegime::automatic:
      return plan::Regime::automatic;
    case CudaRegime::direct:
      return plan::Regime::direct;
    case CudaRegime::fused:
      return plan::Regime::fused;
    case CudaRegime::scan:
      return plan::Regime::scan;
  }
  return plan::Regime::automatic;
}

inline cuda::StreamHandle handle_of(CudaStream stream) { return static_cast<cuda::StreamHandle>(stream); }

inline cuda::DeviceSequence sequence_of(const CudaSequence& sequence) {
  return {sequence.data, sequence.row_stride, sequence.step_stride};
}

inline cuda::ScanShape shape_of(const CudaBatch& batch) {
  cuda::ScanShape shape;
  shape.rows = batch.rows;
  shape.steps = batch.steps;
  shape.lengths = batch.lengths;
  shape.cu_seqlens = batch.cu_seqlens;
  shape.longest = batch.longest;
  shape.reset = batch.reset;
  shape.reset_row_stride = batch.steps;
  shape.reset_step_stride = 1;
  return shape;
}

/// Numbers of floats as the GPU's memory shall hold them: rounded to nearest, ties to even.
std::vector<std::uint8_t> stored_as(CudaType type, std::span<const float> values);

}  // namespace penstock::ops
