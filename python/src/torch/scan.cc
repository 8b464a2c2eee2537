// The op of a linear recurrence: h_t = a_t h_{t-1} + b_t on PyTorch tensors.

#include <algorithm>

#include "call.h"
#include "frameworks/call_numbers.h"
#include "ops.h"
#include "penstock/scan_program.h"
#include "tape_memory.h"
#include "views.h"

namespace penstock::torch_ops {
namespace {

/// Returns whether the library can read [B, T, C] in place: channels are contiguous, rows and steps do not overlap.
bool is_readable(const TorchTensor& tensor) {
  const Index channels = tensor.size(2);
  const auto apart = [&](Index axis) { return tensor.size(axis) == 1 || tensor.stride(axis) >= channels; };
  return (channels == 1 || tensor.stride(2) == 1) && apart(0) && apart(1);
}

/// Returns a view of a readable sequence with its strides.
Tensor sequence_view(const TorchTensor& tensor) {
  Tensor view = view_of(tensor);
  for (std::size_t axis = 0; axis < 2; ++axis) {
    if (view.shape[axis] > 1) view.strides[axis] = tensor.stride(static_cast<Index>(axis));
  }
  return view;
}

/// Sets the last state of a sequence without steps: the initial state, or zeros if there is none.
void pass_on(TorchTensor& to, const TorchTensor& from) {
  if (from) {
    to.copy_from(from);
  } else {
    to.zero();
  }
}

/// A result tensor of the caller. If it cannot be written directly, a temporary tensor is used and copied at the end;
/// for a correction it is also copied at the beginning.
class Result {
 public:
  Result(const TorchTensor& wanted, std::int32_t type, bool usable, bool corrected)
      : wanted_(wanted),
        computed_(usable && wanted.dtype() == type ? wanted.share() : wanted.empty(wanted.sizes(), type)) {
    if (corrected && computed_.address() != wanted_.address()) computed_.copy_from(wanted_);
  }
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

/// One scan h_t = a_t h_{t-1} + b_t. A correction also has the initial state of the call that it corrects.
struct ScanCall {
  TorchTensor a, b, h0, lengths, reset, earlier;
  bool logarithmic = false, reverse = false, correction = false;

  void take_terms(Arguments& arguments) {
    a = arguments.tensor();
    b = arguments.tensor();
    h0 = arguments.optional_tensor();
    lengths = arguments.optional_tensor();
    reset = arguments.optional_tensor();
  }
  void take_form(Arguments& arguments) {
    logarithmic = arguments.boolean();
    reverse = arguments.boolean();
  }
  void take_earlier(Arguments& arguments) {
    earlier = arguments.optional_tensor();
    correction = true;
  }

  void validate() {
    dtype_of(a.dtype());
    check(a.dim() == 3, "a must be [B, T, C], not ", a);
    check(b.sizes() == a.sizes(), "b must be of the shape of a, ", a, ", not ", b);
    check(b.dtype() == a.dtype(), "a and b must be of one dtype");
    check(device_of(b) == device_of(a), "a and b must be on one device");
    if (h0) check_state(h0, "h0");
    if (earlier) check_state(earlier, "the state that is corrected");
    if (lengths) {
      check(lengths.dim() == 1 && lengths.size(0) == a.size(0) && lengths.dtype() == shim().int64,
            "lengths must be int64 [B] = [", a.size(0), "], not ", lengths);
      check(device_of(lengths) == device_of(a), "lengths must be on the device of a");
      lengths = lengths.contiguous();
      check_lengths(lengths, a.size(1));
    }
    if (reset) reset = ready_reset(reset, a, "a");
  }
  void check_sequence(const TorchTensor& tensor, const char* name) const {
    check(tensor.sizes() == a.sizes(), name, " must be of the shape of a, not ", tensor);
    check(device_of(tensor) == device_of(a), name, " must be on the device of a");
  }
  void check_state(const TorchTensor& tensor, const char* name) const {
    check(tensor.sizes() == state_sizes(), name, " must be [B, C] = ", state_sizes(), ", not ", tensor);
    check(device_of(tensor) == device_of(a), name, " must be on the device of a");
  }

  Sizes state_sizes() const { return {a.size(0), a.size(2)}; }

