#pragma once

#include "backend/cuda/pointwise/launch.h"
#include "base/training_step.h"

namespace penstock::cuda {

/// The loss of outputs [rows, W], a row a position, and its gradient. What it comes to is left in LossSums in device
/// memory, which StepState begins with.
struct Loss {
  LossKind kind = LossKind::cross_entropy;
  Index rows = 1, width = 256;                    ///< W: classes; mse, mae: values of a position
  plan::Storage outputs = plan::Storage::f32;     ///< Storage of y
  plan::Storage gradients = plan::Storage::bf16;  ///< Storage of the gradient
  bool gradient = true;                           ///< It is wanted.
  int alignment = kAlignment;
};

struct LossCall {
  DeviceAddress y = 0;           ///< [rows, W]: logits or predictions; each is checked to be finite
  DeviceAddress labels = 0;      ///< cross-entropy: int32 [rows], -1 for what is not scored
  DeviceAddress targets = 0;     ///< mse, mae: float [rows, W]; not read where the weight is 0
  DeviceAddress weights = 0;     ///< mse, mae: float [rows, W]
  DeviceAddress gradient = 0;    ///< [rows, W] of loss scale * mean; may be y in the same storage; 0 if not wanted
  DeviceAddress loss_scale = 0;  ///< float, such as StepState::loss_scale, or 0 for 1
  DeviceAddress sums = 0;        ///< LossSums, written
};

class LossExecutable {
 public:
  LossExecutable(Device& device, const Loss& spec);
  std::size_t workspace_bytes() const;
  void run(const LossCall& call, DeviceAddress workspace, StreamHandle stream) const;

 private:
  Loss spec_;
  RowPlan plan_;
  Index blocks_ = 0;
  const Kernel *weights_, *finish_weights_ = nullptr, *loss_, *finish_;
};

enum class LossPart { weights, finish_weights, loss, finish };
KernelSource loss_source(const Loss& spec, LossPart part);

}  // namespace penstock::cuda
