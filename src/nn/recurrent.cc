// The stack of recurrent layers that owns its weights, over the passes that programs run.

#include "penstock/recurrent.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <cmath>
#include <functional>
#include <list>
#include <optional>

#include "backend/cpu/kernels.h"
#include "base/check.h"
#include "base/denormals.h"
#include "base/dtype.h"
#include "base/per_thread.h"
#include "base/random.h"
#include "base/threads.h"
#include "nn/batch_hash.h"
#include "nn/recurrent_graph.h"
#include "ops/geometry.h"
#include "ops/program_check.h"
#include "ops/tensor_check.h"

namespace penstock {
namespace {

/// Passes that a thread keeps ready, of the shapes that it ran last.
constexpr std::size_t kPreparedPasses = 16;

/// Steps in a batch of either kind.
Index places(const Batch& batch) {
  return batch.cu_seqlens != nullptr ? batch.cu_seqlens[batch.rows] : batch.rows * batch.steps;
}

/// Do a [n] and b [m] have no element in common?
template <class Real>
bool are_apart(const Real* a, Index n, const Real* b, Index m) {
  return std::less_equal<>()(a + n, b) || std::less_equal<>()(b + m, a);
}

template <class Real>
SequenceStrides strides_of(const Batch& batch, const SequenceView<Real>& view) {
  return {batch.cu_seqlens != nullptr ? 0 : view.row_stride, view.step_stride};
}

template <class Real>
ops::SequencePlace place_of(const Batch& batch, const SequenceView<Real>& view, Index channels) {
  const bool packed = batch.cu_seqlens != nullptr;
  return {view.data, packed ? 1 : batch.rows, packed ? places(batch) : batch.steps,
          channels,  strides_of(batch, view), sizeof(Real)};
}

/// Throws unless the view can be told from one that was made from a pointer alone.
template <class Real>
void require_strides(const char* name, const Batch& batch, const SequenceView<Real>& view) {
  require(places(batch) <= 1 || strides_of(batch, view) != SequenceStrides{},
          "{} must have strides: batch_first() and time_first() make views", name);
}

/// Forgets what a number is of, so that it can be compared.
bool same(const Execution& a, const Execution& b) { return ops::same_execution(a, b); }

}  // namespace

/// What one forward pass leaves behind, in memory laid out by its program, and what it was of.
template <class Real>
struct RecurrentTape<Real>::Content {
  ops::Queue queue{Device::cpu()};
  ops::Buffer memory;
  nn::StackTape layout;
  std::vector<Real> state_in;  // what the rows began with; empty: zeros
  SequenceView<Real> y;
  RecurrentForm form;
  Index places = 0;
  std::uint64_t network = 0;  // which network the pass was of
  std::uint64_t batch = 0;    // its lengths, packed rows and resets
  std::uint64_t seed = 0;     // of its dropout masks
  bool rounded = false;       // what layers keep is bfloat16
  bool filled = false;
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
  /// A pass of one form, with executables of its own.
  struct Prepared {
    RecurrentForm form;
    Execution execution;
    unsigned isa = 0;
    bool is_backward = false;
    nn::StackPass pass;
    std::optional<graph::Workspace> workspace;
    std::uint64_t version = 0;  // of the weights that its panels are of
  };

  /// What a thread computes with beside the weights.
  struct Work {
    std::list<Prepared> prepared;                  // the last first
    std::array<std::optional<Prepared>, 4> steps;  // of a stream, by precision
    ops::Buffer memory;                            // of one call at a time
    std::uint64_t denormal_version = 0;            // of weights of which the next is known
    bool denormal_weights = false;
  };

