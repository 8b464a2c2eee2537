#pragma once

#include "backend/cuda/pointwise/launch.h"

namespace penstock::cuda {

/// y = silu(g) * v of rows that hold g [W], then v [W]; silu(x) = x sigmoid(x).
struct SiluGate {
  Index rows = 1, width = 1;  ///< W, of y
  plan::Storage storage = plan::Storage::bf16;
  bool backward = false;
  int alignment = kAlignment;
};

struct SiluGateCall {
  DeviceAddress gv = 0;  ///< [rows, 2 W]
  DeviceAddress dy = 0;  ///< [rows, W], backward only
  DeviceAddress to = 0;  ///< Forward: y [rows, W]. Backward: dgv [rows, 2 W], which may be gv
};

class SiluGateExecutable {
 public:
  SiluGateExecutable(Device& device, const SiluGate& spec);
  void run(const SiluGateCall& call, StreamHandle stream) const;

 private:
  SiluGate spec_;
  RowPlan plan_;
  const Kernel* kernel_;
};

KernelSource silu_gate_source(const SiluGate& spec);

}  // namespace penstock::cuda
