#pragma once

#include <optional>

#include "backend/cuda/pointwise/launch.h"
#include "backend/cuda/product/sum_columns.h"

namespace penstock::cuda {

/// y = silu(g) * v of rows that hold g [W], then v [W]; silu(x) = x sigmoid(x).
struct SiluGate {
  Index rows = 1, width = 1;  ///< W, of y
  plan::Storage storage = plan::Storage::bf16;
  bool backward = false;
  bool sums = false;  ///< Backward: the sums of the gradient's columns are wanted, the gradient of a bias in g and v.
  int alignment = kAlignment;
};

struct SiluGateCall {
  DeviceAddress gv = 0;    ///< [rows, 2 W]
  DeviceAddress dy = 0;    ///< [rows, W], backward only
  DeviceAddress to = 0;    ///< Forward: y [rows, W]. Backward: dgv [rows, 2 W], which may be gv
  DeviceAddress sums = 0;  ///< float [2 W], or 0 where none are wanted
};

class SiluGateExecutable {
 public:
  SiluGateExecutable(Device& device, const SiluGate& spec);
  /// Zero before its first use, and left alone by everybody else.
  std::size_t workspace_bytes() const;
  void run(const SiluGateCall& call, DeviceAddress workspace, StreamHandle stream) const;

 private:
  SiluGate spec_;
  RowPlan plan_;
  Index blocks_ = 0;
  const Kernel* kernel_;
  SumParts sums_;                             // of what the kernel's blocks found, or
  std::optional<SumColumnsExecutable> pass_;  // where a row is too long for that, in a pass of its own
};

KernelSource silu_gate_source(const SiluGate& spec);

}  // namespace penstock::cuda
