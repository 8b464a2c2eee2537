// Networks on streams: where their parameters lie, calls with tensors of the device, and calls that copy.

#include "nn/layer/recurrent_impl.h"

namespace penstock {

using ops::positions_of;

namespace {

/// Tensors of a call that are copied.
enum Copy {
  copy_x,
  copy_y,
  copy_dy,
  copy_dx,
  copy_state_in,
  copy_state_out,
  copy_dstate_out,
  copy_dstate_in,
  copy_states,
  copy_dstates
};
static_assert(copy_dstates < ops::HostCopies::slots);

/// A tensor of the CPU as calls with pointers take it.
template <class Real>
SequenceView<Real> view_of(const char* name, const Batch& batch, const Tensor& tensor, Index channels) {
  const bool packed = batch.cu_seqlens != nullptr;
  ops::require_tensor(name, tensor, dtype_of<std::remove_const_t<Real>>(), Device::cpu(), sizeof(Real));
  ops::require_sequence(name, tensor, {batch.rows, batch.steps, packed ? positions_of(batch) : 0}, channels);
  return {static_cast<Real*>(tensor.data), packed ? 0 : tensor.strides[0], tensor.strides[packed ? 0 : 1]};
}

template <class Real>
Real* state_of(const char* name, const Tensor& tensor, const std::vector<Index>& shape) {
  if (!tensor) return nullptr;
  ops::require_tensor(name, tensor, dtype_of<Real>(), Device::cpu(), sizeof(Real));
  ops::require_gapless(name, tensor, shape.data(), static_cast<int>(shape.size()));
  return static_cast<Real*>(tensor.data);
}

/// [B, C] as one step of a sequence.
Tensor one_step(const char* name, const Tensor& tensor) {
  require(tensor.data != nullptr, "{} must not be null", name);
  require(tensor.rank == 2, "{} must have 2 axes, [B, C], not {}", name, tensor.rank);
  Tensor step = tensor;
  step.rank = 3;
  step.shape = {tensor.shape[0], 1, tensor.shape[1], 0};
  step.strides = {tensor.strides[0], tensor.shape[1], tensor.strides[1], 0};
  return step;
}

}  // namespace

template <class Real>
Device Recurrent<Real>::device() const {
  return held().device();
}

template <class Real>
void Recurrent<Real>::move_to(Stream& stream) {
  const Impl& from = held();
  auto moved = std::make_unique<Impl>(from.spec, from.seed, &stream);
  moved->passes = from.passes.load();
  std::vector<Real> numbers;
  for (const Parameter& parameter : from.parameters) {
    numbers.resize(ops::count_of(parameter.shape));
    Parameter& there = moved->parameter(parameter.name);
    from.read(parameter.value_tensor, parameter.value, numbers);
    moved->write(there.value_tensor, there.value, numbers);
    from.read(parameter.gradient_tensor, parameter.gradient, numbers);
    moved->write(there.gradient_tensor, there.gradient, numbers);
  }
  impl_ = std::move(moved);
}

template <class Real>
void Recurrent<Real>::zero_gradients() {
  Impl& impl = held();
  if (impl.stack) {
    impl.stack->zero_gradients();
  } else {
    std::ranges::fill(impl.gradients, Real(0));
  }
}

template <class Real>
void Recurrent<Real>::read(std::string_view name, std::span<Real> value) const {
  const Parameter& parameter = held().parameter(name);
  Impl::require_size(parameter, value.size());
  impl_->read(parameter.value_tensor, parameter.value, value);
}

template <class Real>
void Recurrent<Real>::read_gradient(std::string_view name, std::span<Real> gradient) const {
  const Parameter& parameter = held().parameter(name);
  Impl::require_size(parameter, gradient.size());
  impl_->read(parameter.gradient_tensor, parameter.gradient, gradient);
}

template <class Real>
void Recurrent<Real>::write(std::string_view name, std::span<const Real> value) {
  const Parameter& parameter = held().parameter(name);
  Impl::require_size(parameter, value.size());
  impl_->write(parameter.value_tensor, parameter.value, value);
  impl_->weights_changed();
}

template <class Real>
void Recurrent<Real>::Impl::forward_copied(const Batch& batch, SequenceView<const Real> x, SequenceView<Real> y,
                                           const Real* state_in, Real* state_out,
                                           typename RecurrentTape<Real>::Content* tape, const Execution& execution,
                                           SequenceView<Real> every_state) {
  ops::Queue& on = *stack->queue();
  const std::vector<Index> states = state_shape(batch.rows);
  if (tape != nullptr) {
    tape->start(identity, version(), stack->queue());
    tape->form = form_of(batch);
    tape->form.x = nn::strides_of(batch, x);
    tape->places = positions_of(batch);
    tape->batch = nn::hash_of(batch);
    tape->seed = next_seed();
  }
  if (positions_of(batch) == 0) {
    if (tape != nullptr) tape->filled = true;
    return nn::pass_on(row_state * batch.rows, state_in, state_out);
  }
  ops::HostCopies& copied = tape != nullptr ? tape->copies : copies.get();
  const Batch there = copied.upload(on, batch);
  const Tensor x_there = copied.upload<Real>(on, copy_x, batch, x, spec.input_size);
  const Tensor y_there = copied.room<Real>(on, copy_y, batch, y, spec.output_size());
  const Tensor in = copied.upload_state(on, copy_state_in, state_in, states);
  const Tensor out = copied.state_room<Real>(on, copy_state_out, state_out != nullptr, states);
  const Tensor each =
      every_state ? copied.room<Real>(on, copy_states, batch, every_state, nn::other_states(spec)) : Tensor{};
  stack->forward(there, x_there, y_there, in, out, each, tape != nullptr ? &tape->device : nullptr,
                 tape != nullptr ? tape->seed : 0, execution);
  copied.download(copy_y, batch, y, spec.output_size());
  copied.download_state(copy_state_out, state_out, states);
  if (every_state) copied.download(copy_states, batch, every_state, nn::other_states(spec));
  if (tape != nullptr) tape->filled = true;
}

template <class Real>
void Recurrent<Real>::Impl::backward_copied(const Batch& batch, SequenceView<const Real> dy, const Real* dstate_out,
                                            SequenceView<Real> dx, Real* dstate_in,
                                            typename RecurrentTape<Real>::Content& tape, const Execution& execution,
                                            SequenceView<const Real> dstates) {
  if (positions_of(batch) == 0) return nn::pass_on(row_state * batch.rows, dstate_out, dstate_in);
  ops::Queue& on = *stack->queue();
  const std::vector<Index> states = state_shape(batch.rows);
  ops::HostCopies& copied = tape.copies;
  const Tensor dy_there = copied.upload<Real>(on, copy_dy, batch, dy, spec.output_size());
  const Tensor dx_there = dx ? copied.room<Real>(on, copy_dx, batch, dx, spec.input_size) : Tensor{};
  const Tensor out = copied.upload_state(on, copy_dstate_out, dstate_out, states);
  const Tensor in = copied.state_room<Real>(on, copy_dstate_in, dstate_in != nullptr, states);
  const Tensor each =
      dstates ? copied.upload<Real>(on, copy_dstates, batch, dstates, nn::other_states(spec)) : Tensor{};
  stack->backward(tape.device.batch, tape.device.x, dy_there, out, dx_there, in, each, tape.device, execution);
  if (dx) copied.download(copy_dx, batch, dx, spec.input_size);
  copied.download_state(copy_dstate_in, dstate_in, states);
  on.synchronize();
}

template <class Real>
void Recurrent<Real>::Impl::step_copied(Index rows, const Real* x, Real* y, Real* state, const Execution& execution) {
  ops::Queue& on = *stack->queue();
  const Batch batch{.rows = rows, .steps = 1};
  const auto view = [](auto* data, Index channels) {
    return SequenceView<std::remove_pointer_t<decltype(data)>>::batch_first(data, 1, channels);
  };
  ops::HostCopies& copied = copies.get();
  const Tensor x_there = copied.upload<Real>(on, copy_x, batch, view(x, spec.input_size), spec.input_size);
  const Tensor y_there = copied.room<Real>(on, copy_y, batch, view(y, spec.hidden_size), spec.hidden_size);
  const std::vector<Index> states = state_shape(rows);
  const Tensor state_there = copied.upload_state(on, copy_state_in, state, states);
  stack->step(x_there, y_there, state_there, execution);
  copied.download(copy_y, batch, view(y, spec.hidden_size), spec.hidden_size);
  copied.download_state(copy_state_in, state, states);
}

template <class Real>
void Recurrent<Real>::forward(const Batch& batch, const Tensor& x, const Tensor& y, const Tensor& state_in,
                              const Tensor& state_out, RecurrentTape<Real>* tape, const Execution& execution,
                              const Tensor& every_state) const {
  Impl& impl = held();
  if (!impl.stack) {
    ops::Geometry::check(batch);
    const std::vector<Index> states = impl.state_shape(batch.rows);
    return forward(
        batch, view_of<const Real>("x", batch, x, impl.spec.input_size),
        view_of<Real>("y", batch, y, impl.spec.output_size()), state_of<Real>("state_in", state_in, states),
        state_of<Real>("state_out", state_out, states), tape, execution,
        every_state ? view_of<Real>("states", batch, every_state, nn::other_states(impl.spec)) : SequenceView<Real>{});
  }
  if (tape == nullptr) return impl.stack->forward(batch, x, y, state_in, state_out, every_state, nullptr, 0, execution);
  auto& content = tape->content();
  content.start(impl.identity, impl.version(), impl.stack->queue());
  impl.stack->forward(batch, x, y, state_in, state_out, every_state, &content.device, impl.next_seed(), execution);
}

template <class Real>
void Recurrent<Real>::backward(const Batch& batch, const Tensor& x, const Tensor& dy, const Tensor& dstate_out,
                               const Tensor& dx, const Tensor& dstate_in, RecurrentTape<Real>& tape,
                               const Execution& execution, const Tensor& dstates) {
  Impl& impl = held();
  if (!impl.stack) {
    ops::Geometry::check(batch);
    const std::vector<Index> states = impl.state_shape(batch.rows);
    const SequenceView<Real> dx_view = dx ? view_of<Real>("dx", batch, dx, impl.spec.input_size) : SequenceView<Real>{};
    return backward(batch, view_of<const Real>("x", batch, x, impl.spec.input_size),
                    view_of<const Real>("dy", batch, dy, impl.spec.output_size()),
                    state_of<Real>("dstate_out", dstate_out, states), dx_view,
                    state_of<Real>("dstate_in", dstate_in, states), tape, execution,
                    dstates ? view_of<const Real>("dstates", batch, dstates, nn::other_states(impl.spec))
                            : SequenceView<const Real>{});
  }
  auto& content = tape.content();
  impl.require_tape_of_this(content);
  impl.stack->backward(batch, x, dy, dstate_out, dx, dstate_in, dstates, content.device, execution);
}

template <class Real>
void Recurrent<Real>::step(const Tensor& x, const Tensor& y, const Tensor& state, const Execution& execution) const {
  Impl& impl = held();
  const Tensor x_step = one_step("x", x), y_step = one_step("y", y);
  if (impl.stack) return impl.stack->step(x_step, y_step, state, execution);
  const Index rows = x.shape[0];
  const Batch batch{.rows = rows, .steps = 1};
  ops::require_gapless("x", x, {rows, impl.spec.input_size});
  ops::require_gapless("y", y, {rows, impl.spec.output_size()});
  step(rows, view_of<const Real>("x", batch, x_step, impl.spec.input_size).data,
       view_of<Real>("y", batch, y_step, impl.spec.output_size()).data,
       state_of<Real>("state", state, impl.state_shape(rows)), execution);
}

#define PENSTOCK_RECURRENT_DEVICE(Real)                                                                             \
  template Device Recurrent<Real>::device() const;                                                                  \
  template void Recurrent<Real>::move_to(Stream&);                                                                  \
  template void Recurrent<Real>::zero_gradients();                                                                  \
  template void Recurrent<Real>::read(std::string_view, std::span<Real>) const;                                     \
  template void Recurrent<Real>::read_gradient(std::string_view, std::span<Real>) const;                            \
  template void Recurrent<Real>::write(std::string_view, std::span<const Real>);                                    \
  template void Recurrent<Real>::Impl::forward_copied(const Batch&, SequenceView<const Real>, SequenceView<Real>,   \
                                                      const Real*, Real*, typename RecurrentTape<Real>::Content*,   \
                                                      const Execution&, SequenceView<Real>);                        \
  template void Recurrent<Real>::Impl::backward_copied(                                                             \
      const Batch&, SequenceView<const Real>, const Real*, SequenceView<Real>, Real*,                               \
      typename RecurrentTape<Real>::Content&, const Execution&, SequenceView<const Real>);                          \
  template void Recurrent<Real>::Impl::step_copied(Index, const Real*, Real*, Real*, const Execution&);             \
  template void Recurrent<Real>::forward(const Batch&, const Tensor&, const Tensor&, const Tensor&, const Tensor&,  \
                                         RecurrentTape<Real>*, const Execution&, const Tensor&) const;              \
  template void Recurrent<Real>::backward(const Batch&, const Tensor&, const Tensor&, const Tensor&, const Tensor&, \
                                          const Tensor&, RecurrentTape<Real>&, const Execution&, const Tensor&);    \
  template void Recurrent<Real>::step(const Tensor&, const Tensor&, const Tensor&, const Execution&) const;
PENSTOCK_RECURRENT_DEVICE(float)
PENSTOCK_RECURRENT_DEVICE(double)
#undef PENSTOCK_RECURRENT_DEVICE

}  // namespace penstock
