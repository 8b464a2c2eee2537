// Calls of networks, with host memory and with tensors of the device.

#include "nn/layer/recurrent_impl.h"
#include "ops/batch_rows.h"

namespace penstock {

namespace {

/// Tensors of a forward call with host memory. Their copies stay for the backward call.
constexpr std::size_t kForwardTensors = 5;

/// Throws unless the view can be told from one that was made from a pointer alone.
template <class Real>
void require_strides(const char* name, const Batch& batch, const SequenceView<Real>& view) {
  const bool none = view.step_stride == 0 && (batch.cu_seqlens != nullptr || view.row_stride == 0);
  require(!view || !none || ops::positions_of(batch) <= 1,
          "{} must have strides: batch_first() and time_first() make views", name);
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
void Recurrent<Real>::Impl::check_on_host(const Batch& batch) const {
  ops::BatchRows::check(batch);
  require(batch.batch_sizes == nullptr, "batch.batch_sizes must be null, as it belongs to forms with the flag sorted");
  require(!batch.by_steps || !device.is_cuda(), "batch.by_steps must be false on {}", to_string(device));
}

template <class Real>
void Recurrent<Real>::forward(const Batch& batch, SequenceView<const Real> x, SequenceView<Real> y,
                              const Real* state_in, Real* state_out, RecurrentTape<Real>* tape,
                              const Execution& execution, SequenceView<Real> states) const {
  Impl& impl = held();
  const RecurrentSpec& spec = impl.spec;
  impl.check_on_host(batch);
  require(static_cast<bool>(x), "x must not be null");
  require(static_cast<bool>(y), "y must not be null");
  require_strides("x", batch, x);
  require_strides("states", batch, states);
  RecurrentProgram::Forward given{.batch = batch,
                                  .x = ops::sequence_on_host(batch, x, spec.input_size),
                                  .y = ops::sequence_on_host(batch, y, spec.output_size()),
                                  .state_in = impl.state_on_host(state_in, state_rows(batch)),
                                  .state_out = impl.state_on_host(state_out, batch.rows),
                                  .states = ops::sequence_on_host(batch, states, impl.other_states())};
  RecurrentProgram::Impl::check_places(given);
  typename Impl::TapeContent* const content = tape != nullptr ? &tape->content() : nullptr;
  if (content != nullptr) impl.start(*content, nn::hash_of(batch));
  if (!impl.device.is_cuda()) return impl.forward(given, content, execution, Impl::Origin::host);
  ops::HostCall call(content != nullptr ? content->copies : impl.works.get().copies, *impl.queue, given.batch);
  call.in({&given.x, &given.state_in});
  call.out({&given.y, &given.state_out, &given.states});
  impl.forward(given, content, execution, Impl::Origin::host);
  call.fetch();
}

template <class Real>
void Recurrent<Real>::backward(const Batch& batch, SequenceView<const Real> x, SequenceView<const Real> dy,
                               const Real* dstate_out, SequenceView<Real> dx, Real* dstate_in,
                               RecurrentTape<Real>& tape, const Execution& execution,
                               SequenceView<const Real> dstates) {
  Impl& impl = held();
  const RecurrentSpec& spec = impl.spec;
  impl.check_on_host(batch);
  require(static_cast<bool>(x), "x must not be null");
  require(static_cast<bool>(dy), "dy must not be null");
  auto& content = tape.content();
  impl.require_tape_of_this(content);
  require_strides("dy", batch, dy);
  require_strides("dstates", batch, dstates);
  RecurrentProgram::Backward given{.batch = batch,
                                   .x = ops::sequence_on_host(batch, x, spec.input_size),
                                   .y = content.y,
                                   .dy = ops::sequence_on_host(batch, dy, spec.output_size()),
                                   .state_in = content.state,
                                   .dstate_out = impl.state_on_host(dstate_out, batch.rows),
                                   .dx = ops::sequence_on_host(batch, dx, spec.input_size),
                                   .dstate_in = impl.state_on_host(dstate_in, state_rows(batch)),
                                   .dstates = ops::sequence_on_host(batch, dstates, impl.other_states())};
  RecurrentProgram::Impl::check_places(given);
  const std::uint64_t hash = nn::hash_of(batch);
  if (!impl.device.is_cuda()) return impl.backward(given, content, hash, execution, Impl::Origin::host);
  ops::HostCall call(content.copies, *impl.queue, given.batch, kForwardTensors);
  call.again(given.x);
  call.in({&given.dy, &given.dstate_out, &given.dstates});
  call.out({&given.dx, &given.dstate_in});
  impl.backward(given, content, hash, execution, Impl::Origin::host);
  call.fetch();
  impl.queue->synchronize();
}

template <class Real>
void Recurrent<Real>::step(Index rows, const Real* x, Real* y, Real* state, const Execution& execution) const {
  Impl& impl = held();
  if (rows == 1 && impl.accepts_row(x, y, state, execution)) return impl.step_row(x, y, state, execution.precision);
  impl.step_rows(rows, x, y, state, execution);
}

template <class Real>
void Recurrent<Real>::Impl::step_rows(Index rows, const Real* x, Real* y, Real* state, const Execution& execution) {
  require(x != nullptr, "x must not be null");
  require(y != nullptr, "y must not be null");
  require(state != nullptr, "state must not be null");
  require(spec.direction == Direction::forward,
          "step() needs direction forward, not {}: the end of a stream is not known", to_string(spec.direction));
  const Batch batch{.rows = rows};
  ops::BatchRows::check(batch);
  require(nn::are_apart(y, rows * spec.hidden_size, x, rows * spec.input_size), "y must not overlap x");
  require(nn::are_apart(y, rows * spec.hidden_size, state, rows * row_state), "y must not overlap state");
  const auto x_view = SequenceView<const Real>::batch_first(x, 1, spec.input_size);
  const auto y_view = SequenceView<Real>::batch_first(y, 1, spec.hidden_size);
  RecurrentProgram::Forward given{.batch = batch,
                                  .x = ops::sequence_on_host(batch, x_view, spec.input_size),
                                  .y = ops::sequence_on_host(batch, y_view, spec.hidden_size),
                                  .state_in = state_on_host(state, rows),
                                  .state_out = state_on_host(state, rows)};
  if (!device.is_cuda()) return forward(given, nullptr, execution, Origin::host, true);
  ops::HostCall call(works.get().copies, *queue, given.batch);
  call.in({&given.x});
  call.out({&given.y});
  call.update(given.state_in);
  given.state_out = given.state_in;
  forward(given, nullptr, execution, Origin::host, true);
  call.fetch();
}

template <class Real>
void Recurrent<Real>::forward(const Batch& batch, const Tensor& x, const Tensor& y, const Tensor& state_in,
                              const Tensor& state_out, RecurrentTape<Real>* tape, const Execution& execution,
                              const Tensor& states) const {
  Impl& impl = held();
  if (!impl.device.is_cuda()) ops::BatchRows::check(batch);
  typename Impl::TapeContent* const content = tape != nullptr ? &tape->content() : nullptr;
  if (content != nullptr) impl.start(*content, impl.hash_of(batch));
  RecurrentProgram::Forward given{
      .batch = batch, .x = x, .y = y, .state_in = state_in, .state_out = state_out, .states = states};
  impl.forward(given, content, execution, Impl::Origin::device);
}

template <class Real>
void Recurrent<Real>::backward(const Batch& batch, const Tensor& x, const Tensor& dy, const Tensor& dstate_out,
                               const Tensor& dx, const Tensor& dstate_in, RecurrentTape<Real>& tape,
                               const Execution& execution, const Tensor& dstates) {
  Impl& impl = held();
  if (!impl.device.is_cuda()) ops::BatchRows::check(batch);
  auto& content = tape.content();
  impl.require_tape_of_this(content);
  require(x.data == content.x.data || content.places == 0, "x must be that of the forward call that filled the tape");
  impl.backward({.batch = batch,
                 .x = x,
                 .y = content.y,
                 .dy = dy,
                 .state_in = content.state,
                 .dstate_out = dstate_out,
                 .dx = dx,
                 .dstate_in = dstate_in,
                 .dstates = dstates},
                content, impl.hash_of(batch), execution, Impl::Origin::device);
}

template <class Real>
void Recurrent<Real>::step(const Tensor& x, const Tensor& y, const Tensor& state, const Execution& execution) const {
  Impl& impl = held();
  const RecurrentSpec& spec = impl.spec;
  const Tensor x_step = one_step("x", x), y_step = one_step("y", y);
  const Index rows = x.shape[0];
  require(static_cast<bool>(state), "state must not be null");
  require(spec.direction == Direction::forward,
          "step() needs direction forward, not {}: the end of a stream is not known", to_string(spec.direction));
  if (rows > 1 || impl.device.is_cuda()) {
    RecurrentProgram::Forward given{
        .batch = {.rows = rows}, .x = x_step, .y = y_step, .state_in = state, .state_out = state};
    return impl.forward(given, nullptr, execution, Impl::Origin::device, true);
  }
  const auto pointer = [&](const char* name, const Tensor& tensor, std::span<const Index> shape) {
    ops::require_tensor(name, tensor, dtype_of<Real>(), impl.device, sizeof(Real));
    ops::require_gapless(name, tensor, shape.data(), static_cast<int>(shape.size()));
    return static_cast<Real*>(tensor.data);
  };
  const std::array x_shape{rows, spec.input_size}, y_shape{rows, spec.hidden_size};
  step(rows, pointer("x", x, x_shape), pointer("y", y, y_shape), pointer("state", state, impl.state_shape(rows)),
       execution);
}

#define PENSTOCK_RECURRENT_CALLS(Real)                                                                              \
  template void Recurrent<Real>::forward(const Batch&, SequenceView<const Real>, SequenceView<Real>, const Real*,   \
                                         Real*, RecurrentTape<Real>*, const Execution&, SequenceView<Real>) const;  \
  template void Recurrent<Real>::backward(const Batch&, SequenceView<const Real>, SequenceView<const Real>,         \
                                          const Real*, SequenceView<Real>, Real*, RecurrentTape<Real>&,             \
                                          const Execution&, SequenceView<const Real>);                              \
  template void Recurrent<Real>::step(Index, const Real*, Real*, Real*, const Execution&) const;                    \
  template void Recurrent<Real>::forward(const Batch&, const Tensor&, const Tensor&, const Tensor&, const Tensor&,  \
                                         RecurrentTape<Real>*, const Execution&, const Tensor&) const;              \
  template void Recurrent<Real>::backward(const Batch&, const Tensor&, const Tensor&, const Tensor&, const Tensor&, \
                                          const Tensor&, RecurrentTape<Real>&, const Execution&, const Tensor&);    \
  template void Recurrent<Real>::step(const Tensor&, const Tensor&, const Tensor&, const Execution&) const;
PENSTOCK_RECURRENT_CALLS(float)
PENSTOCK_RECURRENT_CALLS(double)
#undef PENSTOCK_RECURRENT_CALLS

}  // namespace penstock
