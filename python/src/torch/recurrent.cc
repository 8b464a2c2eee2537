// The op of a stack of recurrent layers: runs the library's programs on PyTorch tensors in place.

#include <algorithm>
#include <cstring>

#include "call.h"
#include "frameworks/call_numbers.h"
#include "ops.h"
#include "penstock/recurrent_program.h"
#include "tape_memory.h"
#include "views.h"
#include "weight_gradients.h"

namespace penstock::torch_ops {
namespace {

/// Returns whether PyTorch's flags permit TF32 in recurrent layers; null: they do not.
int (*permits_tf32)() = nullptr;

/// One call of a program: converts the arguments for the program and determines its form.
///
/// On a CPU, float16 is converted; bfloat16 is read and written directly. Tensors without contiguous channels are
/// copied. Packed rows are copied on a GPU, because PyTorch orders their positions by steps.
class ProgramCall {
 public:
  explicit ProgramCall(const RecurrentCall& call)
      : call_(call),
        type_(stored_type(call.x)),
        context_(context_of(call.x, call.x.dtype() == shim().bf16 ? Precision::bf16 : Precision::full)) {
    const bool floats = call.x.is_cuda() && type_ == shim().float32;
    if (floats && permits_tf32 != nullptr && permits_tf32() != 0) context_.execution.precision = Precision::tf32;
    take_weights();
    take_rows();
    x_ = ready(call.x);
    state_ = call.state ? call.state.to(state_type(call.x)).contiguous() : TorchTensor();
    form_.dtype = dtype_of(type_);
    form_.x = strides(x_);
    form_.flags.set(CallFlag::every_state, call.every_state);
    form_.flags.set(CallFlag::keep_tape);  // a retained graph may run another backward pass
    form_.flags.set(CallFlag::packs_each_call);
  }

  void forward(TorchTensor& y, TorchTensor& state_out, TorchTensor& tape, TorchTensor& states, bool training) {
    form_.flags.set(CallFlag::training, training);
    TorchTensor out = sequence(call_.y_sizes());
    form_.y = strides(out);
    TorchTensor every =
        call_.every_state ? call_.x.empty(call_.every_state_sizes(), state_type(call_.x)) : TorchTensor();
    if (every) form_.states = strides(every);
    const auto program = get({x_.address(), out.address()});
    if (training) tape = Tape::allocate(x_, program->tape_bytes());
    RecurrentProgram::Forward arguments;
    arguments.weights = weight_views_;
    arguments.batch = batch_;
    arguments.x = view(x_);
    arguments.y = view(out);
    arguments.state_in = view_of(state_);
    arguments.state_out = view_of(state_out);
    if (every) arguments.states = view(every);
    const Workspace workspace(x_, program->workspace_bytes());
    arguments.workspace = workspace.memory();
    if (training) arguments.tape = Tape::begin(tape, program->tape_bytes());
    program->forward(context_, arguments);
    y = result(std::move(out));
    if (every) states = as_given(std::move(every));
  }

  /// Runs one step on a CPU and returns y. `states` [S, 1, B, H] receives the new states; if `given`, it has the states
  /// before the step.
  TorchTensor step(TorchTensor& states, bool given) {
    if (given) state_ = states.share();
    TorchTensor y, tape, every;
    forward(y, states, tape, every, false);
    return y;
  }

