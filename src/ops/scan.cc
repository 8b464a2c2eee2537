// The public scan over programs: memory and programs that it keeps from call to call.

#include "penstock/scan.h"

#include <array>

#include "base/aligned.h"
#include "base/check.h"
#include "base/dtype.h"
#include "base/per_thread.h"
#include "ops/geometry.h"
#include "penstock/scan_program.h"

namespace penstock {
namespace {

constexpr Index kMostChannels = Index{1} << 30;

template <class Real>
Tensor sequence_tensor(const Batch& batch, Index channels, const SequenceView<Real>& view) {
  if (!view) return {};
  const DType type = dtype_of<std::remove_const_t<Real>>();
  if (batch.cu_seqlens != nullptr) {
    Tensor tensor = Tensor::contiguous(view.data, type, {batch.cu_seqlens[batch.rows], channels});
    tensor.strides[0] = view.step_stride;
    return tensor;
  }
  Tensor tensor = Tensor::contiguous(view.data, type, {batch.rows, batch.steps, channels});
  tensor.strides = {view.row_stride, view.step_stride, 1};
  return tensor;
}

template <class Real>
Tensor state_tensor(const Batch& batch, Index channels, const Real* state) {
  if (state == nullptr) return {};
  return Tensor::contiguous(state, dtype_of<Real>(), {batch.rows, channels});
}

}  // namespace

template <class Real>
struct Scan<Real>::Impl {
  /// What one thread computes with.
  struct Work {
    std::shared_ptr<const ScanProgram> program;  // of its last call
    AlignedVector<Real> memory;

    Memory workspace() {
      const std::size_t needed = (program->workspace_bytes() + 256) / sizeof(Real) + 1;
      if (memory.size() < needed) memory.resize(needed);
      const auto start = reinterpret_cast<std::uintptr_t>(memory.data());
      return {reinterpret_cast<std::byte*>(memory.data()) + (256 - start % 256) % 256, program->workspace_bytes()};
    }
  };

  ScanCallForm form;
  PerThread<Work> works{[] { return std::make_unique<Work>(); }};

  Impl(Index channels, ScanForm scan_form, bool reverse) {
    check_enum("form", scan_form, ScanForm::logarithmic);
    require(channels >= 1 && channels <= kMostChannels, "channels must be 1 to {}, not {}", kMostChannels, channels);
    form.channels = channels;
    form.form = scan_form;
    form.reverse = reverse;
    form.dtype = dtype_of<Real>();
    form.training = true;
  }

  /// This thread's work, with the program of a call. `positions`: where packed rows have no step at all, there is
  /// nothing to do and no program.
  Work& prepare(const Batch& batch, const Terms& terms, const Execution& execution) {
    require(static_cast<bool>(terms.a), "terms.a is missing");
    require(static_cast<bool>(terms.b), "terms.b is missing");
    require(form.form == ScanForm::logarithmic || !terms.factor,
            "terms.factor belongs to the logarithmic form; the linear one has signs in a and b");
    ops::Geometry::check(batch);
    ScanCallForm wanted = form;
    wanted.factor = static_cast<bool>(terms.factor);
    wanted.rows = batch.rows;
    wanted.steps = batch.steps;
    wanted.positions = batch.cu_seqlens != nullptr ? batch.cu_seqlens[batch.rows] : 0;
    wanted.lengths = batch.lengths != nullptr;
    wanted.reset = batch.reset != nullptr;
    Work& work = works.get();
    work.program = ScanProgram::get(wanted, execution);
    return work;
  }

  ScanProgram::Terms terms_of(const Batch& batch, const Terms& terms) const {
    return {sequence_tensor(batch, form.channels, terms.a), sequence_tensor(batch, form.channels, terms.b),
            sequence_tensor(batch, form.channels, terms.factor)};
  }
};

namespace {

template <class Impl>
Impl& impl_of(const std::unique_ptr<Impl>& impl) {
  require(impl != nullptr, "the scan must not have been moved from");
  return *impl;
}

/// Packed rows without a single step: the state goes out as it came in.
template <class Real>
bool has_no_steps(const Batch& batch, Index channels, const Real* in, Real* out) {
  if (batch.cu_seqlens == nullptr || batch.cu_seqlens[batch.rows] > 0) return false;
  if (out == nullptr) return true;
  for (Index i = 0; i < batch.rows * channels; ++i) out[i] = in == nullptr ? Real(0) : in[i];
  return true;
}

}  // namespace

template <class Real>
Scan<Real>::Scan(Index channels, ScanForm form, bool reverse)
    : impl_(std::make_unique<Impl>(channels, form, reverse)) {}
template <class Real>
Scan<Real>::~Scan() = default;
template <class Real>
Scan<Real>::Scan(Scan&&) noexcept = default;
template <class Real>
Scan<Real>& Scan<Real>::operator=(Scan&&) noexcept = default;

template <class Real>
void Scan<Real>::forward(const Batch& batch, const Terms& terms, SequenceView<Real> h, const Real* h0, Real* hT,
                         const Execution& execution) const {
  Impl& impl = impl_of(impl_);
  require(static_cast<bool>(h), "h is missing");
  const Index channels = impl.form.channels;
  typename Impl::Work& work = impl.prepare(batch, terms, execution);
  if (has_no_steps(batch, channels, h0, hT)) return;
  work.program->forward({.execution = execution}, {.batch = batch,
                                                   .terms = impl.terms_of(batch, terms),
                                                   .h = sequence_tensor(batch, channels, h),
                                                   .h0 = state_tensor(batch, channels, h0),
                                                   .hT = state_tensor(batch, channels, hT),
                                                   .workspace = work.workspace()});
}

template <class Real>
void Scan<Real>::backward(const Batch& batch, const Terms& terms, SequenceView<const Real> h, const Real* h0,
                          SequenceView<const Real> dh, const Real* dhT, const TermGradients& gradients, Real* dh0,
                          const Execution& execution) const {
  Impl& impl = impl_of(impl_);
  require(static_cast<bool>(h), "h is missing");
  require(static_cast<bool>(dh), "dh is missing");
  require(static_cast<bool>(gradients.a), "gradients.a is missing");
  require(static_cast<bool>(gradients.b), "gradients.b is missing");
  require(static_cast<bool>(gradients.factor) == static_cast<bool>(terms.factor),
          "gradients.factor must be there exactly when terms.factor is");
  const Index channels = impl.form.channels;
  typename Impl::Work& work = impl.prepare(batch, terms, execution);
  if (has_no_steps(batch, channels, dhT, dh0)) return;
  const ScanProgram::Terms dterms = {sequence_tensor(batch, channels, gradients.a),
                                     sequence_tensor(batch, channels, gradients.b),
                                     sequence_tensor(batch, channels, gradients.factor)};
  work.program->backward({.execution = execution}, {.batch = batch,
                                                    .terms = impl.terms_of(batch, terms),
                                                    .h = sequence_tensor(batch, channels, h),
                                                    .dh = sequence_tensor(batch, channels, dh),
                                                    .dterms = dterms,
                                                    .h0 = state_tensor(batch, channels, h0),
                                                    .dhT = state_tensor(batch, channels, dhT),
                                                    .dh0 = state_tensor(batch, channels, dh0),
                                                    .workspace = work.workspace()});
}

template class Scan<float>;
template class Scan<double>;

}  // namespace penstock
