#pragma once

#include "ops/op.h"

namespace penstock::ops {

/// A table [vocabulary, width] of which every token takes a row.
struct Embedding {
  Index vocabulary = 1;
  Index width = 1;
  bool int8 = false;  ///< CPUs, forward passes: the table is int8, and each of its rows has a scale.
};

/// Throws Error(invalid_argument) naming the first token of the batch, in the host's memory, that is outside the
/// vocabulary. Tokens beyond a row's length are not read.
void check_tokens(const Batch& batch, const std::int32_t* tokens, Index vocabulary);

// clang-format off
/// Reads tokens [B, T] and writes y [B, T, width], zero beyond a row's length.
struct EmbeddingOperand { enum : int { tokens, table, y }; };
struct Int8EmbeddingOperand { enum : int { tokens, table, scales, y }; };
Op embedding_forward(const Embedding& shape);
/// Reads the tokens and dy, writes dtable.
struct EmbeddingBackwardOperand { enum : int { tokens, dy, dtable }; };
Op embedding_backward(const Embedding& shape);
// clang-format on

}  // namespace penstock::ops
