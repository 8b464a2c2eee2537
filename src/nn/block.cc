#include "nn/block.h"

#include <fmt/format.h>

#include <cmath>
#include <optional>

#include "nn/causal_convolution.h"
#include "nn/gated_feed_forward.h"
#include "nn/linear.h"
#include "nn/model_spec.h"

namespace penstock::nn {

template <class Real>
Residual<Real>::Residual(std::unique_ptr<RmsNorm<Real>> norm, std::vector<std::unique_ptr<Layer<Real>>> chain,
                         Dropout dropout)
    : norm_(std::move(norm)), chain_(std::move(chain)), dropout_(dropout) {}

template <class Real>
Index Residual<Real>::state_size() const {
  Index size = 0;
  for (const auto& layer : chain_) size += layer->state_size();
  return size;
}

template <class Real>
void Residual<Real>::bind(const Real* values, Real* gradients) {
  norm_->bind(values, gradients);
  for (const auto& layer : chain_) layer->bind(values, gradients);
}

template <class Real>
void Residual<Real>::initialise(Real* values, Random& random) const {
  norm_->initialise(values, random);
  for (const auto& layer : chain_) layer->initialise(values, random);
}

template <class Real>
void Residual<Real>::forward(const Pass& pass, const Real* x, Real* y, Real* state) {
  std::optional<Arena::Scope> temporary;
  if (!pass.training) temporary.emplace(*pass.arena);
  Real* branch = pass.arena->take<Real>(pass.rows() * norm_->outputs());
  norm_->forward(pass, x, branch, nullptr);
  for (const auto& layer : chain_) {
    Real* const next = pass.arena->take<Real>(pass.rows() * layer->outputs());
    layer->forward(pass, branch, next, state);
    state += pass.batch.rows * layer->state_size();
    branch = next;
  }
  dropout_.add(pass, pass.rows() * norm_->inputs(), x, branch, y);
}

template <class Real>
void Residual<Real>::prepare_step(Precision precision) {
  step_.clear();
  norm_->prepare_step(precision);
  step_.emplace_back(norm_->outputs());
  for (const auto& layer : chain_) {
    layer->prepare_step(precision);
    step_.emplace_back(layer->outputs());
  }
}

template <class Real>
Real* Residual<Real>::step(Real* x, Real* state) {
  norm_->step(x, step_[0].data(), nullptr);
  for (std::size_t i = 0; i < chain_.size(); ++i) {
    chain_[i]->step(step_[i].data(), step_[i + 1].data(), state);
    state += chain_[i]->state_size();
  }
  const std::vector<Real>& branch = step_.back();
  for (std::size_t c = 0; c < branch.size(); ++c) x[c] += branch[c];
  return state;
}

template <class Real>
void Residual<Real>::backward(const Pass& pass, Real* d) {
  const Arena::Scope scope(*pass.arena);
  const Index size = pass.rows() * norm_->inputs();
  const Real* dbranch = d;
  if (dropout_.active(pass)) {
    Real* const dropped = pass.arena->take<Real>(size);
    dropout_.backward(pass, size, d, dropped);
    dbranch = dropped;
  }
  for (auto layer = chain_.rbegin(); layer != chain_.rend(); ++layer) {
    Real* const dx = pass.arena->take<Real>(pass.rows() * (*layer)->inputs());
    (*layer)->backward(pass, dbranch, dx);
    dbranch = dx;
  }
  norm_->backward(pass, dbranch, d, true);
}

template <class Real>
Block<Real>::Block(ParameterLayout& layout, const ModelSpec& spec, Index index) : width_(spec.width) {
  const std::string name = fmt::format("blocks.{}", index);
  const Index hidden = hidden_size(spec);
  const Index inner = feed_forward_size(spec);
  // What a branch adds is scaled so that the sum over all branches has about unit variance at the start, whatever the
  // depth (Radford et al. 2019). Only a branch that ends in a matrix can be scaled.
  const double scale = 1.0 / std::sqrt(static_cast<double>(spec.blocks * (inner > 0 ? 2 : 1)));
  layout.set_block(index);

  std::vector<std::unique_ptr<Layer<Real>>> chain;
  auto norm = std::make_unique<RmsNorm<Real>>(layout, name + ".recurrent_norm", spec.width);
  if (spec.convolution > 0) {
    chain.push_back(
        std::make_unique<CausalConvolution<Real>>(layout, name + ".convolution", spec.width, spec.convolution));
  }
  auto recurrence = std::make_unique<Recurrence<Real>>(
      layout, name + ".recurrent",
      // bias_hh would add to bias_ih everywhere but inside GRU's reset product.
      RecurrentLayerSpec{spec.cell, spec.width, hidden, spec.heads, Bias::single, false});
  recurrence_ = recurrence.get();
  chain.push_back(std::move(recurrence));
  if (hidden != spec.width) {
    chain.push_back(std::make_unique<Linear<Real>>(layout, name + ".projection", hidden, spec.width, scale));
  }
  const auto site = static_cast<std::uint64_t>(2 * index);
  residuals_.emplace_back(std::move(norm), std::move(chain), Dropout(spec.dropout, site));

  if (inner > 0) {
    norm = std::make_unique<RmsNorm<Real>>(layout, name + ".feed_forward_norm", spec.width);
    std::vector<std::unique_ptr<Layer<Real>>> gated;
    gated.push_back(std::make_unique<GatedFeedForward<Real>>(layout, name + ".feed_forward", spec.width, inner, scale));
    residuals_.emplace_back(std::move(norm), std::move(gated), Dropout(spec.dropout, site + 1));
  }
  layout.set_block(-1);
}

template <class Real>
Index Block<Real>::state_size() const {
  Index size = 0;
  for (const auto& residual : residuals_) size += residual.state_size();
  return size;
}

template <class Real>
void Block<Real>::bind(const Real* values, Real* gradients) {
  for (auto& residual : residuals_) residual.bind(values, gradients);
}

template <class Real>
void Block<Real>::initialise(Real* values, Random& random) const {
  for (const auto& residual : residuals_) residual.initialise(values, random);
}

template <class Real>
void Block<Real>::forward(const Pass& pass, const Real* x, Real* y, Real* state) {
  for (std::size_t i = 0; i < residuals_.size(); ++i) {
    // A training pass needs every input of a norm again; an inference pass works in y.
    const bool last = i + 1 == residuals_.size();
    Real* const out = last || !pass.training ? y : pass.arena->take<Real>(pass.rows() * width_);
    residuals_[i].forward(pass, x, out, state);
    state += pass.batch.rows * residuals_[i].state_size();
    x = out;
  }
}

template <class Real>
void Block<Real>::prepare_step(Precision precision) {
  for (auto& residual : residuals_) residual.prepare_step(precision);
}

template <class Real>
Real* Block<Real>::step(Real* x, Real* state) {
  for (auto& residual : residuals_) state = residual.step(x, state);
  return state;
}

template <class Real>
void Block<Real>::backward(const Pass& pass, Real* d) {
  for (auto residual = residuals_.rbegin(); residual != residuals_.rend(); ++residual) residual->backward(pass, d);
}

template class Residual<float>;
template class Residual<double>;
template class Block<float>;
template class Block<double>;

}  // namespace penstock::nn
