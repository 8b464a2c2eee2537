#include "nn/embedding.h"

#include <algorithm>

#include "base/check.h"
#include "nn/elementwise.h"

namespace penstock::nn {

namespace {

void check_token(std::int32_t token, Index b, Index t, Index vocabulary) {
  require(token >= 0 && token < vocabulary, "token {} at row {}, step {} is outside 0..{}", token, b, t,
          vocabulary - 1);
}

void check_tokens(const Batch& batch, const std::int32_t* tokens, Index vocabulary) {
  for (Index b = 0; b < batch.rows; ++b) {
    for (Index t = 0; t < row_length(batch, b); ++t) check_token(tokens[b * batch.steps + t], b, t, vocabulary);
  }
}

}  // namespace

template <class Real>
Embedding<Real>::Embedding(ParameterLayout& layout, const std::string& name, Index vocabulary, Index width)
    : vocabulary_(vocabulary), width_(width), offset_(layout.add(name + ".weight", {vocabulary, width}, true)) {}

template <class Real>
void Embedding<Real>::bind(const Real* values, Real* gradients) {
  table_ = values + offset_;
  gradient_ = gradients ? gradients + offset_ : nullptr;
}

template <class Real>
void Embedding<Real>::initialise(Real* values, Random& random) const {
  for (Index i = 0; i < vocabulary_ * width_; ++i) {
    values[offset_ + i] = static_cast<Real>(embedding_deviation * random.normal());
  }
}

template <class Real>
void Embedding<Real>::forward(const Pass& pass, const std::int32_t* tokens, Real* y) {
  const Batch& batch = pass.batch;
  check_tokens(batch, tokens, vocabulary_);
  for_rows(pass.execution, pass.rows(), width_, [&](Index begin, Index end) {
    for (Index r = begin; r < end; ++r) {
      if (r % batch.steps < row_length(batch, r / batch.steps)) {
        std::copy_n(table_ + tokens[r] * width_, width_, y + r * width_);
      } else {
        std::fill_n(y + r * width_, width_, Real(0));
      }
    }
  });
  if (pass.training) tokens_ = tokens;
}

template <class Real>
void Embedding<Real>::step(std::int32_t token, Real* y) const {
  check_token(token, 0, 0, vocabulary_);
  std::copy_n(table_ + token * width_, width_, y);
}

template <class Real>
void Embedding<Real>::backward(const Pass& pass, const Real* dy) {
  // Each thread owns some of the columns, so that tokens that occur twice are added in the order of the rows.
  const Batch& batch = pass.batch;
  for_rows(pass.execution, width_, pass.rows(), [&](Index begin, Index end) {
    for (Index b = 0; b < batch.rows; ++b) {
      for (Index r = b * batch.steps; r < b * batch.steps + row_length(batch, b); ++r) {
        Real* const sum = gradient_ + tokens_[r] * width_;
        const Real* const row = dy + r * width_;
        for (Index c = begin; c < end; ++c) sum[c] += row[c];
      }
    }
  });
}

template class Embedding<float>;
template class Embedding<double>;

}  // namespace penstock::nn
