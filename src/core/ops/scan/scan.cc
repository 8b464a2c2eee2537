// The public scan over programs: memory and programs that it keeps from call to call.

#include "penstock/scan.h"

#include <algorithm>
#include <array>

#include "backend/cuda/driver/device.h"
#include "base/check.h"
#include "base/dtype.h"
#include "base/per_thread.h"
#include "ops/batch_rows.h"
#include "ops/memory/host_copies.h"
#include "ops/memory/stream_queue.h"
#include "ops/scan/explicit_scan.h"
#include "ops/tensor_check.h"
#include "penstock/scan_program.h"

namespace penstock {
namespace {

constexpr Index kMostChannels = Index{1} << 30;

}  // namespace

template <class Real>
struct Scan<Real>::Impl {
  /// State of one thread's calls.
  struct Work {
    std::shared_ptr<const ScanProgram> program;  // of its last call
    ops::Buffer memory;
    ops::HostCopies copies;
  };

  ScanCallForm form;
  std::shared_ptr<ops::Queue> queue = std::make_shared<ops::Queue>(Device::cpu());
  PerThread<Work> works{[] { return std::make_unique<Work>(); }};

  Impl(Index channels, ScanForm scan_form, bool reverse, Stream* stream) {
    check_enum("form", scan_form, ScanForm::logarithmic);
    require_argument(channels >= 1 && channels <= kMostChannels, "channels", channels, "1 to {}", kMostChannels);
    if (stream != nullptr) queue = queue_of(*stream);
    if (on_gpu() && std::is_same_v<Real, double>) {
      fail(ErrorCode::unsupported, "a scan of doubles runs on the CPU, not on {}: there, Scan<float> does",
           to_string(queue->device()));
    }
    form.channels = channels;
    form.form = scan_form;
    form.reverse = reverse;
    form.dtype = dtype_of<Real>();
  }

  bool on_gpu() const { return queue->device().is_cuda(); }
  /// Returns one state [B, C] on the host; null: a tensor without data.
  Tensor state_on_host(const Real* values, Index rows) const {
    return Tensor::contiguous(values, form.dtype, {rows, form.channels});
  }

  /// Throws unless a call on the scan's device can be meant.
  Execution resolved(const Execution& execution) const {
    const Device device = queue->device();
    require(!execution.device.is_cuda() || execution.device == device,
            "execution.device must be {}, where the scan is, not {}", to_string(device), to_string(execution.device));
    Execution whole = execution;
    whole.device = device;
    return whole;
  }

  /// This thread's work, with the program of a call.
  Work& prepare(const ScanCallForm& wanted, const Execution& execution) {
    Work& work = works.get();
    work.program = ScanProgram::get(wanted, resolved(execution));
    const std::size_t bytes = work.program->workspace_bytes();
    if (work.memory.bytes() < bytes) work.memory = ops::Buffer(*queue, bytes);
    return work;
  }

  /// The form of a call, but for the layout of its tensors.
  ScanCallForm form_of(const Batch& batch, Index positions, bool factor, bool training) const {
    ScanCallForm wanted = form;
    wanted.factor = factor;
    wanted.rows = batch.rows;
    wanted.steps = batch.steps;
    wanted.positions = positions;
    wanted.flags.set(CallFlag::lengths, batch.lengths != nullptr).set(CallFlag::reset, batch.reset != nullptr);
    wanted.flags.set(CallFlag::training, training || !on_gpu());
    // Copies for a GPU have no gaps between steps.
    if (on_gpu()) {
      wanted.alignment = cuda::common_alignment(wanted.alignment, {form.channels * static_cast<Index>(sizeof(Real))});
    }
    return wanted;
  }

  void require_terms(bool a, bool b, bool factor) const {
    require(a, "terms.a is missing");
    require(b, "terms.b is missing");
    require(form.form == ScanForm::logarithmic || !factor,
            "terms.factor belongs to the logarithmic form; the linear one has signs in a and b");
  }

  Context context(const Work& work) const {
    Context context;
    context.execution = work.program->execution();
    context.stream = queue->stream();
    return context;
  }
  static Memory workspace(const Work& work) { return {work.memory.data(), work.memory.bytes()}; }

