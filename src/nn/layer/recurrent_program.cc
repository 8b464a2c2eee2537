// Programs of recurrent stacks, as the public interface shows them, over the graphs of their passes.

#include "penstock/recurrent_program.h"

#include <optional>
#include <tuple>
#include <utility>

#include "backend/cpu/instruction_sets.h"
#include "base/alive.h"
#include "base/check.h"
#include "base/pool.h"
#include "base/recent.h"
#include "base/threads.h"
#include "nn/explain.h"
#include "nn/layer/batch_hash.h"
#include "nn/layer/recurrent_graph.h"
#include "ops/program_check.h"
#include "ops/recurrence/recurrence.h"
#include "ops/tensor_check.h"

namespace penstock {
namespace {

/// The start of every tape.
struct TapeHeader {
  std::uint64_t pass = 0;       // on the CPU: which pass filled it
  unsigned long long seed = 0;  // of its dropouts
};
constexpr std::size_t kTapeHeaderBytes = graph::memory_alignment;

/// Two forms whose tapes are alike have one number. The bindings name every member, so that a new one is not forgotten.
std::uint64_t fingerprint(const RecurrentSpec& spec, const RecurrentForm& form, const Execution& execution) {
  const auto& [cell, input, hidden, heads, layers, direction, bias, dropout, clip] = spec;
  const auto& [dtype, weights, rows, steps, positions, falling, lengths, reset, training, dx_wanted, adds, every_state,
               step, packs_each_call, x, y, dx, dy, states, alignment] = form;
  const auto& [threads, algorithm, exact, precision, device] = execution;
  nn::Hash hash;
  hash.add(cell).add(input).add(hidden).add(heads).add(layers).add(direction).add(bias);
  hash.add(std::bit_cast<std::uint64_t>(dropout)).add(std::bit_cast<std::uint64_t>(clip));
  hash.add(dtype).add(weights).add(rows).add(steps).add(positions).add(falling).add(lengths).add(reset).add(training);
  hash.add(x.step > x.row).add(every_state).add(precision).add(exact).add(device.kind).add(device.index);
  return hash.value();
}

}  // namespace

struct RecurrentProgram::Impl {
  using Workspaces = Pool<graph::Workspace>;  // executables that nobody runs at the moment

  RecurrentSpec spec;
  RecurrentForm form;
  Execution execution;
  std::vector<ParameterShape> parameters;
  nn::StackPass forward;
  std::optional<nn::StackPass> backward;
  std::uint64_t identity;
  mutable Workspaces forward_workspaces, backward_workspaces;

  Impl(const RecurrentSpec& s, const RecurrentForm& f, const Execution& e)
      : spec(s),
        form(f),
        execution(e),
        parameters(parameter_shapes(s)),
        forward(nn::forward_pass(spec, form, execution)),
        identity(fingerprint(s, f, e)),
        forward_workspaces([this] { return std::make_unique<graph::Workspace>(forward.program); }),
        backward_workspaces([this] { return std::make_unique<graph::Workspace>(backward->program); }) {
    if (form.training) backward = nn::backward_pass(spec, form, execution, forward.tape);
  }

  const nn::StackPass& pass(Pass which) const {
    require(which == Pass::forward || backward.has_value(),
            "a backward pass needs a program whose form is of training");
    return which == Pass::forward ? forward : *backward;
  }

  Workspaces& workspaces(Pass which) const { return which == Pass::forward ? forward_workspaces : backward_workspaces; }

  static std::size_t bytes_of(const nn::StackPass& pass) {
    return pass.program->workspace_bytes() + pass.derived_bytes;
  }

  ops::SequencePlace place(const Tensor& tensor, Index channels) const {
    const bool packed = form.positions > 0;
    return {tensor.data,
            packed ? 1 : form.rows,
            packed ? form.positions : form.steps,
            channels,
            packed ? SequenceStrides{0, tensor.strides[0]} : SequenceStrides{tensor.strides[0], tensor.strides[1]},
            size_of(tensor.dtype)};
  }

  /// Throws unless a sequence of a call has the form's shape and strides.
  void check_sequence(const char* name, const Tensor& tensor, Index channels, const SequenceStrides& planned) const {
    const auto alignment = static_cast<std::size_t>(execution.device.is_cuda() ? form.alignment : 1);
    ops::require_tensor(name, tensor, form.dtype, execution.device, std::max(alignment, size_of(form.dtype)));
    check_strides(name, tensor, channels, planned);
  }

