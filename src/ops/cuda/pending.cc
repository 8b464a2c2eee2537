#include "ops/cuda/ops.h"

namespace penstock::ops {

namespace {

[[noreturn]] void refuse() { fail(ErrorCode::unsupported, "whole models do not run on a GPU yet"); }

}  // namespace

Prepared cuda_embedding_forward(const Embedding&, const Target&) { refuse(); }
Prepared cuda_embedding_backward(const Embedding&, const Target&) { refuse(); }
Prepared cuda_linear_forward(const Linear&, const Target&) { refuse(); }
Prepared cuda_linear_backward(const Linear&, bool, const Target&) { refuse(); }
Prepared cuda_residual_norm_forward(const ResidualNorm&, const Target&) { refuse(); }
Prepared cuda_residual_norm_backward(const ResidualNorm&, const Target&) { refuse(); }
Prepared cuda_silu_gate_forward(const SiluGate&, const Target&) { refuse(); }
Prepared cuda_silu_gate_backward(const SiluGate&, const Target&) { refuse(); }
Prepared cuda_causal_convolution_forward(const CausalConvolution&, const Target&) { refuse(); }
Prepared cuda_causal_convolution_backward(const CausalConvolution&, const Target&) { refuse(); }
Prepared cuda_recurrence_forward(const Recurrence&, const Target&) { refuse(); }
Prepared cuda_recurrence_backward(const Recurrence&, const Target&) { refuse(); }
Prepared cuda_cast(const CastShape&, DType, DType, const Target&) { refuse(); }
Prepared cuda_saturation(Index, const Target&) { refuse(); }
Prepared cuda_clear_padding(Index, const Target&) { refuse(); }
Prepared cuda_read_changes(const Changes&, const Target&) { refuse(); }
Prepared cuda_add_last_values(const Changes&, const Target&) { refuse(); }

}  // namespace penstock::ops