  /// Runs the forward pass. Tensors may have any strides and types.
  void forward(const TorchTensor& h_wanted, const TorchTensor& last_wanted) const {
    const TorchTensor entering = ready_state(h0), entered = ready_state(earlier);
    Result last(last_wanted, state_type(a), last_wanted.is_contiguous(), correction);
    if (a.elements() == 0) {
      pass_on(last.computed(), entering);
      return last.deliver();
    }
    const TorchTensor a_ready = ready(a), b_ready = ready(b);
    Result h(h_wanted, computed_type(a), is_readable(h_wanted), correction);
    const Context context = context_of(a);
    const auto program = get(context, false, {&a_ready, &b_ready, &h.computed()});
    const Workspace workspace(a, program->workspace_bytes());
    program->forward(context, {.batch = batch(),
                               .terms = {sequence_view(a_ready), sequence_view(b_ready), {}},
                               .h = sequence_view(h.computed()),
                               .h0 = view_of(entering),
                               .hT = view_of(last.computed()),
                               .earlier_h0 = view_of(entered),
                               .workspace = workspace.memory()});
    h.deliver();
    last.deliver();
  }

 private:
  friend struct BackwardCall;

  /// Returns a readable tensor of the computed type.
  TorchTensor ready(const TorchTensor& tensor) const {
    const TorchTensor converted = tensor.to(computed_type(a));
    return is_readable(converted) ? converted.share() : converted.contiguous();
  }
  TorchTensor ready_state(const TorchTensor& tensor) const {
    return tensor ? tensor.to(state_type(a)).contiguous() : TorchTensor();
  }
  Batch batch() const {
    Batch batch{.rows = a.size(0), .steps = a.size(1)};
    if (lengths) batch.lengths = lengths.data<Index>();
    if (reset) batch.reset = reset.data<std::uint8_t>();
    return batch;
  }

  std::shared_ptr<const ScanProgram> get(const Context& context, bool training,
                                         std::initializer_list<const TorchTensor*> sequences) const {
    ScanCallForm form;
    form.channels = a.size(2);
    form.form = logarithmic ? ScanForm::logarithmic : ScanForm::linear;
    form.reverse = reverse;
    form.dtype = dtype_of(computed_type(a));
    form.rows = a.size(0);
    form.steps = a.size(1);
    form.flags.set(CallFlag::lengths, static_cast<bool>(lengths));
    form.flags.set(CallFlag::reset, static_cast<bool>(reset));
    form.flags.set(CallFlag::training, training);
    form.correction = correction;
    for (const TorchTensor* const sequence : sequences) {
      const Tensor view = sequence_view(*sequence);
      const auto bytes = [&](Index elements) { return static_cast<std::uintptr_t>(elements) * size_of(form.dtype); };
      const auto address = reinterpret_cast<std::uintptr_t>(view.data);
      form.alignment =
          std::min(form.alignment, frameworks::alignment_of({address, bytes(view.strides[0]), bytes(view.strides[1])}));
    }
    return ScanProgram::get(form, context.execution);
  }
};

/// The backward pass of a scan. Missing dh or dlast are zeros.
struct BackwardCall {
  TorchTensor dh, dlast, h;
  ScanCall scan;

  void take(Arguments& arguments) {
    dh = arguments.optional_tensor();
    dlast = arguments.optional_tensor();
    scan.take_terms(arguments);
    h = arguments.tensor();
    scan.take_form(arguments);
  }
  void validate() {
    scan.validate();
    scan.check_sequence(h, "h");
    if (dh) scan.check_sequence(dh, "dh");
    if (dlast) scan.check_state(dlast, "dh_last");
  }