  void backward(const TorchTensor& y, const TorchTensor& tape, const TorchTensor& dy_given,
                const TorchTensor& dstate_out, const TorchTensor& dstates_given, TorchTensor* dx, TorchTensor& dstate,
                std::vector<TorchTensor>& dweights) {
    form_.flags.set(CallFlag::training);
    form_.flags.set(CallFlag::no_input_gradient, dx == nullptr);
    const TorchTensor out = ready(y);
    TorchTensor dy = dy_given ? ready(dy_given) : sequence(call_.y_sizes());
    if (!dy_given) dy.zero();
    TorchTensor din = dx != nullptr ? sequence(call_.x.sizes()) : TorchTensor();
    const TorchTensor dlast = dstate_out ? dstate_out.to(state_type(call_.x)).contiguous() : TorchTensor();
    form_.y = strides(out);
    form_.dy = strides(dy);
    if (din) form_.dx = strides(din);
    // The layout of the states in the forward pass, and of their gradients.
    TorchTensor dstates;
    if (call_.every_state) {
      const TorchTensor like = call_.x.empty(call_.every_state_sizes(), state_type(call_.x));
      form_.states = strides(like);
      if (dstates_given) dstates = by_rows(dstates_given.to(state_type(call_.x)).contiguous());
    }
    const auto program = get({x_.address(), out.address(), dy.address(), din ? din.address() : nullptr});
    WeightGradients gradients(weights_, state_type(call_.x), call_.weights.front().dtype());
    RecurrentProgram::Backward arguments;
    arguments.weights = weight_views_;
    arguments.batch = batch_;
    arguments.x = view(x_);
    arguments.y = view(out);
    arguments.dy = view(dy);
    arguments.state_in = view_of(state_);
    arguments.dstate_out = view_of(dlast);
    if (din) arguments.dx = view(din);
    if (dstates) arguments.dstates = view(dstates);
    arguments.dstate_in = view_of(dstate);
    arguments.gradients = gradients.views();
    const Workspace workspace(x_, program->workspace_bytes());
    arguments.workspace = workspace.memory();
    const TorchTensor kept = kept_tape(tape, program->tape_bytes());
    arguments.tape = Tape::find(kept, program->tape_bytes());
    program->backward(context_, arguments);
    if (dx != nullptr) *dx = result(std::move(din));
    if (call_.spec.projected_input)
      dweights.push_back(call_.weights[0].empty({call_.weights[0].size(0), 0}, call_.weights[0].dtype()));
    gradients.move_to(dweights);
  }

 private:
  /// Returns the tape for the backward pass. If the forward pass saved none, it runs again.
  TorchTensor kept_tape(const TorchTensor& tape, std::size_t bytes) const {
    if (tape.elements() == 0) {
      TorchTensor y, again, states, state_out = call_.x.empty(call_.state_sizes(), state_type(call_.x));
      ProgramCall(call_).forward(y, state_out, again, states, true);
      return again;
    }
    return Tape::settled(tape, bytes);
  }

  /// Returns the number of weights that stand before those of the program: a weight_ih without columns.
  std::size_t first_weight() const { return call_.spec.projected_input ? 1 : 0; }

  void take_weights() {
    const std::int32_t given = call_.weights.front().dtype();
    // Weights have the type of the sequences or float32.
    const std::int32_t type = given == type_ || type_ == shim().float64 ? type_ : shim().float32;
    form_.weights = dtype_of(type);
    for (std::size_t i = first_weight(); i < call_.weights.size(); ++i) {
      weights_.push_back(call_.weights[i].to(type).contiguous());
      if (call_.x.is_cuda() && reinterpret_cast<std::uintptr_t>(weights_.back().address()) % 16 != 0) {
        weights_.back() = weights_.back().clone();
      }
      weight_views_.push_back(view_of(weights_.back()));
    }
  }

  void take_rows() {
    form_.rows = batch_.rows = call_.rows;
    form_.steps = batch_.steps = call_.steps;
    form_.restarts = batch_.restarts = call_.restarts;
    if (call_.packed) {
      cu_seqlens_ = call_.packed->cu_seqlens(call_.x);
      batch_.cu_seqlens = cu_seqlens_.data<Index>();
      batch_.by_steps = call_.packed->is_by_steps() && !call_.x.is_cuda();
      form_.positions = call_.packed->total();
      const bool is_sorted = call_.packed->is_by_steps() && call_.x.is_cuda();
      form_.flags.set(CallFlag::sorted, is_sorted && !find_cell(call_.spec.cell).scan);
      if (form_.has(CallFlag::sorted)) batch_.batch_sizes = call_.packed->sizes();
    }
    if (call_.lengths && !call_.packed) {
      lengths_ = call_.lengths.contiguous();
      check_lengths(lengths_, call_.steps);
      batch_.lengths = lengths_.data<Index>();
      form_.flags.set(CallFlag::lengths);
    }
    if (call_.reset) {
      reset_ = by_rows(call_.reset.share()).contiguous();
      batch_.reset = reset_.data<std::uint8_t>();
      form_.flags.set(CallFlag::reset);
    }
  }

  /// Returns a sequence of the caller in a type and layout that programs read.
  TorchTensor ready(const TorchTensor& tensor) const {
    TorchTensor converted = by_rows(tensor.to(type_));
    const Index last = converted.dim() - 1, channels = converted.size(last);
    bool readable = channels == 1 || converted.stride(last) == 1;
    for (Index axis = 0; axis < last; ++axis) {
      readable = readable && (converted.size(axis) == 1 || converted.stride(axis) >= channels);
    }
    return readable ? std::move(converted) : converted.contiguous();
  }

