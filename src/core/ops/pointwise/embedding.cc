#include "ops/pointwise/embedding.h"

#include <algorithm>

#include "ops/cuda/ops.h"
#include "ops/pointwise/elementwise.h"

namespace penstock::ops {

namespace {

void check_token(std::int32_t token, Index b, Index t, Index vocabulary) {
  require(token >= 0 && token < vocabulary, "token {} at row {}, step {} is outside 0..{}", token, b, t,
          vocabulary - 1);
}

/// Writes y [B, T, width]: `copy_row` writes the row of a token.
template <class Real, class CopyRow>
void look_up(const Embedding& shape, const Call& call, const std::int32_t* tokens, Real* y, const CopyRow& copy_row) {
  const Index width = shape.width;
  check_tokens(call.batch, tokens, shape.vocabulary);
  for_positions(call.threads, call.batch, width, [&](Index r, Index b, Index t) {
    if (t < row_length(call.batch, b)) {
      copy_row(tokens[r], y + r * width);
    } else {
      std::fill_n(y + r * width, width, Real(0));
    }
  });
}

template <class Real>
void forward(const Embedding& shape, const Call& call, const Operands& memory) {
  const auto* const table = memory.get<const Real>(EmbeddingOperand::table);
  const auto copy_row = [&](std::int32_t token, Real* y) { std::copy_n(table + token * shape.width, shape.width, y); };
  look_up(shape, call, memory.get<const std::int32_t>(EmbeddingOperand::tokens), memory.get<Real>(EmbeddingOperand::y),
          copy_row);
}

void forward_int8(const Embedding& shape, const Call& call, const Operands& memory) {
  using Of = Int8EmbeddingOperand;
  const auto* const table = memory.get<const std::int8_t>(Of::table);
  const auto* const scales = memory.get<const float>(Of::scales);
  const auto copy_row = [&](std::int32_t token, float* y) {
    std::transform(table + token * shape.width, table + (token + 1) * shape.width, y,
                   [scale = scales[token]](std::int8_t weight) { return scale * static_cast<float>(weight); });
  };
  look_up(shape, call, memory.get<const std::int32_t>(Of::tokens), memory.get<float>(Of::y), copy_row);
}

template <class Real>
void backward(const Embedding& shape, const Call& call, const Operands& memory) {
  const auto* const tokens = memory.get<const std::int32_t>(EmbeddingBackwardOperand::tokens);
  const auto* const dy = memory.get<const Real>(EmbeddingBackwardOperand::dy);
  auto* const dtable = memory.get<Real>(EmbeddingBackwardOperand::dtable);
  const Batch& batch = call.batch;
  const Index width = shape.width;
  std::fill_n(dtable, shape.vocabulary * width, Real(0));
  // Each thread owns some of the columns, so that tokens that occur twice are added in the order of the rows.
  for_range(call.threads, width, batch.rows * batch.steps, [&](Index begin, Index end) {
    for (Index b = 0; b < batch.rows; ++b) {
      for (Index r = b * batch.steps; r < b * batch.steps + row_length(batch, b); ++r) {
        Real* const sum = dtable + tokens[r] * width;
        const Real* const row = dy + r * width;
        for (Index c = begin; c < end; ++c) sum[c] += row[c];
      }
    }
  });
}

}  // namespace

void check_tokens(const Batch& batch, const std::int32_t* tokens, Index vocabulary) {
  for (Index b = 0; b < batch.rows; ++b) {
    for (Index t = 0; t < row_length(batch, b); ++t) check_token(tokens[b * batch.steps + t], b, t, vocabulary);
  }
}

Op embedding_forward(const Embedding& shape) {
  if (shape.int8) {
    return {
        .name = "embedding",
        .prepare =
            [shape](const Target&) {
              return simple([shape](const Call& call, const Operands& memory) { forward_int8(shape, call, memory); });
            },
        .definition = shape};
  }
  return {.name = "embedding",
          .prepare = prepared_by(shape, cuda_embedding_forward,
                                 [](auto real, const auto&... given) { forward<decltype(real)>(given...); }),
          .definition = shape};
}

Op embedding_backward(const Embedding& shape) {
  return {"embedding.backward", prepared_by(shape, cuda_embedding_backward, [](auto real, const auto&... given) {
            backward<decltype(real)>(given...);
          })};
}

}  // namespace penstock::ops
