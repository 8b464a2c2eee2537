// The public stack of recurrent layers over nn::RecurrentLayer.

#include "penstock/recurrent.h"

#include <algorithm>
#include <atomic>
#include <cmath>
#include <functional>
#include <limits>

#include "base/aligned.h"
#include "base/check.h"
#include "base/per_thread.h"
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

/// Do two tensors of a batch, of so many channels, share memory? Views that interleave without touching do not.
template <class Real>
bool share_memory(const Batch& batch, SequenceView<const Real> a, Index a_channels, SequenceView<const Real> b,
                  Index b_channels) {
  const auto reach = [&](const SequenceView<const Real>& view, Index channels) {
    const bool packed = batch.cu_seqlens != nullptr;
    const Index rows = packed ? 1 : batch.rows, steps = packed ? batch.cu_seqlens[batch.rows] : batch.steps;
    const Index row = (rows - 1) * view.row_stride, step = (steps - 1) * view.step_stride;
    return std::pair(std::min<Index>(0, row) + std::min<Index>(0, step),
                     std::max<Index>(0, row) + std::max<Index>(0, step) + channels);
  };
  if (places(batch) == 0) return false;
  const auto [a_first, a_end] = reach(a, a_channels);
  const auto [b_first, b_end] = reach(b, b_channels);
  if (are_apart(a.data + a_first, a_end - a_first, b.data + b_first, b_end - b_first)) return false;
  // Channels of one wider tensor, side by side: same strides, and no position of one touches the other's.
  if (a.row_stride != b.row_stride || a.step_stride != b.step_stride) return true;
  const Index apart = b.data - a.data;
  const Index smallest = std::min(batch.rows > 1 ? std::abs(a.row_stride) : std::numeric_limits<Index>::max(),
                                  batch.steps > 1 ? std::abs(a.step_stride) : std::numeric_limits<Index>::max());
  return apart >= 0 ? !(apart >= a_channels && apart + b_channels <= smallest)
                    : !(-apart >= b_channels && -apart + a_channels <= smallest);
}

/// Throws unless every position of a tensor that is written has a place of its own.
template <class Real>
void check_strides(const char* name, const Batch& batch, const SequenceView<Real>& view, Index channels) {
  const bool packed = batch.cu_seqlens != nullptr;
  const Index steps = packed ? batch.cu_seqlens[batch.rows] : batch.steps;
  require(steps <= 1 || std::abs(view.step_stride) >= channels,
          "{} must have a step stride of at least its {} channels, not {}: batch_first() and time_first() make views",
          name, channels, view.step_stride);
  require(packed || batch.rows <= 1 || std::abs(view.row_stride) >= channels,
          "{} must have a row stride of at least its {} channels, not {}: batch_first() and time_first() make views",
          name, channels, view.row_stride);
}

/// A number that tells batches apart whose positions lie elsewhere: of their lengths, packed rows and resets (FNV-1a).
std::uint64_t shape_of(const Batch& batch) {
  std::uint64_t hash = 0xcbf29ce484222325ULL;
  const auto add = [&](std::uint64_t value) { hash = (hash ^ value) * 0x100000001b3ULL; };
  add(static_cast<std::uint64_t>(batch.rows));
  add(static_cast<std::uint64_t>(batch.steps));
  add(batch.lengths != nullptr ? 1 : 0);
  for (Index b = 0; batch.lengths != nullptr && b < batch.rows; ++b) add(static_cast<std::uint64_t>(batch.lengths[b]));
  for (Index b = 0; batch.cu_seqlens != nullptr && b <= batch.rows; ++b) {
    add(static_cast<std::uint64_t>(batch.cu_seqlens[b]));
  }
  for (Index i = 0; batch.reset != nullptr && i < places(batch); ++i) add(batch.reset[i] != 0 ? 1 : 2);
  return hash;
}

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
  bool rounded = false;       // what layers keep is bfloat16
  std::uint64_t network = 0;  // which network the pass was of
  std::uint64_t shape = 0;    // of the batch, as shape_of() has it
};

