#pragma once

#include "nn/layer.h"

namespace penstock::nn {

/// y = the row of a table [vocabulary, width] that belongs to each token. No Layer, because its input is tokens; its
/// members mean the same.
template <class Real>
class Embedding {
 public:
  /// A fresh table is normal with standard deviation `embedding_deviation`.
  Embedding(ParameterLayout& layout, const std::string& name, Index vocabulary, Index width);

  void bind(const Real* values, Real* gradients);
  void initialise(Real* values, Random& random) const;
  /// y [B, T, width] from tokens [B, T]; steps beyond a row's length are zeros and their tokens are not read.
  /// Throws Error(invalid_argument) naming the place of a token outside 0..vocabulary-1.
  void forward(const Pass& pass, const std::int32_t* tokens, Real* y);
  /// forward() for one token: y [width].
  void step(std::int32_t token, Real* y) const;
  void backward(const Pass& pass, const Real* dy);

 private:
  Index vocabulary_, width_, offset_;
  const Real* table_ = nullptr;
  Real* gradient_ = nullptr;
  const std::int32_t* tokens_ = nullptr;
};

/// The residual stream starts as the embedding and every block adds about unit variance to it. At this size the first
/// blocks hear themselves and the token about equally once normalised, and AdamW, whose steps have the same size for
/// every weight, can still turn a row round within some hundred steps.
inline constexpr double embedding_deviation = 0.3;

extern template class Embedding<float>;
extern template class Embedding<double>;

}  // namespace penstock::nn
