// Programs of recurrent stacks, as the public interface shows them, over the graphs of their passes.

#include "penstock/recurrent_program.h"

#include <tuple>
#include <utility>

#include "backend/cpu/instruction_sets.h"
#include "base/alive.h"
#include "base/check.h"
#include "base/shared_cache.h"
#include "base/threads.h"
#include "nn/explain.h"
#include "nn/layer/batch_hash.h"
#include "nn/layer/recurrent_program_impl.h"
#include "ops/program_check.h"
#include "ops/recurrence/recurrence.h"
#include "ops/tensor_check.h"

namespace penstock {
namespace {

/// Two forms whose tapes are alike have one number. The bindings name every member, so that a new one is not forgotten.
std::uint64_t fingerprint(const RecurrentSpec& spec, const RecurrentForm& form, const Execution& execution) {
  const auto& [cell, input, hidden, heads, layers, direction, bias, dropout, clip, projected] = spec;
  const auto& [dtype, weights, rows, steps, positions, flags, restarts, x, y, dx, dy, states, alignment] = form;
  const auto& [threads, algorithm, exact, precision, device] = execution;
  nn::Hash hash;
  hash.add(cell).add(input).add(hidden).add(heads).add(layers).add(direction).add(bias);
  hash.add(std::bit_cast<std::uint64_t>(dropout)).add(std::bit_cast<std::uint64_t>(clip)).add(projected);
  CallFlags of_tape = flags;  // those that change what a tape holds
  for (const CallFlag other : {CallFlag::no_input_gradient, CallFlag::add_gradients, CallFlag::keep_tape,
                               CallFlag::step, CallFlag::packs_each_call}) {
    of_tape.set(other, false);
  }
  hash.add(dtype).add(weights).add(rows).add(steps).add(positions).add(of_tape.bits()).add(restarts);
  hash.add(x.step > x.row).add(precision).add(exact).add(device.kind).add(device.index);
  return hash.value();
}

}  // namespace

RecurrentProgram::Impl::Impl(const RecurrentSpec& s, const RecurrentForm& f, const Execution& e)
    : spec(s),
      form(f),
      execution(e),
      parameters(parameter_shapes(s)),
      forward(nn::forward_pass(spec, form, execution)),
      identity(fingerprint(s, f, e)),
      states_(find_cell(s.cell).states),
      forward_workspaces_([this] { return std::make_unique<graph::Workspace>(forward.program); }),
      backward_workspaces_([this] { return std::make_unique<graph::Workspace>(backward->program); }) {
  if (form.has(CallFlag::training)) backward = nn::backward_pass(spec, form, execution, forward.tape);
}

const nn::StackPass& RecurrentProgram::Impl::pass(Pass which) const {
  require(which == Pass::forward || backward.has_value(), "a backward pass needs a program whose form is of training");
  return which == Pass::forward ? forward : *backward;
}

void RecurrentProgram::Impl::check_sequence(const char* name, const Tensor& tensor, Index channels,
                                            const SequenceStrides& planned) const {
  const auto alignment = static_cast<std::size_t>(execution.device.is_cuda() ? form.alignment : 1);
  ops::require_tensor(name, tensor, form.dtype, execution.device, std::max(alignment, size_of(form.dtype)));
  check_strides(name, tensor, channels, planned);
}

void RecurrentProgram::Impl::check_strides(const char* name, const Tensor& tensor, Index channels,
                                           const SequenceStrides& planned) const {
  ops::require_sequence(name, tensor, extent(), channels);
  const SequenceStrides at = ops::strides_of(tensor);
  const SequenceStrides strides = ops::strides_or(planned, {form.steps * channels, channels});
  const bool one_row = form.positions > 0 || form.rows == 1, one_step = tensor.shape[tensor.rank - 2] == 1;
  require((one_row || at.row == strides.row) && (one_step || at.step == strides.step),
          "{} must have the strides of the program's form, {} and {}, not {} and {}", name, strides.row, strides.step,
          at.row, at.step);
}

void RecurrentProgram::Impl::check_every_state(const char* name, const Tensor& states) const {
  ops::require_tensor(name, states, type_of_states(), execution.device, size_of(type_of_states()));
  check_strides(name, states, other_states(), form.states);
}

void RecurrentProgram::Impl::check_state(const char* name, const Tensor& state, Index rows) const {
  if (!state) return;
  ops::require_tensor(name, state, type_of_states(), execution.device, size_of(type_of_states()));
  ops::require_gapless(name, state, {states_, spec.layers * spec.directions(), rows, spec.hidden_size});
}

void RecurrentProgram::Impl::check_parameters(const char* name, std::span<const Tensor> tensors, DType type) const {
  require_argument(tensors.size() == parameters.size(), name, tensors.size(), "the {} tensors of parameters()",
                   parameters.size());
  const std::size_t alignment = execution.device.is_cuda() ? 16 : size_of(type);
  for (std::size_t i = 0; i < parameters.size(); ++i) {
    const ParameterShape& parameter = parameters[i];
    ops::require_tensor(parameter.name.c_str(), tensors[i], type, execution.device, alignment);
    ops::require_gapless(parameter.name.c_str(), tensors[i], parameter.shape.data(),
                         static_cast<int>(parameter.shape.size()));
  }
}

void RecurrentProgram::Impl::check_batch_sizes(const Batch& batch) const {
  require((batch.batch_sizes != nullptr) == form.has(CallFlag::sorted),
          "batch.batch_sizes must be {} by the program's form", form.has(CallFlag::sorted) ? "there" : "null");
  if (!form.has(CallFlag::sorted)) return;
  Index positions = 0;
  for (Index t = 0; t < form.steps; ++t) {
    const Index size = batch.batch_sizes[t], before = t == 0 ? form.rows : batch.batch_sizes[t - 1];
    require(size >= 1 && size <= before && (t > 0 || size == form.rows), "batch.batch_sizes[{}] must be {}, not {}", t,
            t == 0 ? fmt::format("the {} rows", form.rows) : fmt::format("1 to the {} before it", before), size);
    positions += size;
  }
  require(positions == form.positions,
          "batch.batch_sizes must add up to the {} positions of the program's form, not {}", form.positions, positions);
}

void RecurrentProgram::Impl::check_batch(const Batch& batch) const {
  ops::require_batch(batch, extent(), form.has(CallFlag::lengths), form.has(CallFlag::reset), execution.device);
  require(batch.restarts == form.restarts, "batch.restarts must be that of the program's form");
  check_batch_sizes(batch);
}

void RecurrentProgram::Impl::check(const Forward& call) const {
  check_batch(call.batch);
  check_sequence("x", call.x, spec.input_size, form.x);
  check_sequence("y", call.y, spec.output_size(), form.y);
  check_state("state_in", call.state_in, entering_rows());
  check_state("state_out", call.state_out, form.rows);
  require(static_cast<bool>(call.states) == form.has(CallFlag::every_state), "states must be {} by the program's form",
          form.has(CallFlag::every_state) ? "there" : "null");
  if (call.states) check_every_state("states", call.states);
  require(!form.has(CallFlag::step) || call.state_out.data != nullptr, "state_out must not be null for a step");
  check_places(call);
}

void RecurrentProgram::Impl::check(const Backward& call) const {
  check_batch(call.batch);
  check_sequence("x", call.x, spec.input_size, form.x);
  check_sequence("y", call.y, spec.output_size(), form.y);
  check_sequence("dy", call.dy, spec.output_size(), ops::strides_or(form.dy, form.y));
  require(static_cast<bool>(call.dx) == !form.has(CallFlag::no_input_gradient), "dx must be {} by the program's form",
          !form.has(CallFlag::no_input_gradient) ? "there" : "null");
  if (call.dx) check_sequence("dx", call.dx, spec.input_size, ops::strides_or(form.dx, form.x));
  check_state("state_in", call.state_in, entering_rows());
  check_state("dstate_out", call.dstate_out, form.rows);
  check_state("dstate_in", call.dstate_in, entering_rows());
  require(form.has(CallFlag::every_state) || !call.dstates,
          "dstates must be null, as the program's form has no states after each step");
  if (call.dstates) check_every_state("dstates", call.dstates);
  check_places(call);
}

void RecurrentProgram::Impl::check_places(const Forward& call) {
  ops::require_no_overlap({"y", call.y}, {{"x", call.x}});
  ops::require_no_overlap({"states", call.states}, {{"x", call.x}, {"y", call.y}});
  if (call.batch.restarts != Restarts::zeros) {  // later layers read the given states
    ops::require_no_overlap({"state_out", call.state_out}, {{"state_in", call.state_in}});
  }
}

void RecurrentProgram::Impl::check_places(const Backward& call) {
  ops::require_no_overlap({"dx", call.dx}, {{"dy", call.dy}, {"x", call.x}});
}

std::uint64_t RecurrentProgram::Impl::pass_number(const Batch& batch) const {
  return execution.device.is_cuda() ? identity : nn::Hash(identity).add(nn::hash_of(batch)).value();
}

ops::Call RecurrentProgram::Impl::call_of(const Context& context, const Batch& batch) const {
  ops::Call call;
  call.batch = batch;
  call.threads = execution.threads;
  call.seed = context.seed;
  call.device_seed = context.device_seed;
  call.stream = context.stream;
  return call;
}

void RecurrentProgram::Impl::bind_tape(graph::Workspace& workspace, const nn::StackPass& pass, void* tape,
                                       ops::Call& call) const {
  if (execution.device.is_cuda() && spec.dropout != 0.0 && call.device_seed == nullptr) {
    auto* const header = static_cast<TapeHeader*>(tape);
    ops::write_word(execution.device, &header->seed, call.seed, call.stream);
    call.device_seed = &header->seed;
  }
  pass.bind_tape(workspace, static_cast<std::byte*>(tape) + kHeaderBytes);
}

void RecurrentProgram::Impl::place(graph::Workspace& workspace, void* memory, const ops::Call& call) const {
  workspace.place(memory);
  const std::size_t persistent = workspace.program().persistent_bytes();
  if (persistent > 0) ops::clear_memory(execution.device, memory, persistent, call.stream);
}

void RecurrentProgram::Impl::bind(graph::Workspace& workspace, const Forward& call) const {
  workspace.bind(forward.x, call.x.data);
  workspace.bind(forward.y, call.y.data);
  workspace.bind(forward.state_in, call.state_in.data);
  workspace.bind(forward.state_out, call.state_out.data);
  if (form.has(CallFlag::every_state)) workspace.bind(forward.states, call.states.data);
}

void RecurrentProgram::Impl::bind(graph::Workspace& workspace, const Backward& call) const {
  workspace.bind(backward->x, call.x.data);
  workspace.bind(backward->y, call.y.data);
  workspace.bind(backward->dy, call.dy.data);
  if (!form.has(CallFlag::no_input_gradient)) workspace.bind(backward->dx, call.dx.data);
  workspace.bind(backward->state_in, call.state_in.data);
  workspace.bind(backward->dstate_out, call.dstate_out.data);
  workspace.bind(backward->dstate_in, call.dstate_in.data);
  if (form.has(CallFlag::every_state)) workspace.bind(backward->dstates, call.dstates.data);
}

void RecurrentProgram::Impl::bind_weights(graph::Workspace& workspace, const nn::StackPass& pass,
                                          std::span<const Tensor> weights, std::span<const Tensor> gradients) {
  for (std::size_t i = 0; i < weights.size(); ++i) workspace.bind(pass.weights[i], weights[i].data);
  for (std::size_t i = 0; i < gradients.size(); ++i) workspace.bind(pass.gradients[i], gradients[i].data);
}

void RecurrentProgram::Impl::run(graph::Workspace& workspace, const ops::Call& call) const {
  if (form.has(CallFlag::step)) {
    workspace.run_as_is(call);
  } else {
    workspace.run(call);
  }
}

namespace {

std::size_t bytes_of(const nn::StackPass& pass) { return pass.program->workspace_bytes() + pass.derived_bytes; }

void check_memory(const nn::StackPass& pass, const Memory& workspace, const Memory& packed) {
  const std::size_t unpacked = packed.data != nullptr ? 0 : pass.derived_bytes;
  ops::require_memory("workspace", workspace, pass.program->workspace_bytes() + unpacked);
  if (packed.data != nullptr) ops::require_memory("packed", packed, pass.derived_bytes);
}

/// Gives a workspace the weights as the caller packed them, or packs them behind the workspace.
void bind_packed(graph::Workspace& workspace, const nn::StackPass& pass, const Memory& memory, const Memory& packed,
                 const ops::Call& call) {
  if (packed.data != nullptr) {
    pass.bind_derived(workspace, packed.data);
  } else if (pass.derived_bytes > 0) {
    pass.bind_derived(workspace, static_cast<std::byte*>(memory.data) + pass.program->workspace_bytes());
    workspace.run(graph::Phase::weights, call);
  }
}

}  // namespace

RecurrentProgram::RecurrentProgram(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
RecurrentProgram::~RecurrentProgram() = default;

RecurrentProgram::Impl& RecurrentProgram::held() const { return alive(impl_, "the program"); }

std::shared_ptr<const RecurrentProgram> RecurrentProgram::get(const RecurrentSpec& spec, const RecurrentForm& form,
                                                              const Execution& execution) {
  using Key = std::tuple<RecurrentForm, Execution, unsigned, RecurrentSpec>;  // with the number of the instruction set
  static SharedCache<Key, const RecurrentProgram> recent(ops::kept_programs);
  Execution whole = execution;
  whole.threads = execution.device.is_cuda() ? 1 : resolve_threads(execution.threads);
  return recent.get({form, whole, cpu::isa_generation(), spec}, [&] {
    nn::check_spec(spec);
    nn::check_form(spec, form, whole);
    // The constructor is private. NOLINTNEXTLINE(modernize-make-shared)
    return std::shared_ptr<const RecurrentProgram>(new RecurrentProgram(std::make_unique<Impl>(spec, form, whole)));
  });
}

const RecurrentSpec& RecurrentProgram::spec() const { return held().spec; }
const RecurrentForm& RecurrentProgram::form() const { return held().form; }
const Execution& RecurrentProgram::execution() const { return held().execution; }
const std::vector<ParameterShape>& RecurrentProgram::parameters() const { return held().parameters; }

std::size_t RecurrentProgram::workspace_bytes() const {
  const std::size_t forward = bytes_of(held().forward);
  return held().backward ? std::max(forward, bytes_of(*held().backward)) : forward;
}

std::size_t RecurrentProgram::tape_bytes() const { return held().tape_bytes(); }

std::size_t RecurrentProgram::packed_bytes(Pass pass) const { return held().pass(pass).derived_bytes; }

std::uint64_t RecurrentProgram::forward(const Context& context, const Forward& given) const {
  const Impl& impl = held();
  const nn::StackPass& pass = impl.forward;
  ops::require_device(context, impl.execution.device);
  impl.check_parameters("weights", given.weights, impl.form.weights);
  impl.check(given);
  require(given.packed.data == nullptr || !impl.form.has(CallFlag::packs_each_call),
          "packed must be null, as the program's form packs in each call");
  check_memory(pass, given.workspace, given.packed);
  if (impl.form.has(CallFlag::training)) ops::require_memory("tape", given.tape, tape_bytes());

  const Impl::Workspaces::Lease workspace(impl.workspaces(Pass::forward));
  ops::Call call = impl.call_of(context, given.batch);
  const std::uint64_t number = impl.pass_number(given.batch);
  Impl::bind_weights(*workspace, pass, given.weights);
  impl.bind(*workspace, given);
  if (impl.form.has(CallFlag::training)) {
    if (!impl.execution.device.is_cuda()) static_cast<Impl::TapeHeader*>(given.tape.data)->pass = number;
    impl.bind_tape(*workspace, pass, given.tape.data, call);
  }
  impl.place(*workspace, given.workspace.data, call);
  bind_packed(*workspace, pass, given.workspace, given.packed, call);
  impl.run(*workspace, call);
  return number;
}

void RecurrentProgram::backward(const Context& context, const Backward& given) const {
  const Impl& impl = held();
  const nn::StackPass& pass = impl.pass(Pass::backward);
  ops::require_device(context, impl.execution.device);
  impl.check_parameters("weights", given.weights, impl.form.weights);
  impl.check(given);
  impl.check_parameters("gradients", given.gradients, impl.form.dtype == DType::f64 ? DType::f64 : DType::f32);
  check_memory(pass, given.workspace, given.packed);
  ops::require_memory("tape", given.tape, tape_bytes());
  const std::uint64_t number = impl.pass_number(given.batch);
  require(given.pass == 0 || given.pass == number, "tape must hold a forward pass of this program and this batch");
  require(impl.execution.device.is_cuda() || static_cast<const Impl::TapeHeader*>(given.tape.data)->pass == number,
          "tape must hold a forward pass of this program and this batch");

  const Impl::Workspaces::Lease workspace(impl.workspaces(Pass::backward));
  ops::Call call = impl.call_of(context, given.batch);
  Impl::bind_weights(*workspace, pass, given.weights, given.gradients);
  impl.bind(*workspace, given);
  impl.bind_tape(*workspace, pass, given.tape.data, call);
  impl.place(*workspace, given.workspace.data, call);
  bind_packed(*workspace, pass, given.workspace, given.packed, call);
  impl.run(*workspace, call);
}

void RecurrentProgram::pack(const Context& context, std::span<const Tensor> weights, const Memory& packed,
                            Pass which) const {
  const Impl& impl = held();
  const nn::StackPass& pass = impl.pass(which);
  ops::require_device(context, impl.execution.device);
  impl.check_parameters("weights", weights, impl.form.weights);
  ops::require_memory("packed", packed, pass.derived_bytes);
  if (pass.derived_bytes == 0) return;
  const Impl::Workspaces::Lease workspace(impl.workspaces(which));
  Impl::bind_weights(*workspace, pass, weights);
  pass.bind_derived(*workspace, packed.data);
  workspace->run(graph::Phase::weights, impl.call_of(context, {.rows = impl.form.rows, .steps = impl.form.steps}));
}

std::string RecurrentProgram::explain() const {
  const auto plans_of = [&](const nn::StackPass& pass) {
    const graph::Program& program = *pass.program;
    return to_text(nn::explain_nodes(program.graph(), program.target(), nn::machine_of(held().execution)));
  };
  std::string text = plans_of(held().forward);
  if (held().backward) text += plans_of(*held().backward);
  return text + "memory of the forward pass:\n" + held().forward.program->describe();
}

}  // namespace penstock
