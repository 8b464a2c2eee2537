// The linear recurrence by itself as an op: h_t = a_t h_{t-1} + b_t over tensors of PyTorch.

#include <algorithm>

#include "penstock/scan_program.h"
#include "torch_call.h"
#include "torch_memory.h"
#include "torch_ops.h"
#include "torch_views.h"

namespace penstock::torch_ops {
namespace {

/// Are the channels of [B, T, C] side by side, and rows and steps apart, so that the library reads it where it lies?
bool is_readable(const TorchTensor& tensor) {
  const Index channels = tensor.size(2);
  const auto apart = [&](Index axis) { return tensor.size(axis) == 1 || tensor.stride(axis) >= channels; };
  return (channels == 1 || tensor.stride(2) == 1) && apart(0) && apart(1);
}

/// A readable sequence with its strides.
Tensor sequence_view(const TorchTensor& tensor) {
  Tensor view = view_of(tensor);
  for (std::size_t axis = 0; axis < 2; ++axis) {
    if (view.shape[axis] > 1) view.strides[axis] = tensor.stride(static_cast<Index>(axis));
  }
  return view;
}

/// The last state of a sequence without steps.
void pass_on(TorchTensor& to, const TorchTensor& from) {
  if (from) {
    to.copy_from(from);
  } else {
    to.zero();
  }
}

/// A result in the caller's memory where that can be written as it is, else in memory that is copied there at the end.
class Result {
 public:
  Result(const TorchTensor& wanted, std::int32_t type, bool usable)
      : wanted_(wanted),
        computed_(usable && wanted.dtype() == type ? wanted.share() : wanted.empty(wanted.sizes(), type)) {}
  TorchTensor& computed() { return computed_; }
  void deliver() {
    if (computed_.address() == wanted_.address()) return;
    TorchTensor to = wanted_.share();
    to.copy_from(computed_);
  }

 private:
  const TorchTensor& wanted_;
  TorchTensor computed_;
};

/// One scan on its way to a program: h_t = a_t h_{t-1} + b_t.
struct ScanCall {
  TorchTensor a, b, h0;
  bool logarithmic = false, reverse = false;

  void take_terms(Arguments& arguments) {
    a = arguments.tensor();
    b = arguments.tensor();
    h0 = arguments.optional_tensor();
  }
  void take_form(Arguments& arguments) {
    logarithmic = arguments.boolean();
    reverse = arguments.boolean();
  }

  void validate() const {
    dtype_of(a.dtype());
    check(a.dim() == 3, "a must be [B, T, C], not " + a.shape());
    check(b.sizes() == a.sizes(), "b must be of the shape of a, " + a.shape() + ", not " + b.shape());
    check(b.dtype() == a.dtype(), "a and b must be of one dtype");
    check(device_of(b) == device_of(a), "a and b must be on one device");
    if (h0) check_state(h0, "h0");
  }
  void check_sequence(const TorchTensor& tensor, const char* name) const {
    check(tensor.sizes() == a.sizes(), std::string(name) + " must be of the shape of a, not " + tensor.shape());
    check(device_of(tensor) == device_of(a), std::string(name) + " must be on the device of a");
  }
  void check_state(const TorchTensor& tensor, const char* name) const {
    check(tensor.sizes() == state_sizes(), std::string(name) + " must be [B, C] = [" + std::to_string(a.size(0)) +
                                               ", " + std::to_string(a.size(2)) + "], not " + tensor.shape());
    check(device_of(tensor) == device_of(a), std::string(name) + " must be on the device of a");
  }

  std::vector<Index> state_sizes() const { return {a.size(0), a.size(2)}; }

  /// Of any strides and types.
  void forward(const TorchTensor& h_wanted, const TorchTensor& last_wanted) const {
    const TorchTensor entering = ready_state(h0);
    Result last(last_wanted, state_type(a), last_wanted.is_contiguous());
    if (a.elements() == 0) {
      pass_on(last.computed(), entering);
      return last.deliver();
    }
    const TorchTensor a_ready = ready(a), b_ready = ready(b);
    Result h(h_wanted, computed_type(a), is_readable(h_wanted));
    const Context context = context_of(a);
    const auto program = get(context, false, {&a_ready, &b_ready, &h.computed()});
    const Workspace workspace(a, program->workspace_bytes());
    program->forward(context, {.batch = batch(),
                               .terms = {sequence_view(a_ready), sequence_view(b_ready), {}},
                               .h = sequence_view(h.computed()),
                               .h0 = view_of(entering),
                               .hT = view_of(last.computed()),
                               .workspace = workspace.memory()});
    h.deliver();
    last.deliver();
  }