template <class Real>
typename RecurrentTape<Real>::Content& RecurrentTape<Real>::content() {
  require(content_ != nullptr, "tape must not have been moved from");
  return *content_;
}

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
  std::uint64_t identity;                        // of no other network
  std::vector<nn::RecurrentLayer<Real>> layers;  // [layers * directions], as the next three; never computed with
  std::vector<std::shared_ptr<nn::SharedPanels<Real>>> panels;
  std::vector<nn::RecurrentWeights<Real>> weights, gradients;
  std::vector<Real> values, gradient_values;
  std::vector<Parameter> parameters;

  /// What a call works with beside the weights: every thread has its own.
  struct Work {
    std::vector<nn::RecurrentLayer<Real>> layers;
    std::vector<Real> between[2];                        // from layer to layer, one step [H]
    std::vector<Real> state_out, dstate_out, dstate_in;  // [S, B, H] of one layer and direction
    typename RecurrentTape<Real>::Content inference;     // of forward passes without a tape
  };
  PerThread<Work> works{[this] { return make_work(); }};
  std::atomic<std::uint64_t> passes{0};  // training passes so far: each draws dropout masks of its own

  Impl(const RecurrentSpec& s, std::uint64_t seed_) : spec(s), seed(seed_), identity(next_identity()) {
    check(spec);
    for (Index l = 0; l < spec.layers; ++l) {
      for (Index d = 0; d < spec.directions(); ++d) {
        const Index input = l == 0 ? spec.input_size : spec.output_size();
        const bool reverse = spec.direction == Direction::reverse || d == 1;
        panels.push_back(std::make_shared<nn::SharedPanels<Real>>());
        layers.emplace_back(nn::RecurrentLayerSpec{spec.cell, input, spec.hidden_size, spec.heads, spec.bias, reverse},
                            panels.back());
      }
    }
    allocate();
    initialise();
    row_state = states() * slabs() * spec.hidden_size;
  }

  static std::uint64_t next_identity() {
    static std::atomic<std::uint64_t> count{0};
    return ++count;
  }

  std::unique_ptr<Work> make_work() const {
    auto work = std::make_unique<Work>();
    for (std::size_t i = 0; i < layers.size(); ++i) {
      work->layers.emplace_back(layers[i].spec(), panels[i]);
      work->layers.back().set_weights(weights[i]);
    }
    for (auto& step : work->between) step.resize(static_cast<std::size_t>(spec.hidden_size));
    return work;
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
  void step_row(const Real* x, Real* y, Real* state, Precision precision) const {
    Work& work = works.get();
    const Index hidden = spec.hidden_size, stride = spec.layers * hidden;
    const std::size_t last = layers.size() - 1;
    for (std::size_t l = 0; l < last; ++l, state += hidden) {
      Real* const out = work.between[l % 2].data();
      work.layers[l].step(x, out, state, stride, precision);
      x = out;
    }
    work.layers[last].step(x, y, state, stride, precision);
  }

  Index row_state = 0;  // of all layers and directions: values of one row
};

namespace {

/// The network behind a handle that has not been moved from.
template <class Impl>
Impl& alive(const std::unique_ptr<Impl>& impl) {
  require(impl != nullptr, "the network must not have been moved from");
  return *impl;
}

}  // namespace

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
  return alive(impl_).spec;
}

template <class Real>
Index Recurrent<Real>::state_size() const {
  return alive(impl_).row_state;
}

template <class Real>
std::vector<typename Recurrent<Real>::Parameter>& Recurrent<Real>::parameters() {
  return alive(impl_).parameters;
}

template <class Real>
void Recurrent<Real>::weights_changed() {
  for (const auto& panels : alive(impl_).panels) panels->forget();
}