  /// Form and work of a call with tensors of the device.
  Work& prepare_tensors(const Batch& batch, const TensorTerms& terms, const std::vector<const Tensor*>& all,
                        bool training, const Execution& execution) {
    require_terms(static_cast<bool>(terms.a), static_cast<bool>(terms.b), static_cast<bool>(terms.factor));
    if (!on_gpu()) ops::BatchRows::check(batch);
    const bool packed = batch.cu_seqlens != nullptr;
    require(terms.a.rank == (packed ? 2 : 3), "terms.a must have {} axes, not {}", packed ? 2 : 3, terms.a.rank);
    require(!packed || terms.a.shape[0] >= 1, "terms.a must have at least one position, not {}", terms.a.shape[0]);
    ScanCallForm wanted = form_of(batch, packed ? terms.a.shape[0] : 0, static_cast<bool>(terms.factor), training);
    wanted.dtype = terms.a.dtype;
    const bool half = on_gpu() && (wanted.dtype == DType::bf16 || wanted.dtype == DType::f16);
    require(wanted.dtype == form.dtype || half, "terms.a must be {}{}, not {}", to_string(form.dtype),
            on_gpu() ? ", bf16 or f16" : "", to_string(wanted.dtype));
    for (const Tensor* const tensor : all) {
      if (*tensor) wanted.alignment = std::min(wanted.alignment, ops::alignment_of(*tensor));
    }
    return prepare(wanted, execution);
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
    : impl_(std::make_unique<Impl>(channels, form, reverse, nullptr)) {}
template <class Real>
Scan<Real>::Scan(Index channels, Stream& stream, ScanForm form, bool reverse)
    : impl_(std::make_unique<Impl>(channels, form, reverse, &stream)) {}
template <class Real>
Scan<Real>::~Scan() = default;
template <class Real>
Scan<Real>::Scan(Scan&&) noexcept = default;
template <class Real>
Scan<Real>& Scan<Real>::operator=(Scan&&) noexcept = default;

template <class Real>
Device Scan<Real>::device() const {
  return impl_of(impl_).queue->device();
}

template <class Real>
void Scan<Real>::forward(const Batch& batch, const Terms& terms, SequenceView<Real> h, const Real* h0, Real* hT,
                         const Execution& execution) const {
  Impl& impl = impl_of(impl_);
  require(static_cast<bool>(h), "h is missing");
  impl.require_terms(static_cast<bool>(terms.a), static_cast<bool>(terms.b), static_cast<bool>(terms.factor));
  ops::BatchRows::check(batch);
  const Index positions = batch.cu_seqlens != nullptr ? ops::positions_of(batch) : 0;
  typename Impl::Work& work =
      impl.prepare(impl.form_of(batch, positions, static_cast<bool>(terms.factor), false), execution);
  if (has_no_steps(batch, impl.form.channels, h0, hT)) return;
  const auto sequence = [&](const auto& view) { return ops::sequence_on_host(batch, view, impl.form.channels); };
  ScanProgram::Forward given{.batch = batch,
                             .terms = {sequence(terms.a), sequence(terms.b), sequence(terms.factor)},
                             .h = sequence(h),
                             .h0 = impl.state_on_host(h0, batch.rows),
                             .hT = impl.state_on_host(hT, batch.rows),
                             .workspace = Impl::workspace(work)};
  if (!impl.on_gpu()) return work.program->forward(impl.context(work), given);
  ops::require_apart(given);
  ops::HostCall call(work.copies, *impl.queue, given.batch);
  call.in({&given.terms.a, &given.terms.b, &given.terms.factor, &given.h0});
  call.out({&given.h, &given.hT});
  work.program->forward(impl.context(work), given);
  call.fetch();
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
  impl.require_terms(static_cast<bool>(terms.a), static_cast<bool>(terms.b), static_cast<bool>(terms.factor));
  ops::BatchRows::check(batch);
  const Index positions = batch.cu_seqlens != nullptr ? ops::positions_of(batch) : 0;
  typename Impl::Work& work =
      impl.prepare(impl.form_of(batch, positions, static_cast<bool>(terms.factor), true), execution);
  if (has_no_steps(batch, impl.form.channels, dhT, dh0)) return;
  const auto sequence = [&](const auto& view) { return ops::sequence_on_host(batch, view, impl.form.channels); };
  ScanProgram::Backward given{.batch = batch,
                              .terms = {sequence(terms.a), sequence(terms.b), sequence(terms.factor)},
                              .h = sequence(h),
                              .dh = sequence(dh),
                              .dterms = {sequence(gradients.a), sequence(gradients.b), sequence(gradients.factor)},
                              .h0 = impl.state_on_host(h0, batch.rows),
                              .dhT = impl.state_on_host(dhT, batch.rows),
                              .dh0 = impl.state_on_host(dh0, batch.rows),
                              .workspace = Impl::workspace(work)};
  if (!impl.on_gpu()) return work.program->backward(impl.context(work), given);
  ops::require_apart(given);
  ops::HostCall call(work.copies, *impl.queue, given.batch);
  call.in({&given.terms.a, &given.terms.b, &given.terms.factor, &given.h, &given.dh, &given.h0, &given.dhT});
  call.out({&given.dterms.a, &given.dterms.b, &given.dterms.factor, &given.dh0});
  work.program->backward(impl.context(work), given);
  call.fetch();
}

template <class Real>
void Scan<Real>::forward(const Batch& batch, const TensorTerms& terms, const Tensor& h, const Tensor& h0,
                         const Tensor& hT, const Execution& execution) const {
  Impl& impl = impl_of(impl_);
  require(static_cast<bool>(h), "h is missing");
  typename Impl::Work& work =
      impl.prepare_tensors(batch, terms, {&terms.a, &terms.b, &terms.factor, &h}, false, execution);
  work.program->forward(impl.context(work), {.batch = batch,
                                             .terms = {terms.a, terms.b, terms.factor},
                                             .h = h,
                                             .h0 = h0,
                                             .hT = hT,
                                             .workspace = Impl::workspace(work)});
}

template <class Real>
void Scan<Real>::backward(const Batch& batch, const TensorTerms& terms, const Tensor& h, const Tensor& h0,
                          const Tensor& dh, const Tensor& dhT, const TensorTerms& gradients, const Tensor& dh0,
                          const Execution& execution) const {
  Impl& impl = impl_of(impl_);
  require(static_cast<bool>(h), "h is missing");
  require(static_cast<bool>(dh), "dh is missing");
  typename Impl::Work& work = impl.prepare_tensors(
      batch, terms, {&terms.a, &terms.b, &terms.factor, &h, &dh, &gradients.a, &gradients.b, &gradients.factor}, true,
      execution);
  work.program->backward(impl.context(work), {.batch = batch,
                                              .terms = {terms.a, terms.b, terms.factor},
                                              .h = h,
                                              .dh = dh,
                                              .dterms = {gradients.a, gradients.b, gradients.factor},
                                              .h0 = h0,
                                              .dhT = dhT,
                                              .dh0 = dh0,
                                              .workspace = Impl::workspace(work)});
}

template class Scan<float>;
template class Scan<double>;

}  // namespace penstock
