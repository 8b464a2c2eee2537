#pragma once

#include <vector>

#include "backend/cuda/pointwise/optimizer.h"
#include "backend/cuda/pointwise/step_state.h"
#include "ops/op.h"

/// The ops of a training step but for the model's own. Between them passes one StepState in the memory of the device:
/// what the loss and the norms come to, whether the step is taken, and with which factors. The host learns of it later.
namespace penstock::ops {

using cuda::LossKind;
using cuda::LossSums;
using cuda::SquareRanges;
using cuda::StepRules;
using cuda::StepState;

/// Where a step's status lies in one block of memory of the device.
struct StatusLayout {
  static constexpr Index time_fraction = 512;  ///< f64, set by the host: how much of the run's wall time has passed
  static constexpr Index watched = 1024;       ///< u64 pairs (ops/training/saturation.h)

  static constexpr Index bytes(Index watched_layers) { return watched + 16 * watched_layers; }
};
static_assert(sizeof(StepState) <= StatusLayout::time_fraction);

struct LossShape {
  LossKind kind = LossKind::cross_entropy;
  Index width = 1;  ///< O: classes, or values of a position
  DType outputs = DType::f32;
  bool gradient = true;  ///< It is wanted.
};

/// One tensor of the flat store of parameters.
struct StoredTensor {
  Index offset = 0, size = 0;
  bool decay = false;
};

/// AdamW (Loshchilov and Hutter 2019): decay multiplies the weights by 1 - learning rate * weight decay and stays out
/// of the moments. SGD: v = momentum v + g, w = w - learning rate v, with the same decoupled decay.
struct OptimizerShape {
  bool adam = true;
  double beta1 = 0.9, beta2 = 0.99, epsilon = 1e-8;  ///< SGD: beta1 is the momentum
  std::vector<StoredTensor> tensors;
};

/// What every run begins with.
StepState first_step_state(float loss_scale);
/// The learning rate at `fraction` (0..1) of a run.
double step_rate(const StepRules& rules, double fraction);

/// time_fraction, state -> state: clears what the batch before left, and says seed and learning rate of the next.
Op begin_step(const StepRules& rules);
/// outputs [B, T, O], labels or absent, targets or absent, their weights or absent -> doutputs [B, T, O] (absent if not
/// wanted), state. Throws Error(invalid_argument) on the CPU for a label outside -1..O-1; nowhere else are they
/// checked.
Op loss(const LossShape& shape);
/// values [B, width] -> state, where they are noted if one is not finite.
Op check_finite(Index width);
/// gradients [size] -> state: the sum of their squares, and those of two ranges alone, which say whether a gradient
/// vanishes in the backward pass.
Op sum_squares(Index size, const SquareRanges& ranges = {});
/// state -> state: whether to apply the step.
Op decide(const StepRules& rules);
/// gradients, state, values, first moments, second moments (absent for SGD) -> values, first, second, and the values in
/// the type of activations where that is another (else absent).
Op optimizer(const OptimizerShape& shape);
/// from [B, width], state -> to, but only if the step was sound: the state that carries a sequence moves on.
Op keep_state(Index width);

/// total += loss, the sums of another batch.
void add_loss(LossSums& total, const LossSums& loss);

}  // namespace penstock::ops