  /// Returns a new sequence for a program to write.
  TorchTensor sequence(const Sizes& sizes) const { return call_.x.empty(sizes, type_); }

  /// Converts a packed sequence to the order of the library. Other sequences stay unchanged.
  TorchTensor by_rows(TorchTensor tensor) const {
    return call_.packed ? call_.packed->by_rows(std::move(tensor)) : std::move(tensor);
  }

  /// Converts a result of a program to the order of the caller.
  TorchTensor as_given(TorchTensor tensor) const {
    return call_.packed ? call_.packed->by_steps(std::move(tensor)) : std::move(tensor);
  }
  /// Converts a result of a program to the order and the type of the caller.
  TorchTensor result(TorchTensor tensor) const { return as_given(std::move(tensor)).to(call_.x.dtype()); }

  SequenceStrides strides(const TorchTensor& tensor) const {
    if (call_.packed) return {0, tensor.stride(0)};
    if (call_.one_step) {
      const Index channels = tensor.size(-1);
      return {tensor.dim() == 1 ? channels : tensor.stride(0), channels};
    }
    return {tensor.stride(call_.batch_first ? 0 : 1), tensor.stride(call_.batch_first ? 1 : 0)};
  }

  /// Returns a view [B, T, C], or [positions, C] for packed rows.
  Tensor view(const TorchTensor& tensor) const {
    Tensor view = view_of(tensor);
    const SequenceStrides of_axes = strides(tensor);
    if (call_.packed) {
      view.rank = 2;
      view.shape = {tensor.size(0), tensor.size(1)};
      view.strides = {of_axes.step, 1};
    } else {
      view.rank = 3;
      view.shape = {call_.rows, call_.steps, tensor.size(-1)};
      view.strides = {of_axes.row, of_axes.step, 1};
    }
    return view;
  }

  std::shared_ptr<const RecurrentProgram> get(std::initializer_list<const void*> sequences) {
    form_.alignment = frameworks::alignment_of(sequences);
    return RecurrentProgram::get(call_.spec, form_, context_.execution);
  }

