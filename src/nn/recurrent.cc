// The public stack of recurrent layers over nn::RecurrentLayer.

#include "penstock/recurrent.h"

#include <algorithm>
#include <cmath>
#include <functional>

#include "base/aligned.h"
#include "base/check.h"
#include "base/random.h"
#include "nn/recurrent_layer.h"
#include "ops/geometry.h"

namespace penstock {
namespace {

/// A contiguous tensor [B, T, C] in the order of `like`: time-first if that is, so that layers pass it on as one
/// matrix.
template <class Real>
SequenceView<Real> contiguous(Real* data, const Batch& batch, Index channels, bool time_first) {
  if (batch.cu_seqlens != nullptr) return {data, 0, channels};
  return time_first ? SequenceView<Real>::time_first(data, batch.rows, channels)
                    : SequenceView<Real>::batch_first(data, batch.steps, channels);
}

template <class Real>
bool is_time_first(const SequenceView<Real>& view) {
  return view.step_stride > view.row_stride;
}

/// Number of (row, step) places in a contiguous tensor.
Index places(const Batch& batch) {
  return batch.cu_seqlens != nullptr ? batch.cu_seqlens[batch.rows] : batch.rows * batch.steps;
}

/// Copies a tensor of the same batch and C channels, place by place.
template <class Real>
void copy_out(const Batch& batch, SequenceView<const Real> from, SequenceView<Real> to, Index channels) {
  const bool packed = batch.cu_seqlens != nullptr;
  const Index rows = packed ? 1 : batch.rows;
  const Index steps = packed ? batch.cu_seqlens[batch.rows] : batch.steps;
  for (Index b = 0; b < rows; ++b) {
    for (Index t = 0; t < steps; ++t) {
      std::copy_n(from.data + b * from.row_stride + t * from.step_stride, channels,
                  to.data + b * to.row_stride + t * to.step_stride);
    }
  }
}

/// inputs = outputs * mask, with a fresh mask of 0 or 1 / (1 - p).
template <class Real>
void drop(double p, std::uint64_t seed, const std::vector<Real>& outputs, std::vector<Real>& mask,
          std::vector<Real>& inputs) {
  Random random(seed);
  mask.resize(outputs.size());
  inputs.resize(outputs.size());
  const Real kept = static_cast<Real>(1.0 / (1.0 - p));
  for (std::size_t i = 0; i < outputs.size(); ++i) {
    mask[i] = random.uniform() < p ? Real(0) : kept;
    inputs[i] = outputs[i] * mask[i];
  }
}

/// Do a [n] and b [m] have no element in common?
template <class Real>
bool are_apart(const Real* a, Index n, const Real* b, Index m) {
  return std::less_equal<>()(a + n, b) || std::less_equal<>()(b + m, a);
}

void check(const RecurrentSpec& spec) {
  check_enum("direction", spec.direction, Direction::bidirectional);
  check_enum("bias", spec.bias, Bias::both);
  constexpr Index most = Index{1} << 20;
  require(spec.input_size >= 1 && spec.input_size <= most, "input_size must be 1 to {}, not {}", most, spec.input_size);
  require(spec.hidden_size >= 1 && spec.hidden_size <= most, "hidden_size must be 1 to {}, not {}", most,
          spec.hidden_size);
  require(spec.layers >= 1 && spec.layers <= 1024, "layers must be 1 to 1024, not {}", spec.layers);
  require(spec.dropout >= 0.0 && spec.dropout < 1.0, "dropout must be at least 0 and below 1, not {}", spec.dropout);
}

}  // namespace

/// What one forward pass leaves behind: per layer what it read and wrote (the first reads the caller's x, the last
/// writes the caller's y), per layer and direction what it saved and the state it began with.
template <class Real>
struct RecurrentTape<Real>::Content {
  struct Layer {
    std::vector<Real> input, output, mask, dinput;
  };
  struct Half {
    AlignedVector<Real> saved;
    std::vector<Real> state;
  };
  std::vector<Layer> layers;
  std::vector<Half> halves;
  SequenceView<Real> y;
  Index rows = 0, steps = 0, places = 0;
  bool filled = false;
  bool rounded = false;      // what layers keep is bfloat16
  std::uint64_t passes = 0;  // seeds the next dropout mask
};

template <class Real>
RecurrentTape<Real>::RecurrentTape() : content_(std::make_unique<Content>()) {}
template <class Real>
RecurrentTape<Real>::~RecurrentTape() = default;
template <class Real>
RecurrentTape<Real>::RecurrentTape(RecurrentTape&&) noexcept = default;
template <class Real>
RecurrentTape<Real>& RecurrentTape<Real>::operator=(RecurrentTape&&) noexcept = default;

template <class Real>
struct Recurrent<Real>::Impl {
  RecurrentSpec spec;
  std::uint64_t seed;
  std::vector<nn::RecurrentLayer<Real>> layers;  // [layers * directions]
  std::vector<nn::RecurrentWeights<Real>> weights, gradients;
  std::vector<Real> values, gradient_values;
  std::vector<Parameter> parameters;