  /// Runs the backward pass. Tensors may have any strides and types.
  void run(const TorchTensor& da_wanted, const TorchTensor& db_wanted, const TorchTensor& dh0_wanted) const {
    const TorchTensor& a = scan.a;
    const TorchTensor leaving = scan.ready_state(dlast), left = scan.ready_state(scan.earlier);
    Result dh0(dh0_wanted, state_type(a), dh0_wanted.is_contiguous(), scan.correction);
    if (a.elements() == 0) {
      pass_on(dh0.computed(), leaving);
      return dh0.deliver();
    }
    const TorchTensor a_ready = scan.ready(a), b_ready = scan.ready(scan.b), h_ready = scan.ready(h);
    const TorchTensor entering = scan.ready_state(scan.h0);
    TorchTensor dh_ready = dh ? scan.ready(dh) : a.empty(a.sizes(), computed_type(a));
    if (!dh) dh_ready.zero();
    Result da(da_wanted, computed_type(a), is_readable(da_wanted), scan.correction);
    Result db(db_wanted, computed_type(a), is_readable(db_wanted), scan.correction);
    const Context context = context_of(a);
    const auto program =
        scan.get(context, true, {&a_ready, &b_ready, &h_ready, &dh_ready, &da.computed(), &db.computed()});
    const Workspace workspace(a, program->workspace_bytes());
    program->backward(context, {.batch = scan.batch(),
                                .terms = {sequence_view(a_ready), sequence_view(b_ready), {}},
                                .h = sequence_view(h_ready),
                                .dh = sequence_view(dh_ready),
                                .dterms = {sequence_view(da.computed()), sequence_view(db.computed()), {}},
                                .h0 = view_of(entering),
                                .dhT = view_of(leaving),
                                .dh0 = view_of(dh0.computed()),
                                .earlier_dhT = view_of(left),
                                .workspace = workspace.memory()});
    da.deliver();
    db.deliver();
    dh0.deliver();
  }
};

/// Where a pass puts its results: into new tensors, into tensors of the caller, or into those that have the results of
/// another state, which it corrects.
enum class Into { fresh, given, corrected };

void run_scan(StableValue* stack, Into into) {
  Arguments arguments(stack);
  ScanCall call;
  call.take_terms(arguments);
  call.take_form(arguments);
  if (into == Into::corrected) call.take_earlier(arguments);
  TorchTensor h, last;
  if (into != Into::fresh) h = arguments.tensor(), last = arguments.tensor();
  call.validate();
  const DeviceGuard guard(call.a);
  if (into == Into::fresh) {
    h = call.a.empty(call.a.sizes(), call.a.dtype());
    last = call.a.empty(call.state_sizes(), call.a.dtype());
  } else {
    call.check_sequence(h, "h");
    call.check_state(last, "h_last");
  }
  call.forward(h, last);
  if (into != Into::fresh) return;
  stack[0] = h.release();
  stack[1] = last.release();
}

void run_backward(StableValue* stack, Into into) {
  Arguments arguments(stack);
  BackwardCall call;
  call.take(arguments);
  if (into == Into::corrected) call.scan.take_earlier(arguments);
  TorchTensor da, db, dh0;
  if (into != Into::fresh) da = arguments.tensor(), db = arguments.tensor(), dh0 = arguments.tensor();
  call.validate();
  const TorchTensor& a = call.scan.a;
  const DeviceGuard guard(a);
  if (into == Into::fresh) {
    da = a.empty(a.sizes(), a.dtype());
    db = a.empty(a.sizes(), a.dtype());
    dh0 = a.empty(call.scan.state_sizes(), a.dtype());
  } else {
    call.scan.check_sequence(da, "da");
    call.scan.check_sequence(db, "db");
    call.scan.check_state(dh0, "dh0");
  }
  call.run(da, db, dh0);
  if (into != Into::fresh) return;
  stack[0] = da.release();
  stack[1] = db.release();
  stack[2] = dh0.release();
}

}  // namespace

void scan(StableValue* stack, std::uint64_t, std::uint64_t) { run_scan(stack, Into::fresh); }
void scan_out(StableValue* stack, std::uint64_t, std::uint64_t) { run_scan(stack, Into::given); }
void scan_correct(StableValue* stack, std::uint64_t, std::uint64_t) { run_scan(stack, Into::corrected); }
void scan_backward(StableValue* stack, std::uint64_t, std::uint64_t) { run_backward(stack, Into::fresh); }
void scan_backward_out(StableValue* stack, std::uint64_t, std::uint64_t) { run_backward(stack, Into::given); }
void scan_backward_correct(StableValue* stack, std::uint64_t, std::uint64_t) { run_backward(stack, Into::corrected); }

}  // namespace penstock::torch_ops