  RecurrentSpec spec;
  std::uint64_t seed;
  std::uint64_t identity;  // of no other network
  std::shared_ptr<ops::Queue> queue = std::make_shared<ops::Queue>(Device::cpu());
  std::shared_ptr<graph::Weights> weights;
  std::vector<Real> gradients;
  std::vector<Parameter> parameters;
  PerThread<Work> works{[] { return std::make_unique<Work>(); }};
  std::atomic<std::uint64_t> passes{0};  // training passes so far: each draws dropout masks of its own
  Index row_state = 0;                   // of all layers and directions: values of one row

  Impl(const RecurrentSpec& s, std::uint64_t seed_) : spec(s), seed(seed_), identity(next_identity()) {
    allocate(parameter_shapes(spec));
    initialise();
    row_state = find_cell(spec.cell).states * spec.layers * spec.directions() * spec.hidden_size;
  }

  static std::uint64_t next_identity() {
    static std::atomic<std::uint64_t> count{0};
    return ++count;
  }

  void allocate(std::vector<ParameterShape> shapes) {
    std::size_t total = 0;
    const auto size_of_shape = [](const ParameterShape& parameter) {
      std::size_t size = 1;
      for (const Index extent : parameter.shape) size *= static_cast<std::size_t>(extent);
      return size;
    };
    for (const ParameterShape& parameter : shapes) total += size_of_shape(parameter);
    constexpr std::size_t most = std::size_t{1} << 36;
    require(total <= most,
            "hidden_size, input_size and layers must not ask for more than {} weights, but {} are needed", most, total);
    weights = std::make_shared<graph::Weights>(queue, total * sizeof(Real));
    gradients.resize(total);
    std::size_t offset = 0;
    for (ParameterShape& parameter : shapes) {
      const std::size_t size = size_of_shape(parameter);
      parameters.push_back({std::move(parameter.name),
                            std::move(parameter.shape),
                            {values().data() + offset, size},
                            {gradients.data() + offset, size}});
      offset += size;
    }
  }

  std::span<Real> values() const { return {static_cast<Real*>(weights->values().data()), gradients.size()}; }

  void initialise() {
    Random random(seed);
    const double bound = 1.0 / std::sqrt(static_cast<double>(spec.hidden_size));
    for (Real& value : values()) value = static_cast<Real>(random.uniform(-bound, bound));
  }

  /// What a batch says of a form.
  RecurrentForm form_of(const Batch& batch) const {
    RecurrentForm form;
    form.dtype = form.weights = dtype_of<Real>();
    form.rows = batch.rows;
    form.steps = batch.steps;
    form.positions = batch.cu_seqlens != nullptr ? places(batch) : 0;
    form.lengths = batch.lengths != nullptr;
    form.reset = batch.reset != nullptr;
    form.add_gradients = true;
    return form;
  }

  /// Channels of every state but the output.
  Index other_states() const { return (find_cell(spec.cell).states - 1) * spec.output_size(); }

  /// Every state, where the caller has memory for it.
  template <class Value>
  void set_states(RecurrentForm& form, const char* name, const Batch& batch, const SequenceView<Value>& states) const {
    if (!states) return;
    require_strides(name, batch, states);
    form.every_state = true;
    form.states = strides_of(batch, states);
  }

  static Execution resolved(const Execution& execution) {
    Execution whole = execution;
    whole.threads = resolve_threads(execution.threads);
    whole.device = Device::cpu();
    return whole;
  }

  void make(Prepared& prepared, const RecurrentForm& form, const Execution& execution,
            const nn::StackTape* tape) const {
    nn::check_form(spec, form, execution);
    prepared.form = form;
    prepared.execution = execution;
    prepared.isa = cpu::isa_generation();
    prepared.is_backward = tape != nullptr;
    prepared.pass =
        tape != nullptr ? nn::backward_pass(spec, form, execution, *tape) : nn::forward_pass(spec, form, execution);
    prepared.workspace.emplace(prepared.pass.program);
    prepared.workspace->bind(weights);
    for (std::size_t i = 0; i < parameters.size(); ++i) {
      prepared.workspace->bind(prepared.pass.weights[i], parameters[i].value.data());
      if (tape != nullptr) prepared.workspace->bind(prepared.pass.gradients[i], parameters[i].gradient.data());
    }
  }