  Impl(const RecurrentSpec& s, std::uint64_t seed_) : spec(s), seed(seed_) {
    check(spec);
    for (Index l = 0; l < spec.layers; ++l) {
      for (Index d = 0; d < spec.directions(); ++d) {
        const Index input = l == 0 ? spec.input_size : spec.output_size();
        const bool reverse = spec.direction == Direction::reverse || d == 1;
        layers.emplace_back(nn::RecurrentLayerSpec{spec.cell, input, spec.hidden_size, spec.heads, spec.bias, reverse});
      }
    }
    allocate();
    initialise();
    for (std::size_t i = 0; i < layers.size(); ++i) layers[i].set_weights(weights[i]);
    row_state = states() * slabs() * spec.hidden_size;
    for (auto& step : between) step.resize(static_cast<std::size_t>(spec.hidden_size));
  }

  void allocate() {
    std::size_t total = 0;
    for (const auto& layer : layers) {
      for (const auto& parameter : layer.parameters()) {
        std::size_t size = 1;
        for (const Index extent : parameter.shape) size *= static_cast<std::size_t>(extent);
        total += size;
      }
    }
    constexpr std::size_t most = std::size_t{1} << 36;
    require(total <= most,
            "hidden_size, input_size and layers must not ask for more than {} weights, but {} are needed", most, total);
    values.resize(total);
    gradient_values.resize(total);
    weights.resize(layers.size());
    gradients.resize(layers.size());
    std::size_t offset = 0;
    for (std::size_t i = 0; i < layers.size(); ++i) {
      const std::string suffix = "_l" + std::to_string(static_cast<Index>(i) / spec.directions()) +
                                 (layers[i].spec().reverse ? "_reverse" : "");
      for (const auto& parameter : layers[i].parameters()) {
        std::size_t size = 1;
        for (const Index extent : parameter.shape) size *= static_cast<std::size_t>(extent);
        weights[i].*parameter.member = values.data() + offset;
        gradients[i].*parameter.member = gradient_values.data() + offset;
        parameters.push_back({parameter.name + suffix,
                              parameter.shape,
                              {values.data() + offset, size},
                              {gradient_values.data() + offset, size}});
        offset += size;
      }
    }
  }

  void initialise() {
    Random random(seed);
    const double bound = 1.0 / std::sqrt(static_cast<double>(spec.hidden_size));
    for (Real& value : values) value = static_cast<Real>(random.uniform(-bound, bound));
  }

  Index states() const { return layers.front().states(); }
  Index slabs() const { return spec.layers * spec.directions(); }

  Index state_values(Index rows) const { return states() * rows * spec.hidden_size; }

  /// [S, B, H] of one layer and direction out of [S, layers * directions, B, H]; zeros if there is no such tensor.
  void take_state(const Real* all, std::size_t i, Index rows, std::vector<Real>& one) const {
    const Index slab = rows * spec.hidden_size;
    one.assign(state_values(rows), Real(0));
    if (all == nullptr) return;
    for (Index k = 0; k < states(); ++k) {
      std::copy_n(all + (k * slabs() + static_cast<Index>(i)) * slab, slab, one.data() + k * slab);
    }
  }
  /// The reverse; nothing if there is no such tensor.
  void put_state(const std::vector<Real>& one, std::size_t i, Index rows, Real* all) const {
    if (all == nullptr) return;
    const Index slab = rows * spec.hidden_size;
    for (Index k = 0; k < states(); ++k) {
      std::copy_n(one.data() + k * slab, slab, all + (k * slabs() + static_cast<Index>(i)) * slab);
    }
  }

  /// What layer l read in the pass on the tape.
  SequenceView<const Real> input_of(typename RecurrentTape<Real>::Content& content, std::size_t l, const Batch& batch,
                                    SequenceView<const Real> x) const {
    if (l == 0) return x;
    auto& layer = content.layers[l];
    const std::vector<Real>& read = layer.mask.empty() ? content.layers[l - 1].output : layer.input;
    return contiguous(read.data(), batch, spec.output_size(), is_time_first(x));
  }

