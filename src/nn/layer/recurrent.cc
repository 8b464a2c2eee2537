// The stack of recurrent layers that owns its weights, over the passes that programs run.

#include "nn/layer/recurrent_impl.h"

namespace penstock {

using nn::strides_of;
using ops::positions_of;

namespace {

template <class Real>
ops::SequencePlace place_of(const Batch& batch, const SequenceView<Real>& view, Index channels) {
  const bool packed = batch.cu_seqlens != nullptr;
  return {view.data, packed ? 1 : batch.rows, packed ? positions_of(batch) : batch.steps,
          channels,  strides_of(batch, view), sizeof(Real)};
}

/// Throws unless the view can be told from one that was made from a pointer alone.
template <class Real>
void require_strides(const char* name, const Batch& batch, const SequenceView<Real>& view) {
  require(positions_of(batch) <= 1 || strides_of(batch, view) != SequenceStrides{},
          "{} must have strides: batch_first() and time_first() make views", name);
}

/// Every state, where the caller has memory for it.
template <class Value>
void set_states(RecurrentForm& form, const char* name, const Batch& batch, const SequenceView<Value>& states) {
  if (!states) return;
  require_strides(name, batch, states);
  form.every_state = true;
  form.states = strides_of(batch, states);
}

}  // namespace

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
Recurrent<Real>::Recurrent(const RecurrentSpec& spec, std::uint64_t seed)
    : impl_(std::make_unique<Impl>(spec, seed, nullptr)) {
  impl_->initialise();
}
template <class Real>
Recurrent<Real>::Recurrent(const RecurrentSpec& spec, Stream& stream, std::uint64_t seed)
    : impl_(std::make_unique<Impl>(spec, seed, &stream)) {
  impl_->initialise();
}
template <class Real>
Recurrent<Real>::~Recurrent() = default;
template <class Real>
Recurrent<Real>::Recurrent(Recurrent&&) noexcept = default;
template <class Real>
Recurrent<Real>& Recurrent<Real>::operator=(Recurrent&&) noexcept = default;

template <class Real>
typename Recurrent<Real>::Impl& Recurrent<Real>::held() const {
  return alive(impl_, "the network");
}

template <class Real>
const RecurrentSpec& Recurrent<Real>::spec() const {
  return held().spec;
}

template <class Real>
Index Recurrent<Real>::state_size() const {
  return held().row_state;
}

template <class Real>
std::vector<typename Recurrent<Real>::Parameter>& Recurrent<Real>::parameters() {
  return held().parameters;
}

template <class Real>
const std::vector<typename Recurrent<Real>::Parameter>& Recurrent<Real>::parameters() const {
  return held().parameters;
}

template <class Real>
typename Recurrent<Real>::Parameter& Recurrent<Real>::parameter(std::string_view name) {
  return held().parameter(name);
}

template <class Real>
void Recurrent<Real>::weights_changed() {
  held().weights_changed();
}

template <class Real>
void Recurrent<Real>::forward(const Batch& batch, SequenceView<const Real> x, SequenceView<Real> y,
                              const Real* state_in, Real* state_out, RecurrentTape<Real>* tape,
                              const Execution& execution, SequenceView<Real> states) const {
  ops::Geometry::check(batch);
  require(static_cast<bool>(x), "x must not be null");
  require(static_cast<bool>(y), "y must not be null");
  Impl& impl = held();
  const RecurrentSpec& spec = impl.spec;
  require_strides("x", batch, x);
  ops::require_apart("y", place_of(batch, y, spec.output_size()));
  require(!ops::share_memory(place_of(batch, x, spec.input_size), place_of(batch, y, spec.output_size())),
          "y must not overlap x");
  RecurrentForm form = impl.form_of(batch);
  form.training = tape != nullptr;
  set_states(form, "states", batch, states);
  if (states) {
    const ops::SequencePlace place = place_of(batch, states, nn::other_states(spec));
    ops::require_apart("states", place);
    require(!ops::share_memory(place, place_of(batch, x, spec.input_size)), "states must not overlap x");
    require(!ops::share_memory(place, place_of(batch, y, spec.output_size())), "states must not overlap y");
  }
  form.x = strides_of(batch, x);
  form.y = strides_of(batch, y);
  if (impl.stack)
    return impl.forward_copied(batch, x, y, state_in, state_out, tape ? &tape->content() : nullptr, execution, states);
  typename Impl::Work& work = impl.works.get();
  typename Impl::Prepared& prepared = impl.prepare(work, form, Impl::resolved(execution), nullptr);
  graph::Workspace& workspace = *prepared.workspace;
  ops::Call call{.batch = batch, .threads = prepared.execution.threads};
  if (tape != nullptr) {
    auto& content = tape->content();
    content.start(impl.identity, impl.version(), impl.queue);
    content.layout = prepared.pass.tape;
    content.y = y;
    content.form = form;
    content.places = positions_of(batch);
    content.batch = nn::hash_of(batch);
    content.rounded = prepared.pass.rounds_tape;
    call.seed = content.seed = impl.next_seed();
    const auto state_values = static_cast<std::size_t>(impl.row_state * batch.rows);
    content.state_in.assign(state_in, state_in + (state_in == nullptr ? 0 : state_values));
    if (content.memory.bytes() < prepared.pass.tape.bytes) {
      content.memory = ops::Buffer(content.queue, prepared.pass.tape.bytes);
    }
    prepared.pass.bind_tape(workspace, content.memory.data());
    content.filled = true;
  }
  if (positions_of(batch) == 0) {
    return nn::pass_on(impl.row_state * batch.rows, state_in, state_out);
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
  Impl& impl = held();
  const RecurrentSpec& spec = impl.spec;
  auto& content = tape.content();
  require(content.filled, "tape must hold a forward pass of this network");
  impl.require_tape_of_this(content);
  require(content.form.rows == batch.rows && content.form.steps == batch.steps && content.places == positions_of(batch),
          "tape must hold a forward pass of this batch: it has {} rows of {} steps ({} in all), not {} of {} ({})",
          content.form.rows, content.form.steps, content.places, batch.rows, batch.steps, positions_of(batch));
  require(content.batch == nn::hash_of(batch),
          "tape must hold a forward pass of this batch: its lengths, packed rows or resets are others");
  require_strides("dy", batch, dy);
  require(strides_of(batch, x) == content.form.x, "x must lie in memory as in the forward call that filled the tape");
  RecurrentForm form = impl.form_of(batch);
  form.training = true;
  form.x = content.form.x;
  form.y = content.form.y;
  form.dy = strides_of(batch, dy);
  set_states(form, "dstates", batch, dstates);
  form.input_gradient = static_cast<bool>(dx);
  if (dx) {
    const ops::SequencePlace place = place_of(batch, dx, spec.input_size);
    ops::require_apart("dx", place);
    require(!ops::share_memory(place, place_of(batch, dy, spec.output_size())), "dx must not overlap dy");
    require(!ops::share_memory(place, place_of(batch, x, spec.input_size)), "dx must not overlap x");
    form.dx = strides_of(batch, dx);
  }
  if (impl.stack) return impl.backward_copied(batch, dy, dstate_out, dx, dstate_in, content, execution, dstates);
  typename Impl::Work& work = impl.works.get();
  typename Impl::Prepared& prepared = impl.prepare(work, form, Impl::resolved(execution), &content.layout);
  const nn::StackPass& pass = prepared.pass;
  require(
      content.rounded == pass.rounds_tape,
      "tape must hold a forward pass in the precision of the backward pass, exact or not as it is: of {} it holds {}",
      spec.cell, content.rounded ? "bfloat16" : "floats");
  if (positions_of(batch) == 0) {
    return nn::pass_on(impl.row_state * batch.rows, dstate_out, dstate_in);
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
  Impl& impl = held();
  if (rows == 1 && !impl.stack && impl.accepts_row(x, y, state, execution))
    return impl.step_row(x, y, state, execution.precision);
  require(x != nullptr, "x must not be null");
  require(y != nullptr, "y must not be null");
  require(state != nullptr, "state must not be null");
  const RecurrentSpec& spec = impl.spec;
  require(spec.direction == Direction::forward,
          "step() needs direction forward, not {}: the end of a stream is not known", to_string(spec.direction));
  Batch batch;
  batch.rows = rows;
  ops::Geometry::check(batch);
  require(nn::are_apart(y, rows * spec.hidden_size, x, rows * spec.input_size), "y must not overlap x");
  require(nn::are_apart(y, rows * spec.hidden_size, state, rows * impl.row_state), "y must not overlap state");
  if (impl.stack) return impl.step_copied(rows, x, y, state, execution);
  forward(batch, SequenceView<const Real>::batch_first(x, 1, spec.input_size),
          SequenceView<Real>::batch_first(y, 1, spec.hidden_size), state, state, nullptr, execution);
}

template class RecurrentTape<float>;
template class RecurrentTape<double>;
template class Recurrent<float>;
template class Recurrent<double>;

}  // namespace penstock