template <class Real>
void Recurrent<Real>::forward(const Batch& batch, SequenceView<const Real> x, SequenceView<Real> y,
                              const Real* state_in, Real* state_out, RecurrentTape<Real>* tape,
                              const Execution& execution) const {
  ops::Geometry::check(batch);
  require(static_cast<bool>(x), "x must not be null");
  require(static_cast<bool>(y), "y must not be null");
  Impl& impl = alive(impl_);
  const RecurrentSpec& spec = impl.spec;
  check_strides("y", batch, y, spec.output_size());
  require(!share_memory(batch, x, spec.input_size, SequenceView<const Real>(y), spec.output_size()),
          "y must not overlap x");
  typename Impl::Work& work = impl.works.get();
  auto& content = tape != nullptr ? tape->content() : work.inference;
  const auto directions = static_cast<std::size_t>(spec.directions());
  const auto layers = static_cast<std::size_t>(spec.layers);
  content.layers.resize(layers);
  content.halves.resize(impl.layers.size());
  content.y = y;
  content.rows = batch.rows;
  content.steps = batch.steps;
  content.places = places(batch);
  content.filled = false;
  content.rounded = work.layers.front().rounds_tape(execution);
  content.network = impl.identity;
  if (tape != nullptr) content.shape = shape_of(batch);
  const std::uint64_t pass = tape != nullptr && spec.dropout > 0.0 ? ++impl.passes : 0;

  for (std::size_t l = 0; l < layers; ++l) {
    SequenceView<Real> output = y;
    if (l + 1 < layers) {
      content.layers[l].output.resize(places(batch) * spec.output_size());
      output = contiguous(content.layers[l].output.data(), batch, spec.output_size(), is_time_first(x));
    }
    for (std::size_t d = 0; d < directions; ++d) {
      const std::size_t i = l * directions + d;
      auto& half = content.halves[i];
      if (tape != nullptr) half.saved.resize(work.layers[i].tape_size(batch, execution));
      impl.take_state(state_in, i, batch.rows, half.state);
      work.state_out.resize(impl.state_values(batch.rows));
      SequenceView<Real> part = output;
      part.data += static_cast<Index>(d) * spec.hidden_size;
      work.layers[i].forward(batch, impl.input_of(content, l, batch, x), part, half.state.data(), work.state_out.data(),
                             tape != nullptr ? half.saved.data() : nullptr, execution);
      impl.put_state(work.state_out, i, batch.rows, state_out);
    }
    if (l + 1 == layers) break;
    auto& next = content.layers[l + 1];
    next.mask.clear();
    if (tape != nullptr && spec.dropout > 0.0) {
      drop(spec.dropout, impl.seed + 0x9e3779b97f4a7c15ULL * (pass * layers + l), content.layers[l].output, next.mask,
           next.input);
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
  Impl& impl = alive(impl_);
  const RecurrentSpec& spec = impl.spec;
  typename Impl::Work& work = impl.works.get();
  auto& content = tape.content();
  require(content.filled && content.network == impl.identity, "tape must hold a forward pass of this network");
  require(content.rows == batch.rows && content.steps == batch.steps && content.places == places(batch),
          "tape must hold a forward pass of this batch: it has {} rows of {} steps ({} in all), not {} of {} ({})",
          content.rows, content.steps, content.places, batch.rows, batch.steps, places(batch));
  require(content.shape == shape_of(batch),
          "tape must hold a forward pass of this batch: its lengths, packed rows or resets are others");
  if (dx) {
    check_strides("dx", batch, dx, spec.input_size);
    require(!share_memory(batch, SequenceView<const Real>(dx), spec.input_size, dy, spec.output_size()),
            "dx must not overlap dy");
    require(!share_memory(batch, SequenceView<const Real>(dx), spec.input_size, x, spec.input_size),
            "dx must not overlap x");
  }
  require(
      content.rounded == work.layers.front().rounds_tape(execution),
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
      impl.take_state(dstate_out, i, batch.rows, work.dstate_out);
      work.dstate_in.resize(impl.state_values(batch.rows));
      work.layers[i].backward(batch, impl.input_of(content, l, batch, x), part, dpart, half.state.data(),
                              work.dstate_out.data(), dhalf, work.dstate_in.data(), half.saved.data(),
                              impl.gradients[i], execution);
      impl.put_state(work.dstate_in, i, batch.rows, dstate_in);
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
  const Impl& impl = alive(impl_);
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
