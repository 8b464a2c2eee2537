#pragma once

#include <memory>
#include <optional>
#include <vector>

#include "nn/block.h"
#include "nn/changes.h"
#include "nn/embedding.h"
#include "nn/linear.h"

namespace penstock::nn {

/// Tokens [B, T] or features [B, T, I], whichever the model reads; the other is null. Neither is read beyond a row's
/// length.
template <class Real>
struct Input {
  const std::int32_t* tokens = nullptr;
  const Real* features = nullptr;
};

/// The layers of a model, over parameters that its owner keeps. Embedding or linear input, blocks, norm, linear head.
/// One call at a time: layers keep scratch memory and remember their training forward().
template <class Real>
class Network {
 public:
  /// The spec must have passed check_spec().
  Network(const ModelSpec& spec, const DataDescription& data);

  const ParameterLayout& layout() const { return layout_; }
  Index inputs() const { return inputs_; }
  Index outputs() const { return head_->outputs(); }
  /// Number of values in one row's state. A batch's is laid out layer by layer; zeros mean the start.
  Index state_size() const;

  /// As Layer: call again whenever values have changed.
  void bind(const Real* values, Real* gradients);
  /// Writes fresh parameters; the same seed gives the same in float and double up to rounding.
  void initialise(Real* values, std::uint64_t seed) const;

  /// outputs [B, T, O]; state [B * state_size()] in and out.
  void forward(const Pass& pass, const Input<Real>& input, Real* outputs, Real* state);
  /// Makes step() ready, as Layer has it.
  void prepare_step(Precision precision);
  /// One token or the features [I] of one row: outputs [O]; state [state_size()] in and out. The same bits as forward()
  /// in exact mode.
  void step(const Input<Real>& input, Real* outputs, Real* state);
  /// Adds to all gradients, for the last training forward().
  void backward(const Pass& pass, const Real* doutputs);

  /// Fraction of the recurrent outputs of the last training forward() with |h| > 0.99.
  double saturation(const Batch& batch) const;

 private:
  /// y [B, T, width] from features [B, T, I]; moves state on if it is used.
  void read_features(const Pass& pass, const Real* features, Real* y, Real*& state);
  const Real* without_padding(const Pass& pass, const Real* features) const;

  ParameterLayout layout_;
  Index width_, inputs_;
  std::optional<Embedding<Real>> embedding_;  // token models
  std::optional<Linear<Real>> input_;         // the others
  std::vector<Block<Real>> blocks_;
  std::optional<RmsNorm<Real>> norm_;
  std::optional<Linear<Real>> head_;
  std::optional<Changes> changes_;                               // series that are read and forecast by them
  std::vector<Real> step_features_, step_stream_, step_normal_;  // what lies between the layers in a step
};

extern template class Network<float>;
extern template class Network<double>;

}  // namespace penstock::nn
