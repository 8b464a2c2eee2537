#include "nn/layer/device_stack.h"

#include <algorithm>

#include "backend/cpu/instruction_sets.h"
#include "base/check.h"
#include "ops/memory/stream_queue.h"
#include "ops/program_check.h"
#include "ops/tensor_check.h"

namespace penstock::nn {
namespace {

/// Where one parameter begins behind another: enough for every kernel's widest access.
constexpr std::size_t kParameterAlignment = 256;

std::size_t bytes_of(const Tensor& tensor) {
  return size_of(tensor.dtype) * ops::count_of(std::span(tensor.shape).first(static_cast<std::size_t>(tensor.rank)));
}

SequenceStrides strides_of(const Tensor& sequence, bool packed) {
  return packed ? SequenceStrides{0, sequence.strides[0]} : SequenceStrides{sequence.strides[0], sequence.strides[1]};
}

/// Throws unless a call's sequence has the shape that its batch has, before its strides are read.
void require_sequence(const char* name, const Tensor& tensor, const Batch& batch, Index channels) {
  require(tensor.data != nullptr, "{} must not be null", name);
  const bool packed = batch.cu_seqlens != nullptr;
  require(tensor.rank == (packed ? 2 : 3), "{} must have {} axes, {}, not {}", name, packed ? 2 : 3,
          packed ? "[positions, C]" : "[B, T, C]", tensor.rank);
  ops::require_sequence(name, tensor, {batch.rows, batch.steps, packed ? std::max<Index>(1, tensor.shape[0]) : 0},
                        channels);
}

}  // namespace

Tensor tensor_of(void* data, DType dtype, const std::vector<Index>& shape, Device device) {
  Tensor tensor = Tensor::contiguous(data, dtype, {}, device);
  tensor.rank = static_cast<int>(shape.size());
  Index stride = 1;
  for (std::size_t axis = shape.size(); axis-- > 0; stride *= shape[axis]) {
    tensor.shape[axis] = shape[axis];
    tensor.strides[axis] = stride;
  }
  return tensor;
}

DeviceStack::DeviceStack(const RecurrentSpec& spec, Stream& stream, DType dtype)
    : spec_(spec), queue_(queue_of(stream)), dtype_(dtype) {
  const Device device = queue_->device();
  if (device.is_cuda() && dtype == DType::f64) {
    fail(ErrorCode::unsupported, "a network in double runs on the CPU, not on {}: there, Recurrent<float> does",
         to_string(device));
  }
  const std::vector<ParameterShape> shapes = parameter_shapes(spec);
  const auto place = [&](const ParameterShape& parameter) {
    const std::size_t bytes = ops::count_of(parameter.shape) * size_of(dtype);
    return (bytes + kParameterAlignment - 1) / kParameterAlignment * kParameterAlignment;
  };
  std::size_t total = 0;
  for (const ParameterShape& parameter : shapes) total += place(parameter);
  weight_memory_ = ops::Buffer(*queue_, total);
  gradient_memory_ = ops::Buffer(*queue_, total);
  weight_memory_.zero();
  gradient_memory_.zero();
  std::size_t offset = 0;
  for (const ParameterShape& parameter : shapes) {
    const auto at = [&](const ops::Buffer& memory) { return static_cast<std::byte*>(memory.data()) + offset; };
    weights_.push_back(tensor_of(at(weight_memory_), dtype, parameter.shape, device));
    gradients_.push_back(tensor_of(at(gradient_memory_), dtype, parameter.shape, device));
    offset += place(parameter);
  }
}

const ops::Buffer& DeviceStack::memory_of(const Tensor& one) const {
  const auto* const first = static_cast<const std::byte*>(weight_memory_.data());
  const auto* const at = static_cast<const std::byte*>(one.data);
  const bool is_weight = !std::less<>()(at, first) && std::less<>()(at, first + weight_memory_.bytes());
  return is_weight ? weight_memory_ : gradient_memory_;
}

void DeviceStack::read(const Tensor& one, void* to) const {
  const ops::Buffer& memory = memory_of(one);
  const auto offset = static_cast<const std::byte*>(one.data) - static_cast<const std::byte*>(memory.data());
  memory.download(to, bytes_of(one), static_cast<std::size_t>(offset));
}

void DeviceStack::write(const Tensor& one, const void* from) {
  ops::Buffer& memory = &memory_of(one) == &weight_memory_ ? weight_memory_ : gradient_memory_;
  const auto offset = static_cast<const std::byte*>(one.data) - static_cast<const std::byte*>(memory.data());
  memory.upload(from, bytes_of(one), static_cast<std::size_t>(offset));
}

Execution DeviceStack::resolved(const Execution& execution) const {
  require(!execution.device.is_cuda() || execution.device == device(),
          "execution.device must be {}, where the network is, not {}", to_string(device()),
          to_string(execution.device));
  Execution whole = execution;
  whole.device = device();
  return whole;
}

RecurrentForm DeviceStack::form_of(const Batch& batch, const Tensor& x) const {
  const bool packed = batch.cu_seqlens != nullptr;
  const bool half = device().is_cuda() && (x.dtype == DType::bf16 || x.dtype == DType::f16);
  require(x.dtype == dtype_ || half, "x must be {}{}, not {}", to_string(dtype_),
          device().is_cuda() ? ", bf16 or f16" : "", to_string(x.dtype));
  RecurrentForm form;
  form.dtype = x.dtype;
  form.weights = dtype_;
  form.rows = batch.rows;
  form.steps = batch.steps;
  if (packed) {
    require(x.shape[0] >= 1, "x must have at least one position, not {}", x.shape[0]);
    form.positions = x.shape[0];
  }
  form.lengths = batch.lengths != nullptr;
  form.reset = batch.reset != nullptr;
  form.add_gradients = true;
  form.x = strides_of(x, packed);
  return form;
}

void DeviceStack::set_states(RecurrentForm& form, const char* name, const Tensor& states, const Batch& batch) const {
  if (!states) return;
  require_sequence(name, states, batch, (find_cell(spec_.cell).states - 1) * spec_.output_size());
  form.every_state = true;
  form.states = strides_of(states, batch.cu_seqlens != nullptr);
}

Memory DeviceStack::workspace(const RecurrentProgram& program) const {
  Work& work = works_.get();
  if (work.memory.bytes() < program.workspace_bytes()) work.memory = ops::Buffer(*queue_, program.workspace_bytes());
  return {work.memory.data(), work.memory.bytes()};
}

Memory DeviceStack::packed(const RecurrentProgram& program, const Context& context, Pass pass) const {
  const std::size_t bytes = program.packed_bytes(pass);
  if (bytes == 0) return {};
  const Execution& execution = program.execution();
  const std::lock_guard lock(packing_);
  Packed& held = packed_[{program.form().dtype, execution.precision, execution.exact, pass, program.form().step,
                          cpu::isa_generation()}];
  if (held.memory.bytes() != bytes) held = {ops::Buffer(*queue_, bytes), 0};
  const Memory memory{held.memory.data(), bytes};
  if (held.version != version_) {
    program.pack(context, weights_, memory, pass);
    held.version = version_;
  }
  return memory;
}

Context DeviceStack::context_of(const Execution& execution, std::uint64_t seed) const {
  Context context;
  context.execution = execution;
  context.stream = queue_->stream();
  context.seed = seed;
  return context;
}

void DeviceStack::forward(const Batch& batch, const Tensor& x, const Tensor& y, const Tensor& state_in,
                          const Tensor& state_out, const Tensor& states, DeviceTape* tape, std::uint64_t seed,
                          const Execution& execution) const {
  require_sequence("x", x, batch, spec_.input_size);
  require_sequence("y", y, batch, spec_.output_size());
  RecurrentForm form = form_of(batch, x);
  form.y = strides_of(y, form.positions > 0);
  form.training = tape != nullptr;
  set_states(form, "states", states, batch);
  form.alignment = std::min(ops::alignment_of(x), ops::alignment_of(y));
  const Execution whole = resolved(execution);
  const auto program = RecurrentProgram::get(spec_, form, whole);
  const Context context = context_of(whole, seed);
  RecurrentProgram::Forward call;
  call.weights = weights_;
  call.batch = batch;
  call.x = x, call.y = y;
  call.state_in = state_in, call.state_out = state_out, call.states = states;
  call.workspace = workspace(*program);
  call.packed = packed(*program, context, Pass::forward);
  if (tape == nullptr) {
    program->forward(context, call);
    return;
  }
  tape->pass = 0;
  if (tape->memory.bytes() < program->tape_bytes()) tape->memory = ops::Buffer(*queue_, program->tape_bytes());
  call.tape = {tape->memory.data(), tape->memory.bytes()};
  tape->state = {};
  if (state_in) {
    const std::size_t bytes = bytes_of(state_in);
    if (tape->state_in.bytes() != bytes) tape->state_in = ops::Buffer(*queue_, bytes);
    ops::copy_memory(device(), tape->state_in.data(), state_in.data, bytes, queue_->stream());
    tape->state = call.state_in = state_in;
    tape->state.data = call.state_in.data = tape->state_in.data();
  }
  const std::uint64_t pass = program->forward(context, call);
  tape->form = form, tape->execution = whole, tape->batch = batch;
  tape->x = x, tape->y = y, tape->seed = seed, tape->pass = pass;
}

void DeviceStack::backward(const Batch& batch, const Tensor& x, const Tensor& dy, const Tensor& dstate_out,
                           const Tensor& dx, const Tensor& dstate_in, const Tensor& dstates, DeviceTape& tape,
                           const Execution& execution) const {
  require(tape.pass != 0, "tape must hold a forward pass of this network");
  const bool packed_rows = batch.cu_seqlens != nullptr;
  const RecurrentForm& kept = tape.form;
  require(batch.rows == kept.rows && batch.steps == kept.steps && packed_rows == (kept.positions > 0) &&
              (batch.lengths != nullptr) == kept.lengths && (batch.reset != nullptr) == kept.reset,
          "tape must hold a forward pass of this batch: it has {} rows of {} steps, not {} of {}", kept.rows,
          kept.steps, batch.rows, batch.steps);
  require_sequence("x", x, batch, spec_.input_size);
  require_sequence("dy", dy, batch, spec_.output_size());
  if (dx) require_sequence("dx", dx, batch, spec_.input_size);
  RecurrentForm form = form_of(batch, x);
  require(form.x == kept.x && form.dtype == kept.dtype && form.positions == kept.positions && x.data == tape.x.data,
          "x must be that of the forward call that filled the tape");
  const Execution whole = resolved(execution);
  form.training = true;
  form.y = kept.y;
  form.every_state = kept.every_state, form.states = kept.states;
  if (dstates) {
    require(kept.every_state, "dstates must be null, as the forward call had no states");
    set_states(form, "dstates", dstates, batch);
  }
  // Left empty where they say nothing new, so that both passes are most often of one program.
  if (const SequenceStrides strides = strides_of(dy, packed_rows); strides != form.y) form.dy = strides;
  form.input_gradient = static_cast<bool>(dx);
  if (dx) {
    if (const SequenceStrides strides = strides_of(dx, packed_rows); strides != form.x) form.dx = strides;
  }
  form.alignment = std::min({tape.form.alignment, ops::alignment_of(dy), ops::alignment_of(dx)});
  const auto program = RecurrentProgram::get(spec_, form, whole);
  const Context context = context_of(whole, tape.seed);
  RecurrentProgram::Backward call;
  call.weights = weights_, call.gradients = gradients_;
  call.batch = batch;
  call.x = x, call.y = tape.y, call.dy = dy, call.dx = dx;
  call.state_in = tape.state, call.dstate_out = dstate_out, call.dstate_in = dstate_in, call.dstates = dstates;
  call.workspace = workspace(*program);
  call.tape = {tape.memory.data(), tape.memory.bytes()};
  call.pass = tape.pass;
  call.packed = packed(*program, context, Pass::backward);
  program->backward(context, call);
  tape.pass = 0;  // kernels work in the tape
}

void DeviceStack::step(const Tensor& x, const Tensor& y, const Tensor& state, const Execution& execution) const {
  require(static_cast<bool>(state), "state must not be null");
  const Batch batch{.rows = x.shape[0], .steps = 1};
  require_sequence("x", x, batch, spec_.input_size);
  require_sequence("y", y, batch, spec_.output_size());
  require(spec_.direction == Direction::forward,
          "step() needs direction forward, not {}: the end of a stream is not known", to_string(spec_.direction));
  const Execution whole = resolved(execution);
  RecurrentForm form = form_of(batch, x);
  form.alignment = std::min(ops::alignment_of(x), ops::alignment_of(y));
  form.y = strides_of(y, false);
  form.step = device().is_cuda() ? find_cell(spec_.cell).scan : batch.rows == 1;
  if (form.step) form.x = form.y = {};
  const auto program = RecurrentProgram::get(spec_, form, whole);
  const Context context = context_of(whole, 0);
  RecurrentProgram::Forward call;
  call.weights = weights_;
  call.batch = batch;
  call.x = x, call.y = y;
  call.state_in = call.state_out = state;
  call.workspace = workspace(*program);
  call.packed = packed(*program, context, Pass::forward);
  program->forward(context, call);
}

}  // namespace penstock::nn