  void check_strides(const char* name, const Tensor& tensor, Index channels, const SequenceStrides& planned) const {
    ops::require_sequence(name, tensor, extent(), channels);
    const ops::SequencePlace at = place(tensor, channels);
    const SequenceStrides strides = ops::strides_or(planned, {form.steps * channels, channels});
    require((at.rows == 1 || at.strides.row == strides.row) && (at.steps == 1 || at.strides.step == strides.step),
            "{} must have the strides of the program's form, {} and {}, not {} and {}", name, strides.row, strides.step,
            at.strides.row, at.strides.step);
  }

  ops::FormExtent extent() const { return {form.rows, form.steps, form.positions}; }

  DType type_of_states() const { return form.dtype == DType::f64 ? DType::f64 : DType::f32; }
  /// Channels of every state but the output.
  Index other_states() const { return (find_cell(spec.cell).states - 1) * spec.output_size(); }

  void check_every_state(const char* name, const Tensor& states) const {
    ops::require_tensor(name, states, type_of_states(), execution.device, size_of(type_of_states()));
    check_strides(name, states, other_states(), form.states);
  }

  void check_state(const char* name, const Tensor& state) const {
    if (!state) return;
    const DType type = type_of_states();
    ops::require_tensor(name, state, type, execution.device, size_of(type));
    ops::require_gapless(name, state,
                         {find_cell(spec.cell).states, spec.layers * spec.directions(), form.rows, spec.hidden_size});
  }

  void check_parameters(const char* name, std::span<const Tensor> tensors, DType type) const {
    require(tensors.size() == parameters.size(), "{} must be the {} tensors of parameters(), not {}", name,
            parameters.size(), tensors.size());
    const std::size_t alignment = execution.device.is_cuda() ? 16 : size_of(type);
    for (std::size_t i = 0; i < parameters.size(); ++i) {
      const ParameterShape& parameter = parameters[i];
      ops::require_tensor(parameter.name.c_str(), tensors[i], type, execution.device, alignment);
      ops::require_gapless(parameter.name.c_str(), tensors[i], parameter.shape.data(),
                           static_cast<int>(parameter.shape.size()));
    }
  }

  void check_batch_sizes(const Batch& batch) const {
    require((batch.batch_sizes != nullptr) == form.falling, "batch.batch_sizes must be {} by the program's form",
            form.falling ? "there" : "null");
    if (!form.falling) return;
    Index positions = 0;
    for (Index t = 0; t < form.steps; ++t) {
      const Index size = batch.batch_sizes[t], before = t == 0 ? form.rows : batch.batch_sizes[t - 1];
      require(size >= 1 && size <= before && (t > 0 || size == form.rows), "batch.batch_sizes[{}] must be {}, not {}",
              t, t == 0 ? fmt::format("the {} rows", form.rows) : fmt::format("1 to the {} before it", before), size);
      positions += size;
    }
    require(positions == form.positions,
            "batch.batch_sizes must add up to the {} positions of the program's form, not {}", form.positions,
            positions);
  }

  void check_call(const Context& context, const Batch& batch) const {
    ops::require_device(context, execution.device);
    ops::require_batch(batch, extent(), form.lengths, form.reset, execution.device);
    check_batch_sizes(batch);
  }

  /// What tells this pass from others. Lengths and resets on a GPU are not for the host to read.
  std::uint64_t pass_number(const Batch& batch) const {
    return execution.device.is_cuda() ? identity : nn::Hash(identity).add(nn::hash_of(batch)).value();
  }

  ops::Call call_of(const Context& context, const Batch& batch) const {
    ops::Call call;
    call.batch = batch;
    call.threads = execution.threads;
    call.seed = context.seed;
    call.device_seed = context.device_seed;
    call.stream = context.stream;
    return call;
  }

  /// Seeds of the host go to a GPU by way of the tape.
  void send_seed(const Context& context, void* tape, ops::Call& call) const {
    if (!execution.device.is_cuda() || spec.dropout == 0.0 || call.device_seed != nullptr) return;
    auto* const header = static_cast<TapeHeader*>(tape);
    ops::write_word(execution.device, &header->seed, context.seed, context.stream);
    call.device_seed = &header->seed;
  }

  void bind_parameters(graph::Workspace& workspace, const nn::StackPass& pass, std::span<const Tensor> weights) const {
    for (std::size_t i = 0; i < weights.size(); ++i) workspace.bind(pass.weights[i], weights[i].data);
  }

