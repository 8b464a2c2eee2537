#pragma once

#include "nn/layer.h"
#include "nn/recurrent_layer.h"

namespace penstock::nn {

/// A RecurrentLayer, forward in time, inside a block: its weights live in the model's flat store.
template <class Real>
class Recurrence final : public Layer<Real> {
 public:
  Recurrence(ParameterLayout& layout, const std::string& name, const RecurrentLayerSpec& spec);

  Index inputs() const override { return layer_.spec().input_size; }
  Index outputs() const override { return layer_.spec().hidden_size; }
  Index state_size() const override { return layer_.states() * layer_.spec().hidden_size; }
  void bind(const Real* values, Real* gradients) override;
  /// Input weights as in Linear; recurrent weights uniform in +-1/sqrt(D), as PyTorch has them, which keeps the
  /// recurrent matrix a contraction; biases 0 plus add_gate_bias().
  void initialise(Real* values, Random& random) const override;
  void forward(const Pass& pass, const Real* x, Real* y, Real* state) override;
  void prepare_step(Precision precision) override;
  void step(const Real* x, Real* y, Real* state) override;
  void backward(const Pass& pass, const Real* dy, Real* dx) override;

  /// How many outputs of the last training forward() have |h| > 0.99, and how many there are.
  struct Saturation {
    Index saturated = 0, total = 0;
  };
  Saturation saturation(const Batch& batch) const;

 private:
  SequenceView<const Real> view(const Pass& pass, const Real* data, Index channels) const;

  RecurrentLayer<Real> layer_;
  Precision step_precision_ = Precision::full;
  std::vector<typename RecurrentLayer<Real>::ParameterShape> shapes_;
  std::vector<Index> offsets_;  // of shapes_
  RecurrentWeights<Real> gradients_;
  // Of the last training forward().
  const Real* x_ = nullptr;
  const Real* y_ = nullptr;
  const Real* state_in_ = nullptr;
  const Real* tape_ = nullptr;
};

extern template class Recurrence<float>;
extern template class Recurrence<double>;

}  // namespace penstock::nn
