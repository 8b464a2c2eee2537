#pragma once

#include "backend/cuda/pointwise/launch.h"

namespace penstock::cuda {

/// Rows of numbers from one storage to another. A distance of 0 repeats one row, as a bias in every row of a product.
struct CopyRows {
  Positions positions = {};              ///< A row a position; with lengths, rows beyond them become zeros
  Index width = 1;                       ///< W
  Index copied = 0;                      ///< Values of each row that are copied: zeros follow them. 0: all
  Index from_stride = 1, to_stride = 1;  ///< Elements from row to row; of `batches`, from step to step
  bool batches = false;                  ///< B rows of T steps, each from_batch or to_batch apart, anywhere.
  Index from_batch = 0, to_batch = 0;
  enum class Numbered : int { none, from, to } numbered = Numbered::none;  ///< Rows that CopyRowsCall::numbers choose
  plan::Storage from = plan::Storage::f32, to = plan::Storage::bf16;
  int alignment = kAlignment;
};

struct CopyRowsCall {
  DeviceAddress from = 0;       ///< [rows, W]
  DeviceAddress to = 0;         ///< [rows, W]; not overlapping, or the same rows in the same storage
  DeviceAddress lengths = 0;    ///< int64 [B], or 0
  DeviceAddress numbers = 0;    ///< int32 [rows], with CopyRows::numbered: a row each; negative: no copy
  DeviceAddress condition = 0;  ///< int32, such as StepState::keep: nothing is written where it is 0; or 0 for always
};

class CopyRowsExecutable {
 public:
  CopyRowsExecutable(Device& device, const CopyRows& spec);
  void run(const CopyRowsCall& call, StreamHandle stream) const;

 private:
  CopyRows spec_;
  RowPlan plan_;
  const Kernel* kernel_;
};

/// [size] values from one storage to another.
class CastExecutable {
 public:
  CastExecutable(Device& device, Index size, plan::Storage from, plan::Storage to);
  /// `condition` as in CopyRowsCall.
  void run(DeviceAddress from, DeviceAddress to, DeviceAddress condition, StreamHandle stream) const;

 private:
  Index size_;
  const Kernel* kernel_;
};

/// Sets [size] values to one.
class FillExecutable {
 public:
  FillExecutable(Device& device, Index size, plan::Storage storage);
  void run(DeviceAddress to, float value, StreamHandle stream) const;

 private:
  Index size_;
  plan::Storage storage_;
  const Kernel* kernel_;
};

KernelSource copy_rows_source(const CopyRows& spec);
KernelSource cast_source(plan::Storage from, plan::Storage to);
KernelSource fill_source(plan::Storage storage);

}  // namespace penstock::cuda