  /// The pass of that form, as this thread runs it. `tape`: of a backward pass.
  Prepared& prepare(Work& work, const RecurrentForm& form, const Execution& execution, const nn::StackTape* tape) {
    const unsigned isa = cpu::isa_generation();
    auto& all = work.prepared;
    const auto found = std::ranges::find_if(all, [&](const Prepared& held) {
      return held.is_backward == (tape != nullptr) && held.isa == isa && held.form == form &&
             same(held.execution, execution);
    });
    if (found != all.end()) {
      all.splice(all.begin(), all, found);
    } else {
      Prepared fresh;
      make(fresh, form, execution, tape);
      all.push_front(std::move(fresh));
      if (all.size() > kPreparedPasses) all.pop_back();
    }
    refresh(work, all.front());
    return all.front();
  }

  void refresh(Work& work, Prepared& prepared) const {
    const std::size_t bytes = prepared.pass.program->workspace_bytes();
    if (work.memory.bytes() < bytes) work.memory = ops::Buffer(*queue, bytes);
    prepared.workspace->place(work.memory.data());
    if (prepared.version == weights->version()) return;
    prepared.workspace->refresh({.threads = prepared.execution.threads});
    prepared.version = weights->version();
  }

  /// Can step_row() do that? If not, step() finds out why.
  bool accepts_row(const Real* x, const Real* y, const Real* state, const Execution& execution) const {
    return x != nullptr && y != nullptr && state != nullptr && spec.direction == Direction::forward &&
           execution.precision < Precision::f16 && execution.precision >= Precision::full &&
           are_apart(y, spec.hidden_size, x, spec.input_size) && are_apart(y, spec.hidden_size, state, row_state);
  }

  /// x [I] -> y [H], state [S, layers, H].
  void step_row(const Real* x, Real* y, Real* state, Precision precision) {
    Work& work = works.get();
    std::optional<Prepared>& held = work.steps[static_cast<std::size_t>(precision)];
    if (!held || held->isa != cpu::isa_generation()) {
      RecurrentForm form;
      form.dtype = form.weights = dtype_of<Real>();
      form.step = true;
      Prepared fresh;  // one row: all kinds of kernels give the same bits
      make(fresh, form, {.threads = 1, .exact = true, .precision = precision}, nullptr);
      held = std::move(fresh);
    }
    refresh(work, *held);
    graph::Workspace& workspace = *held->workspace;
    workspace.bind(held->pass.x, const_cast<Real*>(x));
    workspace.bind(held->pass.y, y);
    workspace.bind(held->pass.state_in, state);
    workspace.bind(held->pass.state_out, state);
    const ops::Call call{.threads = 1};
    if (has_denormal_weights(work)) {
      workspace.run(call);
    } else {
      workspace.run_as_is(call);
    }
  }

