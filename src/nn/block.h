#pragma once

#include <memory>
#include <vector>

#include "nn/dropout.h"
#include "nn/layer.h"
#include "nn/recurrence.h"
#include "nn/rms_norm.h"
#include "penstock/model.h"

namespace penstock::nn {

/// A residual connection: y = x + dropout(chain of layers(norm(x))).
template <class Real>
class Residual {
 public:
  Residual(std::unique_ptr<RmsNorm<Real>> norm, std::vector<std::unique_ptr<Layer<Real>>> chain, Dropout dropout);

  Index state_size() const;
  void bind(const Real* values, Real* gradients);
  void initialise(Real* values, Random& random) const;
  /// As Layer::forward, but y may be x unless the pass is a training one.
  void forward(const Pass& pass, const Real* x, Real* y, Real* state);
  void prepare_step(Precision precision);
  /// As Layer::step, but from x [width] to x itself. Returns the end of the state.
  Real* step(Real* x, Real* state);
  /// d [B, T, width] holds the gradient of y and is turned into that of x.
  void backward(const Pass& pass, Real* d);

 private:
  std::unique_ptr<RmsNorm<Real>> norm_;
  std::vector<std::unique_ptr<Layer<Real>>> chain_;
  Dropout dropout_;
  std::vector<std::vector<Real>> step_;  // what the norm and each layer of the chain say, one step
};

/// One block of a model: a residual of (convolution,) recurrence (and projection back to the width), then, if the spec
/// asks for it, a residual of a gated feed-forward.
template <class Real>
class Block {
 public:
  Block(ParameterLayout& layout, const ModelSpec& spec, Index index);

  Index state_size() const;
  void bind(const Real* values, Real* gradients);
  void initialise(Real* values, Random& random) const;
  /// As Residual. `y` is the block's output; a training pass keeps what lies between.
  void forward(const Pass& pass, const Real* x, Real* y, Real* state);
  void prepare_step(Precision precision);
  Real* step(Real* x, Real* state);
  void backward(const Pass& pass, Real* d);

  const Recurrence<Real>& recurrence() const { return *recurrence_; }

 private:
  Index width_;
  const Recurrence<Real>* recurrence_ = nullptr;  // inside residuals_
  std::vector<Residual<Real>> residuals_;
};

extern template class Residual<float>;
extern template class Residual<double>;
extern template class Block<float>;
extern template class Block<double>;

}  // namespace penstock::nn
