#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <vector>

#include "base/aligned.h"
#include "base/random.h"
#include "penstock/recurrent.h"

namespace penstock::nn {

/// Shape of one recurrent layer in one direction.
struct RecurrentLayerSpec {
  std::string cell;
  Index input_size = 0;   // I
  Index hidden_size = 0;  // H
  Index heads = 1;
  Bias bias = Bias::both;
  bool reverse = false;
};

/// The weights of one layer, or their gradients; absent ones are null.
template <class Real>
struct RecurrentWeights {
  Real* weight_ih = nullptr;  // [G*H, I]
  Real* weight_hh = nullptr;  // [G*H, H], heads > 1: [heads, G*D, D]; scan cells: absent
  Real* bias_ih = nullptr;    // [G*H]
  Real* bias_hh = nullptr;    // [G*H]; scan cells: absent
};

/// Weights of one layer as the engines read them, for each instruction set and precision that was asked for. Shared by
/// all objects that compute with these weights, on any threads.
template <class Real>
class SharedPanels {
 public:
  using Panels = std::shared_ptr<const AlignedVector<Real>>;

  /// The panels of that name; made by make() if nobody has yet.
  Panels get(const std::string& key, const std::function<AlignedVector<Real>()>& make);
  /// To be called when weights have changed, while nobody computes with them.
  void forget();
  /// Raised by forget().
  std::uint64_t version() const { return version_.load(std::memory_order_acquire); }

 private:
  std::mutex guard_;
  std::map<std::string, Panels> panels_;
  std::atomic<std::uint64_t> version_{0};
};

/// One layer, one direction, over weights that its owner keeps. Not safe for two calls at once on one object, which
/// keeps scratch memory; what it packs of the weights is shared by all objects that are given the same panels.
template <class Real>
class RecurrentLayer {
 public:
  struct ParameterShape {
    std::string name;  // "weight_ih", "weight_hh", "bias_ih", "bias_hh"
    std::vector<Index> shape;
    Real* RecurrentWeights<Real>::*member;
  };

  RecurrentLayer(const RecurrentLayerSpec& spec, std::shared_ptr<SharedPanels<Real>> panels);
  ~RecurrentLayer();
  RecurrentLayer(RecurrentLayer&&) noexcept;
  RecurrentLayer& operator=(RecurrentLayer&&) noexcept;

  const RecurrentLayerSpec& spec() const;
  /// The parameters this layer has, in the order of the members above.
  std::vector<ParameterShape> parameters() const;
  /// Points the layer at its weights. When their values change, the panels must forget.
  void set_weights(const RecurrentWeights<Real>& weights);

  /// Number of states S; a row's state is S * H values, a batch's is [S, B, H].
  Index states() const;
  /// Reals that forward() saves for backward() on such a batch.
  Index tape_size(const Batch& batch, const Execution& execution) const;
  /// Whether they hold bfloat16, which backward() then expects.
  bool rounds_tape(const Execution& execution) const;

  /// y [B, T, H] from x [B, T, I]. state_in / state_out [S, B, H] may be null (zeros / not wanted) or the same memory.
  /// `tape` [tape_size] or null for inference.
  void forward(const Batch& batch, SequenceView<const Real> x, SequenceView<Real> y, const Real* state_in,
               Real* state_out, Real* tape, const Execution& execution) const;

  /// Does now what the first step() in a precision does once: packs the weights, and allocates.
  void prepare_step(Precision precision) const;
  /// One step of one row: x [I] -> y [H], which is neither x nor a state; state k is at state + k * stride, [H], and is
  /// updated.
  void step(const Real* x, Real* y, Real* state, Index stride, Precision precision = Precision::full) const;

  /// Adds to `gradients`; writes dx and dstate_in [S, B, H] unless null. y is what forward() wrote.
  void backward(const Batch& batch, SequenceView<const Real> x, SequenceView<const Real> y, SequenceView<const Real> dy,
                const Real* state_in, const Real* dstate_out, SequenceView<Real> dx, Real* dstate_in, const Real* tape,
                const RecurrentWeights<Real>& gradients, const Execution& execution) const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

extern template class SharedPanels<float>;
extern template class SharedPanels<double>;
extern template class RecurrentLayer<float>;
extern template class RecurrentLayer<double>;

}  // namespace penstock::nn
