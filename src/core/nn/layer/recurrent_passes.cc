// Passes of networks, on every device: which program a call needs, its workspace, and the tape.

#include <algorithm>

#include "base/threads.h"
#include "nn/layer/recurrent_impl.h"

namespace penstock {

namespace {

bool is_packed(const Batch& batch) { return batch.cu_seqlens != nullptr; }

/// Throws unless a sequence has data and the axes that its batch has, before its strides are read.
void require_axes(const char* name, const Batch& batch, const Tensor& sequence) {
  require(sequence.data != nullptr, "{} must not be null", name);
  const int rank = is_packed(batch) ? 2 : 3;
  require(sequence.rank == rank, "{} must have {} axes, {}, not {}", name, rank,
          is_packed(batch) ? "[positions, C]" : "[B, T, C]", sequence.rank);
}

/// Returns the positions of the batch of x.
Index places_of(const Batch& batch, const Tensor& x) {
  return is_packed(batch) ? x.shape[0] : batch.rows * batch.steps;
}

}  // namespace

template <class Real>
Recurrent<Real>::Impl::Prepared::Prepared(const Impl& network, const PassKey& key)
    : owner(RecurrentProgram::get(network.spec, key.form, key.execution)),
      program(owner->held()),
      pass(program.pass(key.pass)),
      workspace(program.workspaces(key.pass)) {
  workspace->bind(network.weights);
  for (std::size_t i = 0; i < network.parameters.size(); ++i) {
    const Parameter& parameter = network.parameters[i];
    workspace->bind(pass.weights[i], parameter.value_tensor.data);
    if (key.pass == Pass::backward) workspace->bind(pass.gradients[i], parameter.gradient_tensor.data);
  }
}

template <class Real>
void Recurrent<Real>::Impl::start(TapeContent& tape, std::uint64_t batch) {
  tape.filled = false;
  if (tape.queue != queue) {
    TapeContent fresh;
    fresh.queue = queue;
    std::swap(tape, fresh);  // memory goes before its queue
  }
  tape.network = identity;
  tape.version = weights->version();
  tape.batch = batch;
  // Each training pass draws masks of its own.
  tape.seed = spec.dropout > 0.0 ? nn::Hash(seed).add(++passes).value() : 0;
}

template <class Real>
void Recurrent<Real>::Impl::require_tape_of_this(const TapeContent& tape) const {
  require(tape.filled && tape.network == identity, "tape must hold a forward pass of this network");
  require(tape.version == weights->version(),
          "tape must hold a forward pass with the weights as they are now, and they have changed since: call "
          "backward() before weights change, or forward() again");
}

template <class Real>
typename Recurrent<Real>::Impl::PassKey Recurrent<Real>::Impl::key_of(const Batch& batch, const Tensor& x,
                                                                      const Execution& execution, Pass pass) const {
  const bool gpu = device.is_cuda();
  if (execution.device.is_cuda() && execution.device != device) {
    fail(ErrorCode::invalid_argument, "execution.device must be {}, where the network is, not {}", to_string(device),
         to_string(execution.device));
  }
  const bool half = gpu && (x.dtype == DType::bf16 || x.dtype == DType::f16);
  if (x.dtype != dtype_of<Real>() && !half) {
    fail(ErrorCode::invalid_argument, "x must be {}{}, not {}", to_string(dtype_of<Real>()), gpu ? ", bf16 or f16" : "",
         to_string(x.dtype));
  }
  PassKey key = common;
  key.isa = cpu::isa_generation();
  key.pass = pass;
  key.execution = execution;
  key.execution.device = device;
  key.execution.threads = gpu ? 1 : resolve_threads(execution.threads);
  RecurrentForm& form = key.form;
  form.dtype = x.dtype;
  form.rows = batch.rows;
  form.steps = batch.steps;
  form.positions = is_packed(batch) ? x.shape[0] : 0;
  form.flags.set(CallFlag::lengths, batch.lengths != nullptr).set(CallFlag::reset, batch.reset != nullptr);
  form.restarts = batch.restarts;
  form.x = ops::strides_of(x);
  return key;
}

template <class Real>
void Recurrent<Real>::Impl::set_states(RecurrentForm& form, const char* name, const Tensor& tensor,
                                       const Batch& batch) const {
  if (!tensor) return;
  require_axes(name, batch, tensor);
  form.flags.set(CallFlag::every_state);
  form.states = ops::strides_of(tensor);
}

/// A CPU's programs serve any alignment.
template <class Real>
int Recurrent<Real>::Impl::alignment_of(int most, const Tensor& a, const Tensor& b) const {
  return device.is_cuda() ? std::min({most, ops::alignment_of(a), ops::alignment_of(b)}) : most;
}

template <class Real>
void Recurrent<Real>::Impl::refresh(Work& work, Prepared& prepared, const ops::Call& call) const {
  const std::size_t bytes = prepared.pass.program->workspace_bytes();
  if (work.memory.bytes() < bytes) work.memory = ops::Buffer(*queue, bytes);
  prepared.program.place(*prepared.workspace, work.memory.data(), call);
  if (prepared.version == weights->version()) return;
  prepared.workspace->refresh(call);
  prepared.version = weights->version();
}

template <class Real>
template <class Call>
void Recurrent<Real>::Impl::run(Work& work, Prepared& prepared, const Call& call, const TapeContent* tape) const {
  graph::Workspace& workspace = *prepared.workspace;
  ops::Call with;
  with.batch = call.batch;
  with.threads = prepared.program.execution.threads;
  with.stream = queue->stream();
  prepared.program.bind(workspace, call);
  if (tape != nullptr) {
    with.seed = tape->seed;
    prepared.program.bind_tape(workspace, prepared.pass, tape->memory.data(), with);
  }
  refresh(work, prepared, with);
  prepared.program.run(workspace, with);
}

template <class Real>
void Recurrent<Real>::Impl::pass_on(const Batch& batch, const char* in_name, const Tensor& in, const char* out_name,
                                    const Tensor& out) const {
  if (!device.is_cuda()) {
    const Index places = ops::positions_of(batch);
    require(places == 0, "x must have the {} positions of batch.cu_seqlens, not 0", places);
  }
  const auto shape = state_shape(batch.rows);
  const auto check = [&](const char* name, const Tensor& state) {
    if (!state) return;
    ops::require_tensor(name, state, dtype_of<Real>(), device, sizeof(Real));
    ops::require_gapless(name, state, shape.data(), static_cast<int>(shape.size()));
  };
  check(in_name, in);
  check(out_name, out);
  if (!out || out.data == in.data) return;
  const std::size_t bytes = ops::count_of(shape) * sizeof(Real);
  if (in) {
    ops::copy_memory(device, out.data, in.data, bytes, queue->stream());
  } else {
    ops::clear_memory(device, out.data, bytes, queue->stream());
  }
}

template <class Real>
void Recurrent<Real>::Impl::keep(TapeContent& tape, const Prepared& prepared, RecurrentProgram::Forward& call) const {
  tape.rounded = prepared.pass.rounds_tape;
  tape.x = call.x, tape.y = call.y;
  const std::size_t bytes = prepared.program.tape_bytes();
  if (tape.memory.bytes() < bytes) tape.memory = ops::Buffer(*queue, bytes);
  tape.state = call.state_in;
  if (!call.state_in) return;
  const auto shape = state_shape(state_rows(call.batch));
  const std::size_t state_bytes = ops::count_of(shape) * sizeof(Real);
  if (tape.state_in.bytes() < state_bytes) tape.state_in = ops::Buffer(*queue, state_bytes);
  ops::copy_memory(device, tape.state_in.data(), call.state_in.data, state_bytes, queue->stream());
  tape.state.data = call.state_in.data = tape.state_in.data();
}

template <class Real>
void Recurrent<Real>::Impl::forward(RecurrentProgram::Forward& call, TapeContent* tape, const Execution& execution,
                                    Origin origin, bool step) {
  const bool empty = is_packed(call.batch) && call.x.rank == 2 && call.x.shape[0] == 0;
  if (!empty && origin == Origin::device) {
    require_axes("x", call.batch, call.x);
    require_axes("y", call.batch, call.y);
  }
  PassKey key = key_of(call.batch, call.x, execution, Pass::forward);
  RecurrentForm& form = key.form;
  form.flags.set(CallFlag::training, tape != nullptr);
  form.y = ops::strides_of(call.y);
  form.alignment = alignment_of(form.alignment, call.x, call.y);
  form.flags.set(CallFlag::step, step && device.is_cuda() && find_cell(spec.cell).scan);
  if (form.has(CallFlag::step)) form.x = form.y = {};
  set_states(form, "states", call.states, call.batch);
  if (tape != nullptr) {
    tape->form = form;
    tape->places = places_of(call.batch, call.x);
  }
  if (empty) {
    pass_on(call.batch, "state_in", call.state_in, "state_out", call.state_out);
  } else {
    Work& work = works.get();
    Prepared& prepared = work.prepared.get(key, [&] { return Prepared(*this, key); });
    if (origin == Origin::device) prepared.program.check(call);
    if (tape != nullptr) keep(*tape, prepared, call);
    run(work, prepared, call, tape);
  }
  if (tape != nullptr) tape->filled = true;
}

template <class Real>
void Recurrent<Real>::Impl::backward(const RecurrentProgram::Backward& call, TapeContent& tape, std::uint64_t batch,
                                     const Execution& execution, Origin origin) {
  const RecurrentForm& kept = tape.form;
  const bool empty = tape.places == 0;
  if (!empty && origin == Origin::device) {
    require_axes("x", call.batch, call.x);
    require_axes("dy", call.batch, call.dy);
    if (call.dx) require_axes("dx", call.batch, call.dx);
  }
  PassKey key = key_of(call.batch, call.x, execution, Pass::backward);
  RecurrentForm& form = key.form;
  const Index places = places_of(call.batch, call.x);
  require(kept.rows == form.rows && kept.steps == form.steps && tape.places == places,
          "tape must hold a forward pass of this batch: it has {} rows of {} steps ({} in all), not {} of {} ({})",
          kept.rows, kept.steps, tape.places, form.rows, form.steps, places);
  require(tape.batch == batch && kept.has(CallFlag::lengths) == form.has(CallFlag::lengths) &&
              kept.has(CallFlag::reset) == form.has(CallFlag::reset) && kept.restarts == form.restarts,
          "tape must hold a forward pass of this batch: its lengths, packed rows or resets are others");
  require(form.x == kept.x && form.dtype == kept.dtype,
          "x must lie in memory as in the forward call that filled the tape");
  if (empty) return pass_on(call.batch, "dstate_out", call.dstate_out, "dstate_in", call.dstate_in);
  form.flags.set(CallFlag::training);
  form.y = kept.y;
  form.flags.set(CallFlag::every_state, kept.has(CallFlag::every_state)), form.states = kept.states;
  require(!call.dstates || kept.has(CallFlag::every_state) || !device.is_cuda(),
          "dstates must be null, as the forward call had no states");
  set_states(form, "dstates", call.dstates, call.batch);
  // Left empty where they say nothing new, so that both passes are most often of one program.
  if (const SequenceStrides strides = ops::strides_of(call.dy); strides != form.y) form.dy = strides;
  form.flags.set(CallFlag::no_input_gradient, !call.dx);
  if (call.dx) {
    if (const SequenceStrides strides = ops::strides_of(call.dx); strides != form.x) form.dx = strides;
  }
  form.alignment = alignment_of(kept.alignment, call.dy, call.dx);
  Work& work = works.get();
  Prepared& prepared = work.prepared.get(key, [&] { return Prepared(*this, key); });
  require(tape.rounded == prepared.pass.rounds_tape,
          "tape must hold a forward pass in the precision of the backward pass, exact or not as it is: of {} it holds "
          "{}",
          spec.cell, tape.rounded ? "bfloat16" : "floats");
  if (origin == Origin::device) prepared.program.check(call);
  run(work, prepared, call, &tape);
  tape.filled = !device.is_cuda();  // its kernels work in the tape
}

template <class Real>
void Recurrent<Real>::Impl::step_row(const Real* x, Real* y, Real* state, Precision precision) {
  Work& work = works.get();
  std::optional<PreparedStep>& held = work.steps[static_cast<std::size_t>(precision)];
  if (!held || held->version != weights->version() || held->isa != cpu::isa_generation()) {
    prepare_step(work, held, precision);
  }
  graph::Workspace& workspace = *held->workspace;
  const nn::StackPass& pass = held->pass;
  workspace.place(work.memory.data());
  workspace.bind(pass.x, const_cast<Real*>(x));
  workspace.bind(pass.y, y);
  if (held->state != state) {
    workspace.bind(pass.state_in, state);
    workspace.bind(pass.state_out, state);
    held->state = state;
  }
  static constexpr ops::Call call{.threads = 1};
  if (held->denormal_weights) {
    workspace.run(call);
  } else {
    workspace.run_as_is(call);
  }
}

/// Prepares steps for the current version of the weights. Steps switch denormal numbers to zeros only if weights are
/// denormal: switching takes half as long as a small step, and callers of many steps do it once.
template <class Real>
void Recurrent<Real>::Impl::prepare_step(Work& work, std::optional<PreparedStep>& held, Precision precision) const {
  if (!held || held->isa != cpu::isa_generation()) {
    PassKey key;
    key.form.dtype = key.form.weights = dtype_of<Real>();
    key.form.flags.set(CallFlag::step);
    key.execution = {.threads = 1, .exact = true, .precision = precision};  // one row: all kernels give the same bits
    held.emplace(*this, key);
  }
  refresh(work, *held, {.threads = 1});
  const ops::Buffer& values = weights->values();
  held->denormal_weights =
      has_denormals(static_cast<const Real*>(values.data()), static_cast<Index>(values.bytes() / sizeof(Real)));
}

#define PENSTOCK_RECURRENT_PASSES(Real)                                                                            \
  template void Recurrent<Real>::Impl::start(TapeContent&, std::uint64_t);                                         \
  template void Recurrent<Real>::Impl::require_tape_of_this(const TapeContent&) const;                             \
  template void Recurrent<Real>::Impl::forward(RecurrentProgram::Forward&, TapeContent*, const Execution&, Origin, \
                                               bool);                                                              \
  template void Recurrent<Real>::Impl::backward(const RecurrentProgram::Backward&, TapeContent&, std::uint64_t,    \
                                                const Execution&, Origin);                                         \
  template void Recurrent<Real>::Impl::step_row(const Real*, Real*, Real*, Precision);
PENSTOCK_RECURRENT_PASSES(float)
PENSTOCK_RECURRENT_PASSES(double)
#undef PENSTOCK_RECURRENT_PASSES

}  // namespace penstock
