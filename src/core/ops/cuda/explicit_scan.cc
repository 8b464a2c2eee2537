// Scans over explicit coefficients on a GPU.

#include "ops/scan/explicit_scan.h"
#include "ops/cuda/common.h"
#include "ops/memory/memory.h"
#include "ops/tensor_check.h"

namespace penstock::ops {

namespace {

cuda::DeviceSequence device_sequence(const Tensor& sequence) {
  const SequenceStrides at = strides_of(sequence);
  return {address_of(sequence.data), at.row, at.step};
}

cuda::ScanTerms device_terms(const ScanProgram::Terms& terms) {
  return {device_sequence(terms.a), device_sequence(terms.b), device_sequence(terms.factor)};
}

cuda::ScanShape scan_shape(const ScanCallForm& form, const Target& target, const Batch& batch, bool backward) {
  cuda::ScanShape scan = ops::shape_of(batch, target.packed);
  scan.rule = form.form == ScanForm::linear ? cuda::given_terms
              : form.factor                 ? cuda::given_signed_logs
                                            : cuda::given_logs;
  scan.storage = storage_of(target.dtype);
  scan.channels = form.channels;
  scan.reverse = form.reverse;
  scan.corrects = form.correction;
  scan.algorithm = scan_algorithm_of(target.execution, backward);
  return scan;
}

/// Stands in for every sequence while a scan is planned: as well aligned as all of them will be, and no better.
Tensor planned_terms(const ScanCallForm& form, const Target& target) {
  const auto unit = static_cast<Index>(size_of(target.dtype));
  const Index step = (form.channels * unit + form.alignment - 1) / form.alignment * form.alignment / unit;
  // An odd number of such units, so that nothing is found to be better aligned.
  const Index odd = step * unit / form.alignment % 2 == 0 ? step + form.alignment / unit : step;
  Tensor any;
  any.data = cuda::device_pointer<void>(static_cast<cuda::DeviceAddress>(form.alignment));
  any.rank = 3, any.strides = {odd * target.steps, odd, 1};
  return any;
}

cuda::ScanForward device_call(const ScanCallForm& form, const Target& target, const ScanProgram::Forward& memory) {
  return {scan_shape(form, target, memory.batch, false),
          device_terms(memory.terms),
          device_sequence(memory.h),
          address_of(memory.h0.data),
          address_of(memory.hT.data),
          address_of(memory.earlier_h0.data)};
}

cuda::ScanBackward device_call(const ScanCallForm& form, const Target& target, const ScanProgram::Backward& memory) {
  cuda::ScanBackward call;
  call.shape = scan_shape(form, target, memory.batch, true);
  call.terms = device_terms(memory.terms);
  call.dterms = device_terms(memory.dterms);
  call.y = device_sequence(memory.h);
  call.dy = device_sequence(memory.dh);
  call.state_in = address_of(memory.h0.data);
  call.dstate_out = address_of(memory.dhT.data);
  call.dstate_in = address_of(memory.dh0.data);
  call.earlier = address_of(memory.earlier_dhT.data);
  return call;
}

cuda::ScanExecutable prepared(const ScanCallForm& form, const Target& target, bool backward) {
  const Tensor any = planned_terms(form, target);
  const ScanProgram::Terms terms = {any, any, form.factor ? any : Tensor{}};
  const Batch batch = planned_batch(target);
  cuda::Device& gpu = gpu_of(target);
  const auto planned = [&](auto call) -> cuda::ScanExecutable {
    call.batch = batch, call.terms = terms, call.h = any;
    if constexpr (requires { call.dh; }) call.dh = any, call.dterms = terms;
    return {gpu, device_call(form, target, call)};
  };
  return backward ? planned(ScanProgram::Backward{}) : planned(ScanProgram::Forward{});
}

class GpuScan final : public ScanPass {
 public:
  GpuScan(const ScanCallForm& form, const Target& target, bool backward)
      : form_(form), target_(target), executable_(prepared(form, target, backward)) {}

  std::size_t workspace_bytes() const override { return executable_.workspace_bytes(); }
  std::string explain() const override { return executable_.plan().explain(); }
  void forward(const Call& call, const ScanProgram::Forward& memory) override { run(call, memory); }
  void backward(const Call& call, const ScanProgram::Backward& memory) override { run(call, memory); }

 private:
  template <class Memory>
  void run(const Call& call, const Memory& memory) {
    clear_memory(target_.device, memory.workspace.data, workspace_bytes(), call.stream);
    executable_.run(device_call(form_, target_, memory), address_of(memory.workspace.data), stream_of(call));
  }

  ScanCallForm form_;
  Target target_;
  cuda::ScanExecutable executable_;
};

}  // namespace

std::unique_ptr<ScanPass> prepare_cuda_scan(const ScanCallForm& form, const Target& target, bool backward) {
  return std::make_unique<GpuScan>(form, target, backward);
}

}  // namespace penstock::ops
