// Scans over given terms on a GPU.

#include "ops/cuda/common.h"
#include "ops/memory/memory.h"
#include "ops/scan/given_scan.h"

namespace penstock::ops {

namespace {

cuda::DeviceSequence device_sequence(const ScanSequence& sequence) {
  return {address_of(sequence.data), sequence.strides.row, sequence.strides.step};
}

cuda::ScanTerms device_terms(const std::array<ScanSequence, 3>& terms) {
  return {device_sequence(terms[0]), device_sequence(terms[1]), device_sequence(terms[2])};
}

cuda::ScanShape scan_shape(const GivenScan& shape, const Target& target, const Batch& batch, bool backward) {
  cuda::ScanShape scan = ops::shape_of(batch, target.packed);
  scan.rule = shape.form == ScanForm::linear ? cuda::given_terms
              : shape.factor                 ? cuda::given_signed_logs
                                             : cuda::given_logs;
  scan.storage = storage_of(target.dtype);
  scan.channels = shape.channels;
  scan.reverse = shape.reverse;
  scan.corrects = shape.correction;
  scan.regime = regime_of(target.execution, backward);
  return scan;
}

/// Stands in for every sequence while a scan is planned: as well aligned as all of them will be, and no better.
ScanSequence planned_terms(const GivenScan& shape, const Target& target) {
  const auto unit = static_cast<Index>(size_of(target.dtype));
  const Index step = (shape.channels * unit + shape.alignment - 1) / shape.alignment * shape.alignment / unit;
  // An odd number of such units, so that nothing is found to be better aligned.
  const Index odd = step * unit / shape.alignment % 2 == 0 ? step + shape.alignment / unit : step;
  return {cuda::device_pointer<void>(static_cast<cuda::DeviceAddress>(shape.alignment)), {odd * target.steps, odd}};
}

cuda::ScanForward device_call(const GivenScan& shape, const Target& target, const Batch& batch,
                              const GivenScanForward& memory) {
  return {scan_shape(shape, target, batch, false),
          device_terms(memory.terms),
          device_sequence(memory.h),
          address_of(memory.h0),
          address_of(memory.hT),
          address_of(memory.earlier_h0)};
}

cuda::ScanBackward device_call(const GivenScan& shape, const Target& target, const Batch& batch,
                               const GivenScanBackward& memory) {
  cuda::ScanBackward call;
  call.shape = scan_shape(shape, target, batch, true);
  call.terms = device_terms(memory.terms);
  call.dterms = device_terms(memory.dterms);
  call.y = device_sequence(memory.h);
  call.dy = device_sequence(memory.dh);
  call.state_in = address_of(memory.h0);
  call.dstate_out = address_of(memory.dhT);
  call.dstate_in = address_of(memory.dh0);
  call.earlier = address_of(memory.earlier_dhT);
  return call;
}

cuda::ScanExecutable prepared(const GivenScan& shape, const Target& target, bool backward) {
  const ScanSequence any = planned_terms(shape, target), none;
  const std::array<ScanSequence, 3> terms = {any, any, shape.factor ? any : none};
  const Batch batch = planned_batch(target);
  cuda::Device& gpu = gpu_of(target);
  if (backward) {
    return {gpu,
            device_call(shape, target, batch, GivenScanBackward{.terms = terms, .h = any, .dh = any, .dterms = terms})};
  }
  return {gpu, device_call(shape, target, batch, GivenScanForward{.terms = terms, .h = any})};
}

class GpuScan final : public ScanPass {
 public:
  GpuScan(const GivenScan& shape, const Target& target, bool backward)
      : shape_(shape), target_(target), executable_(prepared(shape, target, backward)) {}

  std::size_t workspace_bytes() const override { return executable_.workspace_bytes(); }
  std::string explain() const override { return executable_.plan().explain(); }
  void forward(const Call& call, const GivenScanForward& memory) override { run(call, memory); }
  void backward(const Call& call, const GivenScanBackward& memory) override { run(call, memory); }

 private:
  template <class Memory>
  void run(const Call& call, const Memory& memory) {
    clear_memory(target_.device, memory.workspace, workspace_bytes(), call.stream);
    executable_.run(device_call(shape_, target_, call.batch, memory), address_of(memory.workspace), stream_of(call));
  }

  GivenScan shape_;
  Target target_;
  cuda::ScanExecutable executable_;
};

}  // namespace

std::unique_ptr<ScanPass> prepare_cuda_scan(const GivenScan& shape, const Target& target, bool backward) {
  return std::make_unique<GpuScan>(shape, target, backward);
}

}  // namespace penstock::ops
