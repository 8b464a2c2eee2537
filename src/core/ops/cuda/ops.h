#pragma once

#include "ops/pointwise/cast.h"
#include "ops/pointwise/causal_convolution.h"
#include "ops/pointwise/dropout.h"
#include "ops/pointwise/embedding.h"
#include "ops/pointwise/numbered_rows.h"
#include "ops/pointwise/residual_norm.h"
#include "ops/pointwise/sample.h"
#include "ops/pointwise/series.h"
#include "ops/pointwise/silu_gate.h"
#include "ops/product/linear.h"
#include "ops/recurrence/recurrence.h"
#include "ops/recurrence/recurrence_stack.h"
#include "ops/training/training.h"

/// The ops on a GPU. Each is what its namesake without "cuda_" says, operand by operand.
namespace penstock::ops {

using Prepared = std::unique_ptr<Executable>;

Prepared cuda_embedding_forward(const Embedding& shape, const Target& target);
Prepared cuda_embedding_backward(const Embedding& shape, const Target& target);
Prepared cuda_linear_forward(const Linear& shape, const Target& target);
Prepared cuda_linear_backward(const Linear& shape, bool wants_dbias, bool wants_dx, const Target& target);
Prepared cuda_residual_norm_forward(const ResidualNorm& shape, const Target& target);
Prepared cuda_residual_norm_backward(const ResidualNorm& shape, bool wants_sums, const Target& target);
Prepared cuda_silu_gate_forward(const SiluGate& shape, const Target& target);
Prepared cuda_silu_gate_backward(const SiluGate& shape, bool wants_sums, const Target& target);
Prepared cuda_causal_convolution_forward(const CausalConvolution& shape, const Target& target);
Prepared cuda_causal_convolution_backward(const CausalConvolution& shape, const Target& target);
// A recurrence of either kind of cell.
Prepared cuda_scan_forward(const Recurrence& shape, const Target& target);
Prepared cuda_scan_backward(const Recurrence& shape, bool wants_dx, const Target& target);
Prepared cuda_dense_forward(const Recurrence& shape, const Target& target);
Prepared cuda_dense_backward(const Recurrence& shape, bool wants_dx, const Target& target);
/// Layers as a wavefront, or null where it is as quick to run one after the other.
Prepared cuda_stack_forward(const RecurrenceStack& stack, const Target& target);
Prepared cuda_stack_backward(const RecurrenceStack& stack, bool wants_dx, const Target& target);
Prepared cuda_dropout(Index width, const Dropout& shape, const Target& target);
Prepared cuda_residual_sum(Index width, const Dropout& shape, const Target& target);
Prepared cuda_cast(const CastShape& shape, DType from, DType to, const Target& target);
Prepared cuda_saturation(Index width, const Target& target);
Prepared cuda_clear_padding(Index width, const Target& target);
Prepared cuda_numbered_rows(const NumberedRows& shape, bool scatters, const Target& target);
Prepared cuda_read_changes(const Changes& changes, const Target& target);
Prepared cuda_add_last_values(const Changes& changes, const Target& target);

Prepared cuda_begin_step(const StepRules& rules, const Target& target);
Prepared cuda_loss(const LossShape& shape, const Target& target);
Prepared cuda_check_finite(Index width, const Target& target);
Prepared cuda_sum_squares(Index size, const SquareRanges& ranges, const Target& target);
Prepared cuda_decide(const StepRules& rules, const Target& target);
Prepared cuda_optimizer(const OptimizerShape& shape, const Target& target);
Prepared cuda_keep_state(Index width, const Target& target);
Prepared cuda_sample(const Sample& shape, const Target& target);

}  // namespace penstock::ops
