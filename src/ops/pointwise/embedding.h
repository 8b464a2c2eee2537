#pragma once

#include "ops/op.h"

namespace penstock::ops {

/// A table [vocabulary, width] of which every token takes a row.
struct Embedding {
  Index vocabulary = 1;
  Index width = 1;
};

/// Throws Error(invalid_argument) naming the first token of the batch, in the host's memory, that is outside the
/// vocabulary. Tokens beyond a row's length are not read.
void check_tokens(const Batch& batch, const std::int32_t* tokens, Index vocabulary);

/// tokens [B, T], table -> y [B, T, width]; zeros beyond a row's length.
Op embedding_forward(const Embedding& shape);
/// tokens, dy -> dtable
Op embedding_backward(const Embedding& shape);

}  // namespace penstock::ops
