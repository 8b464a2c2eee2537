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

template <class Real>
void forward(const Embedding& shape, const Call& call, const Operands& memory) {
  const auto* const tokens = memory.get<const std::int32_t>(EmbeddingOperand::tokens);
  const auto* const table = memory.get<const Real>(EmbeddingOperand::table);
  auto* const y = memory.get<Real>(EmbeddingOperand::y);
  const Index width = shape.width;
  check_tokens(call.batch, tokens, shape.vocabulary);
  for_positions(call.threads, call.batch, width, [&](Index r, Index b, Index t) {
    if (t < row_length(call.batch, b)) {
      std::copy_n(table + tokens[r] * width, width, y + r * width);
    } else {
      std::fill_n(y + r * width, width, Real(0));
    }
  });
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
