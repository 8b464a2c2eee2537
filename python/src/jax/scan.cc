// Handlers of XLA's calls of a linear recurrence h_t = a_t h_{t-1} + b_t on JAX's arrays in place.

#include "frame.h"
#include "frameworks/host_memory.h"
#include "penstock/scan_program.h"

namespace penstock::jax {
namespace {

/// The attribute "numbers".
enum Number : std::size_t { logarithmic, reverse, has_h0, has_lengths, has_reset, number_count };

/// One scan. Arguments begin with a, b, h0, lengths and resets.
class ScanCall {
 public:
  explicit ScanCall(Frame& frame, bool training) : frame_(frame), numbers_(frame.numbers(number_count)) {
    terms_ = {frame.argument(), frame.argument(), {}};
    h0_ = frame.argument(numbers_[has_h0] != 0);
    const Tensor& a = terms_.a;
    if (a.rank != 3) throw Error(ErrorCode::invalid_argument, "a must be [B, T, C]");
    ScanCallForm form;
    form.channels = a.shape[2];
    form.form = numbers_[logarithmic] != 0 ? ScanForm::logarithmic : ScanForm::linear;
    form.reverse = numbers_[reverse] != 0;
    form.dtype = a.dtype;
    form.rows = a.shape[0], form.steps = a.shape[1];
    form.flags.set(CallFlag::lengths, numbers_[has_lengths] != 0);
    form.flags.set(CallFlag::reset, numbers_[has_reset] != 0);
    form.flags.set(CallFlag::training, training);
    batch_ = frame.batch(form.rows, form.steps, form.has(CallFlag::lengths), form.has(CallFlag::reset));
    program_ = ScanProgram::get(form);
  }

  void forward() {
    const Tensor h = frame_.result(), last = frame_.result();
    frame_.finish();
    program_->forward({}, {.batch = batch_, .terms = terms_, .h = h, .h0 = h0_, .hT = last, .workspace = workspace()});
  }

  void backward() {
    const Tensor h = frame_.argument(), dh = frame_.argument(), dlast = frame_.argument();
    const ScanProgram::Terms dterms{frame_.result(), frame_.result(), {}};
    const Tensor dh0 = frame_.result(numbers_[has_h0] != 0);
    frame_.finish();
    program_->backward({}, {.batch = batch_,
                            .terms = terms_,
                            .h = h,
                            .dh = dh,
                            .dterms = dterms,
                            .h0 = h0_,
                            .dhT = dlast,
                            .dh0 = dh0,
                            .workspace = workspace()});
  }

 private:
  Memory workspace() const {
    const std::size_t bytes = program_->workspace_bytes();
    return {frameworks::scratch(bytes), bytes};
  }

  Frame& frame_;
  std::span<const Index> numbers_;
  ScanProgram::Terms terms_;
  Tensor h0_;
  Batch batch_;
  std::shared_ptr<const ScanProgram> program_;
};

}  // namespace
}  // namespace penstock::jax

extern "C" {

__attribute__((visibility("default"))) penstock::xla::Error* penstock_jax_scan(penstock::xla::CallFrame* frame) {
  return penstock::jax::answer(frame,
                               [](penstock::jax::Frame& read) { penstock::jax::ScanCall(read, false).forward(); });
}

__attribute__((visibility("default"))) penstock::xla::Error* penstock_jax_scan_backward(
    penstock::xla::CallFrame* frame) {
  return penstock::jax::answer(frame,
                               [](penstock::jax::Frame& read) { penstock::jax::ScanCall(read, true).backward(); });
}
}
