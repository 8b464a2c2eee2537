#include "nn/network.h"

#include <algorithm>

#include "base/denormals.h"
#include "nn/elementwise.h"

namespace penstock::nn {

namespace {

// Fresh logits of this deviation leave the loss at its start near that of guessing.
constexpr double head_scale = 0.3;

}  // namespace

template <class Real>
Network<Real>::Network(const ModelSpec& spec, const DataDescription& data)
    : width_(spec.width), inputs_(data.input_size()) {
  if (data.vocabulary > 0) {
    embedding_.emplace(layout_, "embedding", data.vocabulary, width_);
  } else {
    if (spec.from_last) changes_.emplace(data);
    input_.emplace(layout_, "input", changes_ ? changes_->width() : inputs_, width_);
  }
  blocks_.reserve(static_cast<std::size_t>(spec.blocks));
  for (Index i = 0; i < spec.blocks; ++i) blocks_.emplace_back(layout_, spec, i);
  norm_.emplace(layout_, "norm", width_);
  head_.emplace(layout_, "head", width_, data.output_size(), head_scale);
}

template <class Real>
Index Network<Real>::state_size() const {
  Index size = changes_ ? changes_->state_size() : 0;
  for (const auto& block : blocks_) size += block.state_size();
  return size;
}

template <class Real>
void Network<Real>::bind(const Real* values, Real* gradients) {
  if (embedding_) embedding_->bind(values, gradients);
  if (input_) input_->bind(values, gradients);
  for (auto& block : blocks_) block.bind(values, gradients);
  norm_->bind(values, gradients);
  head_->bind(values, gradients);
}

template <class Real>
void Network<Real>::initialise(Real* values, std::uint64_t seed) const {
  Random random(seed);
  if (embedding_) embedding_->initialise(values, random);
  if (input_) input_->initialise(values, random);
  for (const auto& block : blocks_) block.initialise(values, random);
  norm_->initialise(values, random);
  head_->initialise(values, random);
}

template <class Real>
const Real* Network<Real>::without_padding(const Pass& pass, const Real* features) const {
  const Batch& batch = pass.batch;
  if (!batch.lengths) return features;
  // Padding may hold anything, NaN included, which zero gradients would not keep out of the weights.
  Real* const clean = pass.arena->take<Real>(pass.rows() * inputs_);
  for (Index b = 0; b < batch.rows; ++b) {
    const Index values = row_length(batch, b) * inputs_, row = b * batch.steps * inputs_;
    std::copy_n(features + row, values, clean + row);
    std::fill(clean + row + values, clean + row + batch.steps * inputs_, Real(0));
  }
  return clean;
}

template <class Real>
void Network<Real>::read_features(const Pass& pass, const Real* features, Real* y, Real*& state) {
  if (!changes_) {
    input_->forward(pass, without_padding(pass, features), y, nullptr);
    return;
  }
  Real* const with_changes = pass.arena->take<Real>(pass.rows() * changes_->width());
  changes_->read(pass, features, with_changes, state);
  state += pass.batch.rows * changes_->state_size();
  input_->forward(pass, with_changes, y, nullptr);
}

template <class Real>
void Network<Real>::forward(const Pass& pass, const Input<Real>& input, Real* outputs, Real* state) {
  const WithDenormals as_zeros(DenormalMode::zeros());
  const Index size = pass.rows() * width_;
  std::optional<Arena::Scope> temporary;
  if (!pass.training) temporary.emplace(*pass.arena);
  Real* stream = pass.arena->take<Real>(size);
  if (embedding_) {
    embedding_->forward(pass, input.tokens, stream);
  } else {
    read_features(pass, input.features, stream, state);
  }
  for (auto& block : blocks_) {
    Real* const next = pass.training ? pass.arena->take<Real>(size) : stream;
    block.forward(pass, stream, next, state);
    state += pass.batch.rows * block.state_size();
    stream = next;
  }
  Real* const normal = pass.arena->take<Real>(size);
  norm_->forward(pass, stream, normal, nullptr);
  head_->forward(pass, normal, outputs, nullptr);
  if (changes_) changes_->add_last(pass, input.features, outputs);
}

template <class Real>
void Network<Real>::prepare_step(Precision precision) {
  if (input_) input_->prepare_step(precision);
  for (auto& block : blocks_) block.prepare_step(precision);
  norm_->prepare_step(precision);
  head_->prepare_step(precision);
  step_features_.resize(static_cast<std::size_t>(changes_ ? changes_->width() : 0));
  step_stream_.resize(static_cast<std::size_t>(width_));
  step_normal_.resize(static_cast<std::size_t>(width_));
}

template <class Real>
void Network<Real>::step(const Input<Real>& input, Real* outputs, Real* state) {
  const WithDenormals as_zeros(DenormalMode::zeros());
  constexpr Pass one = {.execution = {.threads = 1}};
  Real* const stream = step_stream_.data();
  if (embedding_) {
    embedding_->step(*input.tokens, stream);
  } else if (changes_) {
    changes_->read(one, input.features, step_features_.data(), state);
    state += changes_->state_size();
    input_->step(step_features_.data(), stream, nullptr);
  } else {
    input_->step(input.features, stream, nullptr);
  }
  for (auto& block : blocks_) state = block.step(stream, state);
  norm_->step(stream, step_normal_.data(), nullptr);
  head_->step(step_normal_.data(), outputs, nullptr);
  if (changes_) changes_->add_last(one, input.features, outputs);
}

template <class Real>
void Network<Real>::backward(const Pass& pass, const Real* doutputs) {
  const WithDenormals as_zeros(DenormalMode::zeros());
  const Arena::Scope scope(*pass.arena);
  Real* const dnormal = pass.arena->take<Real>(pass.rows() * width_);
  Real* const d = pass.arena->take<Real>(pass.rows() * width_);
  head_->backward(pass, doutputs, dnormal);
  norm_->backward(pass, dnormal, d, false);
  for (auto block = blocks_.rbegin(); block != blocks_.rend(); ++block) block->backward(pass, d);
  if (embedding_) embedding_->backward(pass, d);
  if (input_) input_->backward(pass, d, nullptr);
}

template <class Real>
double Network<Real>::saturation(const Batch& batch) const {
  Index saturated = 0, total = 0;
  for (const auto& block : blocks_) {
    const auto part = block.recurrence().saturation(batch);
    saturated += part.saturated;
    total += part.total;
  }
  return total == 0 ? 0.0 : static_cast<double>(saturated) / static_cast<double>(total);
}

template class Network<float>;
template class Network<double>;

}  // namespace penstock::nn
