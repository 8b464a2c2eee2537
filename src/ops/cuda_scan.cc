// The linear recurrence on a GPU, as the public interface shows it.

#include <optional>

#include "base/check.h"
#include "ops/cuda_types.h"

namespace penstock {

struct CudaScan::Impl {
  CudaScanSpec spec;
  cuda::Device* device;
  std::optional<cuda::ScanExecutable> forward, backward;

  cuda::ScanShape shape(const CudaBatch& batch, bool has_factor) const {
    cuda::ScanShape shape = ops::shape_of(batch);
    require(!has_factor || spec.form == ScanForm::logarithmic, "factor must be nothing in the linear form");
    shape.rule = spec.form == ScanForm::linear ? cuda::given_terms
                 : has_factor                  ? cuda::given_signed_logs
                                               : cuda::given_logs;
    shape.storage = ops::storage_of(spec.type);
    shape.channels = spec.channels;
    shape.reverse = spec.reverse;
    shape.regime = ops::regime_of(spec.regime);
    return shape;
  }

  static cuda::ScanTerms terms(const Terms& of) {
    return {ops::sequence_of(of.a), ops::sequence_of(of.b), ops::sequence_of(of.factor)};
  }

  cuda::ScanForward call(const Forward& of) const {
    return {shape(of.batch, of.terms.factor.data != 0), terms(of.terms), ops::sequence_of(of.h), of.h0, of.hT};
  }

  cuda::ScanBackward call(const Backward& of) const {
    const bool has_factor = of.terms.factor.data != 0;
    require(has_factor == (of.dterms.factor.data != 0), "the gradient of factor must be {}",
            has_factor ? "an address on the GPU, as factor is" : "nothing, as factor is");
    cuda::ScanBackward call;
    call.shape = shape(of.batch, has_factor);
    call.terms = terms(of.terms);
    call.dterms = terms(of.dterms);
    call.y = ops::sequence_of(of.h);
    call.dy = ops::sequence_of(of.dh);
    call.state_in = of.h0;
    call.dstate_out = of.dhT;
    call.dstate_in = of.dh0;
    return call;
  }
};

CudaScan::CudaScan(const CudaScanSpec& spec) {
  check_enum("form", spec.form, ScanForm::logarithmic);
  check_enum("type", spec.type, CudaType::f16);
  check_enum("regime", spec.regime, CudaRegime::scan);
  require(spec.channels >= 1, "channels must be at least 1, not {}", spec.channels);
  impl_ = std::make_unique<Impl>(Impl{spec, &cuda::Device::get(spec.device), {}, {}});
}
CudaScan::~CudaScan() = default;
CudaScan::CudaScan(CudaScan&&) noexcept = default;
CudaScan& CudaScan::operator=(CudaScan&&) noexcept = default;

void CudaScan::prepare(const Forward& form) { impl_->forward.emplace(*impl_->device, impl_->call(form)); }
void CudaScan::prepare(const Backward& form) { impl_->backward.emplace(*impl_->device, impl_->call(form)); }

std::size_t CudaScan::workspace_bytes() const {
  return std::max(impl_->forward ? impl_->forward->workspace_bytes() : 0,
                  impl_->backward ? impl_->backward->workspace_bytes() : 0);
}

std::string CudaScan::explain() const {
  std::string lines;
  if (impl_->forward) lines += "forward: " + impl_->forward->plan().explain() + "\n";
  if (impl_->backward) lines += "backward: " + impl_->backward->plan().explain() + "\n";
  return lines;
}

void CudaScan::forward(const Forward& call, CudaAddress workspace, CudaStream stream) const {
  require(impl_->forward.has_value(), "prepare() a forward call before forward()");
  impl_->forward->run(impl_->call(call), workspace, ops::handle_of(stream));
}

void CudaScan::backward(const Backward& call, CudaAddress workspace, CudaStream stream) const {
  require(impl_->backward.has_value(), "prepare() a backward call before backward()");
  impl_->backward->run(impl_->call(call), workspace, ops::handle_of(stream));
}

}  // namespace penstock
