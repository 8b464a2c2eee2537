// The linear recurrence by itself as an op: h_t = a_t h_{t-1} + b_t over tensors of PyTorch.

#include <algorithm>

#include "penstock/scan_program.h"
#include "torch_call.h"
#include "torch_memory.h"
#include "torch_ops.h"
#include "torch_views.h"

namespace penstock::torch_ops {
namespace {

class ScanCall {
 public:
  /// Takes the arguments that both passes end with, but `h`, which only the backward pass has.
  ScanCall(Arguments& arguments, TorchTensor* h) {
    a = arguments.tensor();
    b = arguments.tensor();
    h0 = arguments.optional_tensor();
    if (h != nullptr) *h = arguments.tensor();
    logarithmic = arguments.boolean();
    reverse = arguments.boolean();
    validate();
  }

  TorchTensor a, b, h0;
  bool logarithmic, reverse;

  bool empty() const { return a.elements() == 0; }
  std::vector<Index> state_sizes() const { return {a.size(0), a.size(2)}; }

  /// Contiguous, in the type that is computed.
  TorchTensor ready(const TorchTensor& tensor) const {
    return tensor ? tensor.to(computed_type(a)).contiguous() : TorchTensor();
  }
  TorchTensor ready_state(const TorchTensor& tensor) const {
    return tensor ? tensor.to(state_type(a)).contiguous() : TorchTensor();
  }
  TorchTensor sequence() const { return a.empty(a.sizes(), computed_type(a)); }
  TorchTensor state() const { return a.empty(state_sizes(), state_type(a)); }

  std::shared_ptr<const ScanProgram> program(const Context& context, bool training,
                                             std::initializer_list<const void*> addresses) const {
    ScanCallForm form;
    form.channels = a.size(2);
    form.form = logarithmic ? ScanForm::logarithmic : ScanForm::linear;
    form.reverse = reverse;
    form.dtype = dtype_of(computed_type(a));
    form.rows = a.size(0);
    form.steps = a.size(1);
    form.training = training;
    // Rows and steps begin at multiples of the channels' bytes.
    const auto stride = static_cast<std::size_t>(a.size(2)) * size_of(form.dtype);
    form.alignment = std::min(alignment_of(addresses), alignment_of({reinterpret_cast<const void*>(stride)}));
    return ScanProgram::get(form, context.execution);
  }
  Batch batch() const { return {.rows = a.size(0), .steps = a.size(1)}; }

 private:
  void validate() const {
    dtype_of(a.dtype());
    check(a.dim() == 3, "a must be [B, T, C], not " + a.shape());
    check(b.sizes() == a.sizes(), "b must be of the shape of a, " + a.shape() + ", not " + b.shape());
    check(b.dtype() == a.dtype(), "a and b must be of one dtype");
    check(device_of(b) == device_of(a), "a and b must be on one device");
    if (!h0) return;
    check(h0.sizes() == state_sizes(), "h0 must be [B, C] = [" + std::to_string(a.size(0)) + ", " +
                                           std::to_string(a.size(2)) + "], not " + h0.shape());
    check(device_of(h0) == device_of(a), "h0 must be on the device of a");
  }
};

/// The last state of a sequence without steps.
void pass_on(TorchTensor& to, const TorchTensor& from) {
  if (from) {
    to.copy_from(from);
  } else {
    to.zero();
  }
}

}  // namespace

void scan(StableValue* stack, std::uint64_t, std::uint64_t) {
  Arguments arguments(stack);
  const ScanCall call(arguments, nullptr);
  const DeviceGuard guard(call.a);
  const TorchTensor a = call.ready(call.a), b = call.ready(call.b), h0 = call.ready_state(call.h0);
  const TorchTensor h = call.sequence();
  TorchTensor last = call.state();
  if (call.empty()) {
    pass_on(last, h0);
  } else {
    const Context context = context_of(call.a);
    const auto program = call.program(context, false, {a.address(), b.address(), h.address()});
    const Workspace workspace(a, program->workspace_bytes());
    program->forward(context, {.batch = call.batch(),
                               .terms = {view_of(a), view_of(b), {}},
                               .h = view_of(h),
                               .h0 = view_of(h0),
                               .hT = view_of(last),
                               .workspace = workspace.memory()});
  }
  stack[0] = h.to(call.a.dtype()).release();
  stack[1] = last.to(call.a.dtype()).release();
}

void scan_backward(StableValue* stack, std::uint64_t, std::uint64_t) {
  Arguments arguments(stack);
  const TorchTensor dh_given = arguments.optional_tensor(), dlast_given = arguments.optional_tensor();
  TorchTensor h_given;
  const ScanCall call(arguments, &h_given);
  check(h_given.sizes() == call.a.sizes(), "h must be of the shape of a, not " + h_given.shape());
  const DeviceGuard guard(call.a);
  const TorchTensor a = call.ready(call.a), b = call.ready(call.b), h0 = call.ready_state(call.h0);
  const TorchTensor h = call.ready(h_given), dlast = call.ready_state(dlast_given);
  TorchTensor dh = dh_given ? call.ready(dh_given) : call.sequence();
  if (!dh_given) dh.zero();
  const TorchTensor da = call.sequence(), db = call.sequence();
  TorchTensor dh0 = call.state();
  if (call.empty()) {
    pass_on(dh0, dlast);
  } else {
    const Context context = context_of(call.a);
    const auto program =
        call.program(context, true, {a.address(), b.address(), h.address(), dh.address(), da.address(), db.address()});
    const Workspace workspace(a, program->workspace_bytes());
    program->backward(context, {.batch = call.batch(),
                                .terms = {view_of(a), view_of(b), {}},
                                .h = view_of(h),
                                .dh = view_of(dh),
                                .dterms = {view_of(da), view_of(db), {}},
                                .h0 = view_of(h0),
                                .dhT = view_of(dlast),
                                .dh0 = view_of(dh0),
                                .workspace = workspace.memory()});
  }
  stack[0] = da.to(call.a.dtype()).release();
  stack[1] = db.to(call.a.dtype()).release();
  stack[2] = dh0.to(call.a.dtype()).release();
}

}  // namespace penstock::torch_ops