  /// Puts a workspace where the caller's memory is, with the weights packed there or as they are.
  void place(graph::Workspace& workspace, const nn::StackPass& pass, const Memory& memory, const Memory& packed,
             const ops::Call& call) const {
    workspace.place(memory.data);
    ops::clear_memory(execution.device, memory.data, pass.program->persistent_bytes(), call.stream);
    if (packed.data != nullptr) {
      pass.bind_derived(workspace, packed.data);
    } else if (pass.derived_bytes > 0) {
      pass.bind_derived(workspace, static_cast<std::byte*>(memory.data) + pass.program->workspace_bytes());
      workspace.run(graph::Phase::weights, call);
    }
  }

  static std::byte* behind_header(void* tape) { return static_cast<std::byte*>(tape) + kTapeHeaderBytes; }
};

RecurrentProgram::RecurrentProgram(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
RecurrentProgram::~RecurrentProgram() = default;

RecurrentProgram::Impl& RecurrentProgram::held() const { return alive(impl_, "the program"); }

std::shared_ptr<const RecurrentProgram> RecurrentProgram::get(const RecurrentSpec& spec, const RecurrentForm& form,
                                                              const Execution& execution) {
  using Key = std::tuple<RecurrentForm, Execution, unsigned, RecurrentSpec>;  // with the number of the instruction set
  static Recent<Key, const RecurrentProgram> recent(ops::kept_programs);
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
  const std::size_t forward = Impl::bytes_of(held().forward);
  return held().backward ? std::max(forward, Impl::bytes_of(*held().backward)) : forward;
}

std::size_t RecurrentProgram::tape_bytes() const {
  return held().form.training ? kTapeHeaderBytes + held().forward.tape.bytes : 0;
}

std::size_t RecurrentProgram::packed_bytes(Pass pass) const { return held().pass(pass).derived_bytes; }

std::uint64_t RecurrentProgram::forward(const Context& context, const Forward& given) const {
  const Impl& impl = held();
  const RecurrentSpec& spec = impl.spec;
  impl.check_call(context, given.batch);
  impl.check_parameters("weights", given.weights, impl.form.weights);
  impl.check_sequence("x", given.x, spec.input_size, impl.form.x);
  impl.check_sequence("y", given.y, spec.output_size(), impl.form.y);
  ops::require_apart("y", impl.place(given.y, spec.output_size()));
  const ops::NamedPlace x = {"x", impl.place(given.x, spec.input_size)};
  const ops::NamedPlace y = {"y", impl.place(given.y, spec.output_size())};
  ops::require_no_overlap(y, {x});
  impl.check_state("state_in", given.state_in);
  impl.check_state("state_out", given.state_out);
  require(static_cast<bool>(given.states) == impl.form.every_state, "states must be {} by the program's form",
          impl.form.every_state ? "there" : "null");
  if (given.states) {
    impl.check_every_state("states", given.states);
    const ops::SequencePlace states = impl.place(given.states, impl.other_states());
    ops::require_apart("states", states);
    ops::require_no_overlap({"states", states}, {x, y});
  }
  const nn::StackPass& pass = impl.forward;
  require(given.packed.data == nullptr || !impl.form.packs_each_call,
          "packed must be null, as the program's form packs in each call");
  const std::size_t unpacked = given.packed.data != nullptr ? 0 : pass.derived_bytes;
  ops::require_memory("workspace", given.workspace, pass.program->workspace_bytes() + unpacked);
  if (given.packed.data != nullptr) ops::require_memory("packed", given.packed, pass.derived_bytes);
  if (impl.form.training) ops::require_memory("tape", given.tape, tape_bytes());
  require(!impl.form.step || given.state_out.data != nullptr, "state_out must not be null for a step");

  const Impl::Workspaces::Lease workspace(impl.workspaces(Pass::forward));
  ops::Call call = impl.call_of(context, given.batch);
  const std::uint64_t number = impl.pass_number(given.batch);
  impl.bind_parameters(*workspace, pass, given.weights);
  workspace->bind(pass.x, given.x.data);
  workspace->bind(pass.y, given.y.data);
  workspace->bind(pass.state_in, given.state_in.data);
  workspace->bind(pass.state_out, given.state_out.data);
  if (impl.form.every_state) workspace->bind(pass.states, given.states.data);
  if (impl.form.training) {
    if (!impl.execution.device.is_cuda()) static_cast<TapeHeader*>(given.tape.data)->pass = number;
    impl.send_seed(context, given.tape.data, call);
    pass.bind_tape(*workspace, Impl::behind_header(given.tape.data));
  }
  impl.place(*workspace, pass, given.workspace, given.packed, call);
  if (impl.form.step) {
    workspace->run_as_is(call);
  } else {
    workspace->run(call);
  }
  return number;
}

void RecurrentProgram::backward(const Context& context, const Backward& given) const {
  const Impl& impl = held();
  const RecurrentSpec& spec = impl.spec;
  const RecurrentForm& form = impl.form;
  const nn::StackPass& pass = impl.pass(Pass::backward);
  impl.check_call(context, given.batch);
  impl.check_parameters("weights", given.weights, form.weights);
  impl.check_sequence("x", given.x, spec.input_size, form.x);
  impl.check_sequence("y", given.y, spec.output_size(), form.y);
  impl.check_sequence("dy", given.dy, spec.output_size(), ops::strides_or(form.dy, form.y));
  require(static_cast<bool>(given.dx) == form.input_gradient, "dx must be {} by the program's form",
          form.input_gradient ? "there" : "null");
  if (given.dx) {
    impl.check_sequence("dx", given.dx, spec.input_size, ops::strides_or(form.dx, form.x));
    const ops::SequencePlace dx = impl.place(given.dx, spec.input_size);
    ops::require_apart("dx", dx);
    ops::require_no_overlap(
        {"dx", dx}, {{"dy", impl.place(given.dy, spec.output_size())}, {"x", impl.place(given.x, spec.input_size)}});
  }
  impl.check_state("state_in", given.state_in);
  impl.check_state("dstate_out", given.dstate_out);
  impl.check_state("dstate_in", given.dstate_in);
  require(form.every_state || !given.dstates,
          "dstates must be null, as the program's form has no states after each step");
  if (given.dstates) impl.check_every_state("dstates", given.dstates);
  impl.check_parameters("gradients", given.gradients, form.dtype == DType::f64 ? DType::f64 : DType::f32);
  const std::size_t unpacked = given.packed.data != nullptr ? 0 : pass.derived_bytes;
  ops::require_memory("workspace", given.workspace, pass.program->workspace_bytes() + unpacked);
  if (given.packed.data != nullptr) ops::require_memory("packed", given.packed, pass.derived_bytes);
  ops::require_memory("tape", given.tape, tape_bytes());
  const std::uint64_t number = impl.pass_number(given.batch);
  require(given.pass == 0 || given.pass == number, "tape must hold a forward pass of this program and this batch");
  require(impl.execution.device.is_cuda() || static_cast<const TapeHeader*>(given.tape.data)->pass == number,
          "tape must hold a forward pass of this program and this batch");

  const Impl::Workspaces::Lease workspace(impl.workspaces(Pass::backward));
  ops::Call call = impl.call_of(context, given.batch);
  impl.bind_parameters(*workspace, pass, given.weights);
  workspace->bind(pass.x, given.x.data);
  workspace->bind(pass.y, given.y.data);
  workspace->bind(pass.dy, given.dy.data);
  if (form.input_gradient) workspace->bind(pass.dx, given.dx.data);
  workspace->bind(pass.state_in, given.state_in.data);
  workspace->bind(pass.dstate_out, given.dstate_out.data);
  workspace->bind(pass.dstate_in, given.dstate_in.data);
  if (form.every_state) workspace->bind(pass.dstates, given.dstates.data);
  for (std::size_t i = 0; i < given.gradients.size(); ++i) {
    workspace->bind(pass.gradients[i], given.gradients[i].data);
  }
  pass.bind_tape(*workspace, Impl::behind_header(given.tape.data));
  impl.send_seed(context, given.tape.data, call);
  impl.place(*workspace, pass, given.workspace, given.packed, call);
  workspace->run(call);
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
  impl.bind_parameters(*workspace, pass, weights);
  pass.bind_derived(*workspace, packed.data);
  workspace->run(graph::Phase::weights, impl.call_of(context, {.rows = impl.form.rows, .steps = impl.form.steps}));
}

std::string RecurrentProgram::explain() const {
  const auto plans_of = [&](const nn::StackPass& pass) {
    const graph::Program& program = *pass.program;
    return to_text(nn::explain_nodes(program.graph(), program.target(), nn::machine_of(held().execution)));
  };
  std::string text = held().forward.program->describe() + plans_of(held().forward);
  if (held().backward) text += plans_of(*held().backward);
  return text;
}

}  // namespace penstock