  /// Steps count denormal numbers as zeros only if weights are denormal: changing the mode takes half as long as a
  /// small step does, and callers of many steps do it once.
  bool has_denormal_weights(Work& work) const {
    if (work.denormal_version != weights->version()) {
      work.denormal_version = weights->version();
      work.denormal_weights = has_denormals(values().data(), static_cast<Index>(values().size()));
    }
    return work.denormal_weights;
  }
};

namespace {

/// The network behind a handle that has not been moved from.
template <class Impl>
Impl& alive(const std::unique_ptr<Impl>& impl) {
  require(impl != nullptr, "the network must not have been moved from");
  return *impl;
}

/// What goes out where no row has a step: what came in.
template <class Real>
void pass_on(Index count, const Real* from, Real* to) {
  if (to == nullptr || to == from) return;
  if (from == nullptr) {
    std::fill_n(to, count, Real(0));
  } else {
    std::copy_n(from, count, to);
  }
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
const std::vector<typename Recurrent<Real>::Parameter>& Recurrent<Real>::parameters() const {
  return alive(impl_).parameters;
}

template <class Real>
typename Recurrent<Real>::Parameter& Recurrent<Real>::parameter(std::string_view name) {
  std::vector<Parameter>& all = alive(impl_).parameters;
  const auto found = std::ranges::find(all, name, &Parameter::name);
  if (found != all.end()) return *found;
  std::vector<std::string_view> names;
  for (const Parameter& one : all) names.emplace_back(one.name);
  fail(ErrorCode::invalid_argument, "name must be one of {}, not {}", fmt::join(names, ", "), name);
}

template <class Real>
void Recurrent<Real>::weights_changed() {
  alive(impl_).weights->changed();
}

template <class Real>
void Recurrent<Real>::zero_gradients() {
  std::ranges::fill(alive(impl_).gradients, Real(0));
}

template <class Real>
void Recurrent<Real>::forward(const Batch& batch, SequenceView<const Real> x, SequenceView<Real> y,
                              const Real* state_in, Real* state_out, RecurrentTape<Real>* tape,
                              const Execution& execution, SequenceView<Real> states) const {
  ops::Geometry::check(batch);
  require(static_cast<bool>(x), "x must not be null");
  require(static_cast<bool>(y), "y must not be null");
  Impl& impl = alive(impl_);
  const RecurrentSpec& spec = impl.spec;
  require_strides("x", batch, x);
  ops::require_apart("y", place_of(batch, y, spec.output_size()));
  require(!ops::share_memory(place_of(batch, x, spec.input_size), place_of(batch, y, spec.output_size())),
          "y must not overlap x");
  RecurrentForm form = impl.form_of(batch);
  form.training = tape != nullptr;
  impl.set_states(form, "states", batch, states);
  if (states) {
    const ops::SequencePlace place = place_of(batch, states, impl.other_states());
    ops::require_apart("states", place);
    require(!ops::share_memory(place, place_of(batch, x, spec.input_size)), "states must not overlap x");
    require(!ops::share_memory(place, place_of(batch, y, spec.output_size())), "states must not overlap y");
  }
  form.x = strides_of(batch, x);
  form.y = strides_of(batch, y);
  typename Impl::Work& work = impl.works.get();
  typename Impl::Prepared& prepared = impl.prepare(work, form, Impl::resolved(execution), nullptr);
  graph::Workspace& workspace = *prepared.workspace;
  ops::Call call{.batch = batch, .threads = prepared.execution.threads};
  if (tape != nullptr) {
    auto& content = tape->content();
    content.filled = false;
    content.layout = prepared.pass.tape;
    content.y = y;
    content.form = form;
    content.places = places(batch);
    content.network = impl.identity;
    content.batch = nn::hash_of(batch);
    content.rounded = prepared.pass.rounds_tape;
    content.seed = spec.dropout > 0.0 ? nn::Hash(impl.seed).add(++impl.passes).value() : 0;
    call.seed = content.seed;
    const auto state_values = static_cast<std::size_t>(impl.row_state * batch.rows);
    content.state_in.assign(state_in, state_in + (state_in == nullptr ? 0 : state_values));
    if (content.memory.bytes() < prepared.pass.tape.bytes) {
      content.memory = ops::Buffer(content.queue, prepared.pass.tape.bytes);
    }
    prepared.pass.bind_tape(workspace, content.memory.data());
    content.filled = true;
  }
  if (batch.cu_seqlens != nullptr && places(batch) == 0) {
    return pass_on(impl.row_state * batch.rows, state_in, state_out);
  }
  workspace.bind(prepared.pass.x, const_cast<Real*>(x.data));
  workspace.bind(prepared.pass.y, y.data);
  workspace.bind(prepared.pass.state_in, const_cast<Real*>(state_in));
  workspace.bind(prepared.pass.state_out, state_out);
  if (states) workspace.bind(prepared.pass.states, states.data);
  workspace.run(call);
}

template <class Real>
void Recurrent<Real>::backward(const Batch& batch, SequenceView<const Real> x, SequenceView<const Real> dy,
                               const Real* dstate_out, SequenceView<Real> dx, Real* dstate_in,
                               RecurrentTape<Real>& tape, const Execution& execution,
                               SequenceView<const Real> dstates) {
  ops::Geometry::check(batch);
  require(static_cast<bool>(x), "x must not be null");
  require(static_cast<bool>(dy), "dy must not be null");
  Impl& impl = alive(impl_);
  const RecurrentSpec& spec = impl.spec;
  auto& content = tape.content();
  require(content.filled && content.network == impl.identity, "tape must hold a forward pass of this network");
  require(content.form.rows == batch.rows && content.form.steps == batch.steps && content.places == places(batch),
          "tape must hold a forward pass of this batch: it has {} rows of {} steps ({} in all), not {} of {} ({})",
          content.form.rows, content.form.steps, content.places, batch.rows, batch.steps, places(batch));
  require(content.batch == nn::hash_of(batch),
          "tape must hold a forward pass of this batch: its lengths, packed rows or resets are others");
  require_strides("dy", batch, dy);
  require(strides_of(batch, x) == content.form.x, "x must lie in memory as in the forward call that filled the tape");
  RecurrentForm form = impl.form_of(batch);
  form.training = true;
  form.x = content.form.x;
  form.y = content.form.y;
  form.dy = strides_of(batch, dy);
  impl.set_states(form, "dstates", batch, dstates);
  form.input_gradient = static_cast<bool>(dx);
  if (dx) {
    const ops::SequencePlace place = place_of(batch, dx, spec.input_size);
    ops::require_apart("dx", place);
    require(!ops::share_memory(place, place_of(batch, dy, spec.output_size())), "dx must not overlap dy");
    require(!ops::share_memory(place, place_of(batch, x, spec.input_size)), "dx must not overlap x");
    form.dx = strides_of(batch, dx);
  }
  typename Impl::Work& work = impl.works.get();
  typename Impl::Prepared& prepared = impl.prepare(work, form, Impl::resolved(execution), &content.layout);
  const nn::StackPass& pass = prepared.pass;
  require(
      content.rounded == pass.rounds_tape,
      "tape must hold a forward pass in the precision of the backward pass, exact or not as it is: of {} it holds {}",
      spec.cell, content.rounded ? "bfloat16" : "floats");
  if (batch.cu_seqlens != nullptr && places(batch) == 0) {
    return pass_on(impl.row_state * batch.rows, dstate_out, dstate_in);
  }
  graph::Workspace& workspace = *prepared.workspace;
  workspace.bind(pass.x, const_cast<Real*>(x.data));
  workspace.bind(pass.y, content.y.data);
  workspace.bind(pass.dy, const_cast<Real*>(dy.data));
  if (dx) workspace.bind(pass.dx, dx.data);
  workspace.bind(pass.state_in, content.state_in.empty() ? nullptr : content.state_in.data());
  workspace.bind(pass.dstate_out, const_cast<Real*>(dstate_out));
  workspace.bind(pass.dstate_in, dstate_in);
  if (dstates) workspace.bind(pass.dstates, const_cast<Real*>(dstates.data));
  pass.bind_tape(workspace, content.memory.data());
  workspace.run({.batch = batch, .threads = prepared.execution.threads, .seed = content.seed});
}

template <class Real>
void Recurrent<Real>::step(Index rows, const Real* x, Real* y, Real* state, const Execution& execution) const {
  Impl& impl = alive(impl_);
  if (rows == 1 && impl.accepts_row(x, y, state, execution)) return impl.step_row(x, y, state, execution.precision);
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