  const RecurrentCall& call_;
  std::int32_t type_;  // type of sequences in the program
  Context context_;
  RecurrentForm form_;
  Batch batch_;
  TorchTensor x_, state_, lengths_, cu_seqlens_, reset_;
  std::vector<TorchTensor> weights_;
  std::vector<Tensor> weight_views_;
};

/// Returns zeros with the shapes of the weights, the gradients of an empty batch.
std::vector<TorchTensor> zero_gradients(const RecurrentCall& call) {
  std::vector<TorchTensor> zeros;
  for (const TorchTensor& weight : call.weights) {
    zeros.push_back(weight.empty(weight.sizes(), weight.dtype()));
    zeros.back().zero();
  }
  return zeros;
}

/// Results of a forward pass. tape and states are empty handles unless requested.
struct ForwardResults {
  TorchTensor y, state_out, tape, states;
};

/// Checks that the states before a call, or those of its resets, are none or all, with these sizes each.
void check_states(const RecurrentCall& call, const std::vector<TorchTensor>& states, const Sizes& sizes,
                  const char* name = "states") {
  const auto count = static_cast<Index>(states.size());
  check(count == 0 || count == call.states, name, " must be none or ", call.states, ", not ", count);
  for (Index k = 0; k < count; ++k) {
    const TorchTensor& state = states[static_cast<std::size_t>(k)];
    check(state.sizes() == sizes, name, "[", k, "] must be ", sizes, ", not ", state);
    check(state.is_cuda() == call.x.is_cuda() && (!state.is_cuda() || state.device_index() == call.x.device_index()),
          "Input and hidden tensors are not at the same device");
  }
}

/// Copies states into [S, ...] on a CPU.
void copy_states(const std::vector<TorchTensor>& states, const TorchTensor& whole) {
  auto* to = whole.data<std::byte>();
  for (const TorchTensor& given : states) {
    const TorchTensor state = given.to(whole.dtype()).contiguous();
    if (const std::size_t bytes = state.bytes(); bytes > 0) {
      std::memcpy(to, state.address(), bytes);
      to += bytes;
    }
  }
}

/// Returns the states before a call, none for zeros, and behind them those of its resets: one tensor
/// [S, layers * directions, B + n, H].
TorchTensor entering(RecurrentCall& call, const std::vector<TorchTensor>& states,
                     const std::vector<TorchTensor>& restarts) {
  const Sizes whole = call.state_sizes();
  const Index slots = whole[1], rows = whole[2], hidden = whole[3];
  if (restarts.empty() && states.front().dim() == 3) call.take_restarts(states.front().size(1));  // joined already
  check_states(call, states, {slots, state_rows(call.restarts, rows, call.steps), hidden});
  if (restarts.empty() && states.size() == 1) return states.front().as_entry();
  if (restarts.empty() && call.x.is_cuda()) return stack(states);
  if (!restarts.empty()) {
    check(call.reset && !call.packed && !call.x.is_cuda(), "restarts need padded rows with a reset on a CPU");
    const Index axes = restarts.front().dim();
    call.restarts = axes == 2 ? Restarts::one : axes == 3 ? Restarts::rows : Restarts::steps;
    const Sizes of_steps{slots, rows, call.steps, hidden}, of_rows{slots, rows, hidden}, of_all{slots, hidden};
    check_states(call, restarts, axes == 2 ? of_all : axes == 3 ? of_rows : of_steps, "restarts");
    call.take_restarts(call.entering_sizes()[2]);  // of one row or step: as the backward pass reads them
  }
  TorchTensor all = call.x.empty(call.entering_sizes(), state_type(call.x));
  auto* to = all.data<std::byte>();
  const auto copy = [&](const TorchTensor& block, std::size_t i, std::size_t bytes) {
    if (bytes == 0) return;
    if (block) std::memcpy(to, block.data<std::byte>() + i * bytes, bytes);
    if (!block) std::memset(to, 0, bytes);
    to += bytes;
  };
  const auto bytes_of = [&](Index count) {
    return static_cast<std::size_t>(count * hidden) * (all.dtype() == shim().float64 ? sizeof(double) : sizeof(float));
  };
  const std::size_t more = restarts.empty() ? 0 : bytes_of(call.entering_sizes()[2] - rows);
  const std::size_t first = bytes_of(call.entering_sizes()[2]) - more;
  const auto ready = [&](const std::vector<TorchTensor>& given, std::size_t k) {
    return given.empty() ? TorchTensor() : given[k].to(all.dtype()).contiguous();
  };
  for (std::size_t k = 0; k < static_cast<std::size_t>(call.states); ++k) {
    const TorchTensor before = ready(states, k), again = ready(restarts, k);
    for (std::size_t slot = 0; slot < static_cast<std::size_t>(slots); ++slot) {
      copy(before, slot, first);
      copy(again, slot, more);
    }
  }
  return all;
}

/// Runs a forward pass. The caller has made the device of x the current one.
ForwardResults run_forward(const RecurrentCall& call, bool keep_tape) {
  ForwardResults results;
  results.state_out = call.x.empty(call.state_sizes(), state_type(call.x));
  if (call.empty()) {
    results.y = call.x.empty(call.y_sizes(), call.x.dtype());
  } else {
    ProgramCall(call).forward(results.y, results.state_out, results.tape, results.states, keep_tape);
  }
  return results;
}

}  // namespace

void recurrent(StableValue* stack, std::uint64_t, std::uint64_t) {
  Arguments arguments(stack);
  RecurrentCall call;
  call.take_tensors(arguments);
  call.take_form(arguments);
  const bool keep_tape = arguments.boolean();
  call.every_state = arguments.boolean();
  call.validate();
  const DeviceGuard guard(call.x);
  ForwardResults results = run_forward(call, keep_tape);
  if (!results.tape) results.tape = call.x.empty({0}, shim().uint8);
  if (!results.states) results.states = call.x.empty(call.every_state_sizes(), state_type(call.x));
  stack[0] = results.y.release();
  stack[1] = results.state_out.release();
  stack[2] = results.tape.release();
  stack[3] = results.states.release();
}

void recurrent_eager(StableValue* stack, std::uint64_t, std::uint64_t) {
  Arguments arguments(stack);
  RecurrentCall call;
  call.x = arguments.tensor();
  call.weights = arguments.tensors();
  const std::vector<TorchTensor> states = arguments.tensors(), restarts = arguments.tensors();
  call.take_rows(arguments);
  call.take_form(arguments);
  const bool keep_tape = arguments.boolean();
  call.every_state = arguments.boolean();
  call.validate();
  const DeviceGuard guard(call.x);
  if (!states.empty() || !restarts.empty()) call.state = entering(call, states, restarts);
  ForwardResults results = run_forward(call, keep_tape);
  std::vector<TorchTensor> wanted;
  wanted.reserve(static_cast<std::size_t>(call.states) + 3);
  wanted.push_back(std::move(results.y));
  for (Index k = 0; k < call.states; ++k) wanted.push_back(results.state_out.entry(k));
  if (keep_tape) wanted.push_back(results.tape ? std::move(results.tape) : call.x.empty({0}, shim().uint8));
  if (keep_tape && !restarts.empty()) wanted.push_back(call.state.share());
  if (call.every_state) {
    wanted.push_back(results.states ? std::move(results.states)
                                    : call.x.empty(call.every_state_sizes(), state_type(call.x)));
  }
  stack[0] = release(wanted);
}

void recurrent_cell(StableValue* stack, std::uint64_t, std::uint64_t) {
  Arguments arguments(stack);
  RecurrentCall call;
  call.one_step = true;
  call.x = arguments.tensor();
  call.weights = arguments.tensors();
  const std::vector<TorchTensor> before = arguments.tensors();
  call.spec.cell = arguments.string();
  call.validate();
  const Sizes sizes = call.y_sizes();
  check_states(call, before, sizes);
  TorchTensor states = call.x.empty(call.state_sizes(), state_type(call.x));
  copy_states(before, states);
  const std::size_t bytes = states.bytes() / static_cast<std::size_t>(call.states);  // of one state
  std::vector<TorchTensor> after;
  after.push_back(call.empty() ? call.x.empty(sizes, call.x.dtype()) : ProgramCall(call).step(states, !before.empty()));
  for (Index k = 1; k < call.states; ++k) {
    TorchTensor state = call.x.empty(sizes, state_type(call.x));
    if (bytes > 0) std::memcpy(state.address(), states.data<std::byte>() + static_cast<std::size_t>(k) * bytes, bytes);
    after.push_back(std::move(state).to(call.x.dtype()));
  }
  stack[0] = release(after);
}

void recurrent_backward(StableValue* stack, std::uint64_t, std::uint64_t) {
  Arguments arguments(stack);
  RecurrentCall call;
  const TorchTensor dy = arguments.optional_tensor();
  const TorchTensor dstate_out = arguments.optional_tensor();
  const TorchTensor dstates = arguments.optional_tensor();
  call.take_tensors(arguments);
  const TorchTensor y = arguments.tensor();
  const TorchTensor tape = arguments.tensor();
  call.take_form(arguments);
  call.every_state = arguments.boolean();
  const bool want_dx = arguments.boolean(), want_dweights = arguments.boolean();
  call.validate();
  check(y.sizes() == call.y_sizes(), "y must be what the forward pass returned, not of shape ", y);
  check(!dy || dy.sizes() == call.y_sizes(), "dy must be of the shape of y, not ", dy);
  check(!dstate_out || dstate_out.sizes() == call.state_sizes(), "dstate_out must be of the shape of the states");
  check(!dstates || (call.every_state && dstates.sizes() == call.every_state_sizes()),
        "dstates must be of the shape of the states, with every_state");
  const DeviceGuard guard(call.x);
  TorchTensor dx = call.x.empty(want_dx ? call.x.sizes() : Sizes{0}, call.x.dtype());
  TorchTensor dstate = call.x.empty(call.entering_sizes(), state_type(call.x));
  std::vector<TorchTensor> dweights;
  if (call.empty()) {
    dweights = zero_gradients(call);
  } else {
    ProgramCall(call).backward(y, tape, dy, dstate_out, dstates, want_dx ? &dx : nullptr, dstate, dweights);
  }
  if (!want_dweights) dweights.clear();
  stack[0] = dx.release();
  stack[1] = dstate.release();
  stack[2] = release(dweights);
}

}  // namespace penstock::torch_ops

/// Returns the bytes of the tape of a forward pass of this call; -1 if it cannot run here.
extern "C" __attribute__((visibility("default"))) std::int64_t penstock_torch_tape_bytes(
    const penstock::frameworks::CallNumbers* numbers) {
  try {
    return penstock::frameworks::tape_array_bytes(*numbers);
  } catch (const std::exception&) {
    return -1;
  }
}

/// Sets the function that reads PyTorch's flags, which it changes at any time.
extern "C" __attribute__((visibility("default"))) void penstock_torch_read_tf32_by(int (*flag)()) {
  penstock::torch_ops::permits_tf32 = flag;
}
