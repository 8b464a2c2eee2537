// The linear recurrence by itself as an op: h_t = a_t h_{t-1} + b_t over tensors of PyTorch.

#include "torch_call.h"
#include "torch_ops.h"

namespace penstock::torch_ops {
namespace {

struct ScanCall {
  TorchTensor a, b, h0;
  bool logarithmic = false, reverse = false;
  Index rows = 0, steps = 0, channels = 0;

  void validate() {
    check(a.dim() == 3, "a must be [B, T, C], not " + a.shape());
    check(b.shape() == a.shape(), "b must be of the shape of a, " + a.shape() + ", not " + b.shape());
    check(b.dtype() == a.dtype(), "a and b must be of one dtype");
    check(a.is_cuda() == b.is_cuda(), "a and b must be on one device");
    rows = a.size(0), steps = a.size(1), channels = a.size(2);
    if (!h0) return;
    check(h0.dim() == 2 && h0.size(0) == rows && h0.size(1) == channels,
          "h0 must be [B, C] = [" + std::to_string(rows) + ", " + std::to_string(channels) + "], not " + h0.shape());
    check(h0.is_cuda() == a.is_cuda(), "h0 must be on the device of a");
  }
};

template <class Real>
struct HostScan {
  const ScanCall& call;
  Scan<Real> scan;
  Batch batch;
  Execution execution;

  explicit HostScan(const ScanCall& c)
      : call(c), scan(c.channels, c.logarithmic ? ScanForm::logarithmic : ScanForm::linear, c.reverse) {
    batch.rows = call.rows;
    batch.steps = call.steps;
    std::uint32_t threads = 0;
    check_status(shim().threads(&threads), "torch.get_num_threads");
    execution.threads = static_cast<int>(threads);
  }

  SequenceView<Real> view(const TorchTensor& tensor) const {
    return SequenceView<Real>::batch_first(tensor.data<Real>(), call.steps, call.channels);
  }
  typename Scan<Real>::Terms terms() const { return {view(call.a), view(call.b), {}}; }
  static Real* values(const TorchTensor& tensor) { return tensor ? tensor.data<Real>() : nullptr; }

  void forward(const TorchTensor& h, const TorchTensor& h_last) {
    scan.forward(batch, terms(), view(h), values(call.h0), values(h_last), execution);
  }
  void backward(const TorchTensor& h, const TorchTensor& dh, const TorchTensor& dh_last, const TorchTensor& da,
                const TorchTensor& db, const TorchTensor& dh0) {
    scan.backward(batch, terms(), view(h), values(call.h0), view(dh), values(dh_last), {view(da), view(db), {}},
                  values(dh0), execution);
  }
};

/// Floats for halves, as states and sums are.
std::int32_t compute_type(const TorchTensor& tensor) {
  const std::int32_t type = tensor.dtype();
  check(type == shim().float32 || type == shim().float64 || type == shim().bf16 || type == shim().f16,
        "tensors must be float32, float64, bfloat16 or float16");
  return type == shim().float64 ? type : shim().float32;
}

/// Contiguous and of the type in which the host computes.
TorchTensor ready(const TorchTensor& tensor, std::int32_t type) {
  return tensor ? tensor.to(type).contiguous() : TorchTensor();
}

ScanCall prepared(const ScanCall& call, std::int32_t type) {
  check(!call.a.is_cuda(), "penstock::scan has no kernel for CUDA in this build");
  ScanCall host;
  host.a = ready(call.a, type);
  host.b = ready(call.b, type);
  host.h0 = ready(call.h0, type);
  host.logarithmic = call.logarithmic;
  host.reverse = call.reverse;
  host.validate();
  return host;
}

template <class Body>
void with_type(std::int32_t type, const Body& body) {
  if (type == shim().float64) {
    body(double());
  } else {
    body(float());
  }
}

}  // namespace

void scan(StableValue* stack, std::uint64_t, std::uint64_t) {
  Arguments arguments(stack);
  ScanCall call;
  call.a = arguments.tensor();
  call.b = arguments.tensor();
  call.h0 = arguments.optional_tensor();
  call.logarithmic = arguments.boolean();
  call.reverse = arguments.boolean();
  call.validate();
  const std::int32_t type = compute_type(call.a);
  const ScanCall host = prepared(call, type);
  TorchTensor h = host.a.empty({host.rows, host.steps, host.channels}, type);
  TorchTensor h_last = host.a.empty({host.rows, host.channels}, type);
  if (h.elements() > 0) {
    with_type(type, [&](auto real) { HostScan<decltype(real)>(host).forward(h, h_last); });
  } else if (host.h0) {
    h_last.copy_from(host.h0);
  } else {
    h_last.zero();
  }
  stack[0] = h.to(call.a.dtype()).release();
  stack[1] = h_last.to(call.a.dtype()).release();
}

void scan_backward(StableValue* stack, std::uint64_t, std::uint64_t) {
  Arguments arguments(stack);
  ScanCall call;
  const TorchTensor dh_given = arguments.optional_tensor();
  const TorchTensor dh_last_given = arguments.optional_tensor();
  call.a = arguments.tensor();
  call.b = arguments.tensor();
  call.h0 = arguments.optional_tensor();
  const TorchTensor h_given = arguments.tensor();
  call.logarithmic = arguments.boolean();
  call.reverse = arguments.boolean();
  call.validate();
  const std::int32_t type = compute_type(call.a);
  const ScanCall host = prepared(call, type);
  TorchTensor dh = ready(dh_given, type);
  if (!dh) {
    dh = host.a.empty({host.rows, host.steps, host.channels}, type);
    dh.zero();
  }
  const TorchTensor dh_last = ready(dh_last_given, type), h = ready(h_given, type);
  TorchTensor da = host.a.empty({host.rows, host.steps, host.channels}, type);
  TorchTensor db = host.a.empty({host.rows, host.steps, host.channels}, type);
  TorchTensor dh0 = host.a.empty({host.rows, host.channels}, type);
  if (h.elements() > 0) {
    with_type(type, [&](auto real) { HostScan<decltype(real)>(host).backward(h, dh, dh_last, da, db, dh0); });
  } else if (dh_last) {
    dh0.copy_from(dh_last);
  } else {
    dh0.zero();
  }
  stack[0] = da.to(call.a.dtype()).release();
  stack[1] = db.to(call.a.dtype()).release();
  stack[2] = dh0.to(call.a.dtype()).release();
}

}  // namespace penstock::torch_ops
