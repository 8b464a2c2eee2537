#pragma once

#include <vector>

#include "backend/cuda/pointwise/optimizer.h"
#include "base/training_step.h"
#include "ops/op.h"

/// The ops of a training step but for the model's own. Between them passes one StepState in the memory of the device:
/// what the loss and the norms come to, whether the step is taken, and with which factors. The host learns of it later.
namespace penstock::ops {

using cuda::SquareRanges;

/// Offsets of the parts of a step's status in one block of the device's memory.
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

/// A matrix of the flat store.
struct StoredMatrix {
  Index offset = 0, rows = 0, columns = 0;
  bool decay = false;
};

/// The rules are those of base/training/optimizers.h. Decay multiplies the weights by 1 - learning rate *
/// weight decay and stays out of the moments.
struct OptimizerShape {
  OptimizerKind kind = OptimizerKind::adamw;
  double beta1 = 0.9, beta2 = 0.99, epsilon = 1e-8;  ///< SGD: beta1 is the momentum
  std::vector<StoredTensor> tensors;
};

/// Returns the state in which every run begins.
StepState first_step_state(float loss_scale);
/// The learning rate at `fraction` (0..1) of a run.
double step_rate(const StepRules& rules, double fraction);

// Operands of the ops below, in order.
// clang-format off
struct BeginStepOperand { enum : int { time_fraction, state_in, state }; };
struct LossOperand { enum : int { outputs, labels, targets, weights, doutputs, state }; };
struct CheckFiniteOperand { enum : int { values, state }; };
struct SumSquaresOperand { enum : int { gradients, state }; };
struct DecideOperand { enum : int { state_in, state }; };
struct OptimizerOperand { enum : int { gradients, state, values_in, first_in, second_in,
                                       values, first, second, copy }; };
struct MuonOperand { enum : int { gradients, state, values_in, momentum_in, values, momentum }; };
struct KeepStateOperand { enum : int { from, state, to }; };
// clang-format on

/// Clears what the batch before left in the state, and says seed and learning rate of the next.
Op begin_step(const StepRules& rules);
/// Reads outputs [B, T, O] and labels, or targets and their weights. Writes doutputs [B, T, O], absent if not wanted,
/// and the state. Throws Error(invalid_argument) on the CPU for a label outside -1..O-1; nowhere else are they checked.
Op loss(const LossShape& shape);
/// Notes in the state whether one of the values [B, width] is not finite.
Op check_finite(Index width);
/// Sums the squares of gradients [size], and those of two ranges alone, which say whether a gradient vanishes in the
/// backward pass.
Op sum_squares(Index size, const SquareRanges& ranges = {});
/// Writes to the state whether to apply the step.
Op decide(const StepRules& rules);
/// Updates values, first moments and second moments (absent for a rule with one moment), in place, and writes a copy of
/// the values in the type of activations where that is another (else absent).
Op optimizer(const OptimizerShape& shape);
/// Updates matrices and their momentum in place by Muon. CPUs only.
Op muon(const std::vector<StoredMatrix>& matrices);
/// Copies from [B, width], but only if the step was sound: the state that carries a sequence moves on.
Op keep_state(Index width);

/// total += loss, the sums of another batch.
void add_loss(LossSums& total, const LossSums& loss);

}  // namespace penstock::ops