  /// Of any strides and types; no dh or dlast: zeros.
  void backward(const TorchTensor& h_given, const TorchTensor& dh_given, const TorchTensor& dlast_given,
                const TorchTensor& da_wanted, const TorchTensor& db_wanted, const TorchTensor& dh0_wanted) const {
    const TorchTensor dlast = ready_state(dlast_given);
    Result dh0(dh0_wanted, state_type(a), dh0_wanted.is_contiguous());
    if (a.elements() == 0) {
      pass_on(dh0.computed(), dlast);
      return dh0.deliver();
    }
    const TorchTensor a_ready = ready(a), b_ready = ready(b), h = ready(h_given), entering = ready_state(h0);
    TorchTensor dh = dh_given ? ready(dh_given) : a.empty(a.sizes(), computed_type(a));
    if (!dh_given) dh.zero();
    Result da(da_wanted, computed_type(a), is_readable(da_wanted));
    Result db(db_wanted, computed_type(a), is_readable(db_wanted));
    const Context context = context_of(a);
    const auto program = get(context, true, {&a_ready, &b_ready, &h, &dh, &da.computed(), &db.computed()});
    const Workspace workspace(a, program->workspace_bytes());
    program->backward(context, {.batch = batch(),
                                .terms = {sequence_view(a_ready), sequence_view(b_ready), {}},
                                .h = sequence_view(h),
                                .dh = sequence_view(dh),
                                .dterms = {sequence_view(da.computed()), sequence_view(db.computed()), {}},
                                .h0 = view_of(entering),
                                .dhT = view_of(dlast),
                                .dh0 = view_of(dh0.computed()),
                                .workspace = workspace.memory()});
    da.deliver();
    db.deliver();
    dh0.deliver();
  }

 private:
  /// In the type that is computed, and readable.
  TorchTensor ready(const TorchTensor& tensor) const {
    const TorchTensor converted = tensor.to(computed_type(a));
    return is_readable(converted) ? converted.share() : converted.contiguous();
  }
  TorchTensor ready_state(const TorchTensor& tensor) const {
    return tensor ? tensor.to(state_type(a)).contiguous() : TorchTensor();
  }
  Batch batch() const { return {.rows = a.size(0), .steps = a.size(1)}; }

  std::shared_ptr<const ScanProgram> get(const Context& context, bool training,
                                         std::initializer_list<const TorchTensor*> sequences) const {
    ScanCallForm form;
    form.channels = a.size(2);
    form.form = logarithmic ? ScanForm::logarithmic : ScanForm::linear;
    form.reverse = reverse;
    form.dtype = dtype_of(computed_type(a));
    form.rows = a.size(0);
    form.steps = a.size(1);
    form.training = training;
    for (const TorchTensor* const sequence : sequences) {
      const Tensor view = sequence_view(*sequence);
      const auto bytes = [&](Index elements) { return static_cast<std::uintptr_t>(elements) * size_of(form.dtype); };
      const auto address = reinterpret_cast<std::uintptr_t>(view.data);
      form.alignment =
          std::min(form.alignment, alignment_of({address, bytes(view.strides[0]), bytes(view.strides[1])}));
    }
    return ScanProgram::get(form, context.execution);
  }
};

}  // namespace

void scan(StableValue* stack, std::uint64_t, std::uint64_t) {
  Arguments arguments(stack);
  ScanCall call;
  call.take_terms(arguments);
  call.take_form(arguments);
  call.validate();
  const DeviceGuard guard(call.a);
  TorchTensor h = call.a.empty(call.a.sizes(), call.a.dtype());
  TorchTensor last = call.a.empty(call.state_sizes(), call.a.dtype());
  call.forward(h, last);
  stack[0] = h.release();
  stack[1] = last.release();
}

void scan_out(StableValue* stack, std::uint64_t, std::uint64_t) {
  Arguments arguments(stack);
  ScanCall call;
  call.take_terms(arguments);
  call.take_form(arguments);
  const TorchTensor h = arguments.tensor(), last = arguments.tensor();
  call.validate();
  call.check_sequence(h, "h");
  call.check_state(last, "h_last");
  const DeviceGuard guard(call.a);
  call.forward(h, last);
}

void scan_backward(StableValue* stack, std::uint64_t, std::uint64_t) {
  Arguments arguments(stack);
  const TorchTensor dh = arguments.optional_tensor(), dlast = arguments.optional_tensor();
  ScanCall call;
  call.take_terms(arguments);
  const TorchTensor h = arguments.tensor();
  call.take_form(arguments);
  call.validate();
  call.check_sequence(h, "h");
  const DeviceGuard guard(call.a);
  TorchTensor da = call.a.empty(call.a.sizes(), call.a.dtype());
  TorchTensor db = call.a.empty(call.a.sizes(), call.a.dtype());
  TorchTensor dh0 = call.a.empty(call.state_sizes(), call.a.dtype());
  call.backward(h, dh, dlast, da, db, dh0);
  stack[0] = da.release();
  stack[1] = db.release();
  stack[2] = dh0.release();
}

void scan_backward_out(StableValue* stack, std::uint64_t, std::uint64_t) {
  Arguments arguments(stack);
  const TorchTensor dh = arguments.optional_tensor(), dlast = arguments.optional_tensor();
  ScanCall call;
  call.take_terms(arguments);
  const TorchTensor h = arguments.tensor();
  call.take_form(arguments);
  const TorchTensor da = arguments.tensor(), db = arguments.tensor(), dh0 = arguments.tensor();
  call.validate();
  call.check_sequence(h, "h");
  call.check_sequence(da, "da");
  call.check_sequence(db, "db");
  call.check_state(dh0, "dh0");
  const DeviceGuard guard(call.a);
  call.backward(h, dh, dlast, da, db, dh0);
}

}  // namespace penstock::torch_ops
