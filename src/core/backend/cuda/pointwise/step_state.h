#pragma once

/// StepState, StepRules and LossSums as kernels see them; the host reads and writes whole structs by copies.
namespace penstock::cuda {

#include "base/training/step_state.h"

/// Loss of a training step.
enum class LossKind { cross_entropy, mse, mae };

}  // namespace penstock::cuda