  /// Can step_row() do that? If not, step() finds out why.
  bool accepts_row(const Real* x, const Real* y, const Real* state) const {
    return x != nullptr && y != nullptr && state != nullptr && spec.direction == Direction::forward &&
           are_apart(y, spec.hidden_size, x, spec.input_size) && are_apart(y, spec.hidden_size, state, row_state);
  }

  /// x [I] -> y [H], state [S, layers, H].
  void step_row(const Real* x, Real* y, Real* state, Precision precision) {
    const Index hidden = spec.hidden_size, stride = spec.layers * hidden;
    const std::size_t last = layers.size() - 1;
    for (std::size_t l = 0; l < last; ++l, state += hidden) {
      Real* const out = between[l % 2].data();
      layers[l].step(x, out, state, stride, precision);
      x = out;
    }
    layers[last].step(x, y, state, stride, precision);
  }

  Index row_state;                                     // of all layers and directions: values of one row
  std::vector<Real> between[2];                        // scratch: from layer to layer, one step [H]
  std::vector<Real> state_out, dstate_out, dstate_in;  // scratch: [S, B, H] of one layer and direction
  typename RecurrentTape<Real>::Content inference;     // scratch of forward passes without a tape
};

template <class Real>
Recurrent<Real>::Recurrent(const RecurrentSpec& spec, std::uint64_t seed) : impl_(std::make_unique<Impl>(spec, seed)) {}
template <class Real>
Recurrent<Real>::~Recurrent() = default;
template <class Real>
Recurrent<Real>::Recurrent(Recurrent&&) noexcept = default;
template <class Real>
Recurrent<Real>& Recurrent<Real>::operator=(Recurrent&&) noexcept = default;

template <class Real>
const RecurrentSpec& Recurrent<Real>::spec() const {
  return impl_->spec;
}

template <class Real>
Index Recurrent<Real>::state_size() const {
  return impl_->row_state;
}

template <class Real>
std::vector<typename Recurrent<Real>::Parameter>& Recurrent<Real>::parameters() {
  return impl_->parameters;
}

template <class Real>
void Recurrent<Real>::weights_changed() {
  for (std::size_t i = 0; i < impl_->layers.size(); ++i) impl_->layers[i].set_weights(impl_->weights[i]);
}

template <class Real>
void Recurrent<Real>::forward(const Batch& batch, SequenceView<const Real> x, SequenceView<Real> y,
                              const Real* state_in, Real* state_out, RecurrentTape<Real>* tape,
                              const Execution& execution) const {
  ops::Geometry::check(batch);
  require(static_cast<bool>(x), "x must not be null");
  require(static_cast<bool>(y), "y must not be null");
  Impl& impl = *impl_;
  const RecurrentSpec& spec = impl.spec;
  auto& content = tape != nullptr ? tape->content() : impl.inference;
  const auto directions = static_cast<std::size_t>(spec.directions());
  const auto layers = static_cast<std::size_t>(spec.layers);
  content.layers.resize(layers);
  content.halves.resize(impl.layers.size());
  content.y = y;
  content.rows = batch.rows;
  content.steps = batch.steps;
  content.places = places(batch);
  content.filled = false;
  content.rounded = impl.layers.front().rounds_tape(execution);
  ++content.passes;

  for (std::size_t l = 0; l < layers; ++l) {
    SequenceView<Real> output = y;
    if (l + 1 < layers) {
      content.layers[l].output.resize(places(batch) * spec.output_size());
      output = contiguous(content.layers[l].output.data(), batch, spec.output_size(), is_time_first(x));
    }
    for (std::size_t d = 0; d < directions; ++d) {
      const std::size_t i = l * directions + d;
      auto& half = content.halves[i];
      if (tape != nullptr) half.saved.resize(impl.layers[i].tape_size(batch, execution));
      impl.take_state(state_in, i, batch.rows, half.state);
      impl.state_out.resize(impl.state_values(batch.rows));
      SequenceView<Real> part = output;
      part.data += static_cast<Index>(d) * spec.hidden_size;
      impl.layers[i].forward(batch, impl.input_of(content, l, batch, x), part, half.state.data(), impl.state_out.data(),
                             tape != nullptr ? half.saved.data() : nullptr, execution);
      impl.put_state(impl.state_out, i, batch.rows, state_out);
    }
    if (l + 1 == layers) break;
    auto& next = content.layers[l + 1];
    next.mask.clear();
    if (tape != nullptr && spec.dropout > 0.0) {
      drop(spec.dropout, impl.seed + 0x9e3779b97f4a7c15ULL * (content.passes * layers + l), content.layers[l].output,
           next.mask, next.input);
    }
  }
  content.filled = tape != nullptr;
}

template <class Real>
void Recurrent<Real>::backward(const Batch& batch, SequenceView<const Real> x, SequenceView<const Real> dy,
                               const Real* dstate_out, SequenceView<Real> dx, Real* dstate_in,
                               RecurrentTape<Real>& tape, const Execution& execution) {
  ops::Geometry::check(batch);
  require(static_cast<bool>(x), "x must not be null");
  require(static_cast<bool>(dy), "dy must not be null");
  Impl& impl = *impl_;
  const RecurrentSpec& spec = impl.spec;
  auto& content = tape.content();
  require(content.filled && content.halves.size() == impl.layers.size(),
          "tape must hold a forward pass of this network");
  require(content.rows == batch.rows && content.steps == batch.steps && content.places == places(batch),
          "tape must hold a forward pass of this batch: it has {} rows of {} steps ({} in all), not {} of {} ({})",
          content.rows, content.steps, content.places, batch.rows, batch.steps, places(batch));
  require(
      content.rounded == impl.layers.front().rounds_tape(execution),
      "tape must hold a forward pass in the precision of the backward pass, exact or not as it is: of {} it holds {}",
      spec.cell, content.rounded ? "bfloat16" : "floats");
  const auto directions = static_cast<std::size_t>(spec.directions());
  const auto layers = static_cast<std::size_t>(spec.layers);
  const bool time_first = is_time_first(x);

  SequenceView<const Real> gradient = dy;
  for (std::size_t l = layers; l-- > 0;) {
    auto& layer = content.layers[l];
    const Index width = l == 0 ? spec.input_size : spec.output_size();
    SequenceView<Real> dinput = dx;
    if (l > 0 || (directions == 2 && dx)) {
      layer.dinput.resize(places(batch) * width * static_cast<Index>(directions));
      dinput = contiguous(layer.dinput.data(), batch, width, time_first);
    }
    const SequenceView<const Real> output =
        l + 1 < layers ? contiguous<const Real>(layer.output.data(), batch, spec.output_size(), time_first)
                       : SequenceView<const Real>(content.y);
    for (std::size_t d = 0; d < directions; ++d) {
      const std::size_t i = l * directions + d;
      auto& half = content.halves[i];
      const Index offset = static_cast<Index>(d) * spec.hidden_size;
      SequenceView<const Real> part = output, dpart = gradient;
      part.data += offset;
      dpart.data += offset;
      SequenceView<Real> dhalf = dinput;  // the second direction writes beside the first; both are added below
      if (dinput && d == 1) dhalf.data += places(batch) * width;
      impl.take_state(dstate_out, i, batch.rows, impl.dstate_out);
      impl.dstate_in.resize(impl.state_values(batch.rows));
      impl.layers[i].backward(batch, impl.input_of(content, l, batch, x), part, dpart, half.state.data(),
                              impl.dstate_out.data(), dhalf, impl.dstate_in.data(), half.saved.data(),
                              impl.gradients[i], execution);
      impl.put_state(impl.dstate_in, i, batch.rows, dstate_in);
    }
    if (!dinput) break;
    const Index size = places(batch) * width;
    if (directions == 2) {
      for (Index j = 0; j < size; ++j) layer.dinput[j] += layer.dinput[size + j];
      if (l == 0) copy_out(batch, SequenceView<const Real>(dinput), dx, width);
    }
    for (std::size_t j = 0; j < layer.mask.size(); ++j) layer.dinput[j] *= layer.mask[j];
    gradient = dinput;
  }
}

template <class Real>
void Recurrent<Real>::step(Index rows, const Real* x, Real* y, Real* state, const Execution& execution) const {
  Impl& impl = *impl_;
  if (rows == 1 && impl.accepts_row(x, y, state)) return impl.step_row(x, y, state, execution.precision);
  require(x != nullptr, "x must not be null");
  require(y != nullptr, "y must not be null");
  require(state != nullptr, "state must not be null");
  const RecurrentSpec& spec = impl.spec;
  require(spec.direction == Direction::forward,
          "step() needs direction forward, not {}: the end of a stream is not known", to_string(spec.direction));
  Batch batch;
  batch.rows = rows;
  ops::Geometry::check(batch);
  require(are_apart(y, rows * spec.hidden_size, x, rows * spec.input_size), "y must not overlap x");
  require(are_apart(y, rows * spec.hidden_size, state, rows * impl.row_state), "y must not overlap state");
  forward(batch, SequenceView<const Real>::batch_first(x, 1, spec.input_size),
          SequenceView<Real>::batch_first(y, 1, spec.hidden_size), state, state, nullptr, execution);
}

template class RecurrentTape<float>;
template class RecurrentTape<double>;
template class Recurrent<float>;
template class Recurrent<double>;

}  // namespace penstock
