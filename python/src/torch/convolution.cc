// The op of a causal convolution of each channel by itself, on PyTorch tensors.

#include "penstock/convolution_program.h"

#include <cstdint>

#include "call.h"
#include "ops.h"
#include "tape_memory.h"
#include "views.h"

namespace penstock::torch_ops {
namespace {

/// Returns a contiguous tensor whose memory begins where a GPU's kernels can read it.
TorchTensor aligned(const TorchTensor& tensor, std::int32_t type) {
  constexpr std::uintptr_t alignment = 16;
  TorchTensor ready = tensor.to(type).contiguous();
  return reinterpret_cast<std::uintptr_t>(ready.address()) % alignment == 0 ? std::move(ready) : ready.clone();
}

/// What the passes share, and the program that runs them.
struct ConvolutionCall {
  TorchTensor x, state, weight, reset;
  std::int32_t type = 0;  // of the computed sequences

  /// Checks shapes, types and devices, and makes the tensors ready to be read.
  void make_ready() {
    dtype_of(x.dtype());
    check(x.dim() == 3, "x must be [B, T, C], not ", x);
    check(weight.dim() == 2 && weight.size(0) >= 1 && weight.size(1) == x.size(2),
          "weight must be [K, C] with C = ", x.size(2), ", not ", weight);
    check(device_of(weight) == device_of(x), "weight must be on the device of x");
    type = computed_type(x);
    if (state) {
      const Sizes expected{x.size(0), weight.size(0) - 1, x.size(2)};
      check(state.sizes() == expected, "state must be [B, K - 1, C] = ", expected, ", not ", state);
      check(device_of(state) == device_of(x), "state must be on the device of x");
      state = aligned(state, state_type(x));
    }
    if (reset) reset = ready_reset(reset, x, "x");
    x = aligned(x, type);
    weight = aligned(weight, state_type(x));
  }

  std::shared_ptr<const ConvolutionProgram> program(const Context& context, bool training) const {
    ConvolutionCallForm form;
    form.channels = x.size(2);
    form.taps = weight.size(0);
    form.dtype = dtype_of(type);
    form.rows = x.size(0);
    form.steps = x.size(1);
    form.flags.set(CallFlag::reset, static_cast<bool>(reset));
    form.flags.set(CallFlag::training, training);
    return ConvolutionProgram::get(form, context.execution);
  }
  Batch batch() const {
    Batch batch{.rows = x.size(0), .steps = x.size(1)};
    if (reset) batch.reset = reset.data<std::uint8_t>();
    return batch;
  }
};

}  // namespace

void causal_convolution(StableValue* stack, std::uint64_t, std::uint64_t) {
  Arguments arguments(stack);
  ConvolutionCall call;
  call.x = arguments.tensor();
  call.state = arguments.optional_tensor();
  call.weight = arguments.tensor();
  TorchTensor bias = arguments.tensor();
  call.reset = arguments.optional_tensor();
  const std::int32_t wanted = call.x.dtype();
  const DeviceGuard guard(call.x);
  call.make_ready();
  check(bias.sizes() == Sizes{call.x.size(2)} && device_of(bias) == device_of(call.x),
        "bias must be [C] on the device of x, with C = ", call.x.size(2), ", not ", bias);
  bias = aligned(bias, state_type(call.x));
  TorchTensor y = call.x.empty(call.x.sizes(), call.type);
  if (y.elements() > 0) {
    const Context context = context_of(call.x);
    call.program(context, false)
        ->forward(context, {call.batch(), view_of(call.x), view_of(call.state), view_of(call.weight), view_of(bias),
                            view_of(y)});
  }
  stack[0] = std::move(y).to(wanted).release();
}

void causal_convolution_backward(StableValue* stack, std::uint64_t, std::uint64_t) {
  Arguments arguments(stack);
  ConvolutionCall call;
  TorchTensor dy = arguments.tensor();
  call.x = arguments.tensor();
  call.state = arguments.optional_tensor();
  call.weight = arguments.tensor();
  call.reset = arguments.optional_tensor();
  const std::int32_t wanted = call.x.dtype();
  const DeviceGuard guard(call.x);
  call.make_ready();
  check(dy.sizes() == call.x.sizes() && device_of(dy) == device_of(call.x),
        "dy must be of the shape and on the device of x, not ", dy);
  dy = aligned(dy, call.type);
  TorchTensor dx = call.x.empty(call.x.sizes(), call.type);
  TorchTensor dweight = call.x.empty(call.weight.sizes(), state_type(call.x));
  TorchTensor dbias = call.x.empty({call.x.size(2)}, state_type(call.x));
  if (dx.elements() > 0) {
    const Context context = context_of(call.x);
    const auto program = call.program(context, true);
    const Workspace workspace(call.x, program->workspace_bytes());
    program->backward(context, {call.batch(), view_of(call.x), view_of(call.state), view_of(call.weight), view_of(dy),
                                view_of(dweight), view_of(dbias), view_of(dx), workspace.memory()});
  } else {
    dweight.zero();
    dbias.zero();
  }
  stack[0] = std::move(dx).to(wanted).release();
  stack[1] = dweight.release();
  stack[2] = dbias.release();
}

}  // namespace penstock::torch_ops
