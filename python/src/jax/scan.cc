// Handlers of XLA's calls of a linear recurrence h_t = a_t h_{t-1} + b_t on JAX's arrays in place.

#include "frame.h"
#include "frameworks/call_numbers.h"
#include "penstock/scan_program.h"

namespace penstock::jax {
namespace {

/// The attribute "numbers".
enum Number : std::size_t {
  logarithmic,
  reverse,
  has_h0,
  has_lengths,
  has_reset,
  of_rows,
  of_steps,
  of_channels,
  of_type,
  number_count
};

std::shared_ptr<const ScanProgram> program_of(std::span<const Index> numbers, bool training, const Device& device) {
  ScanCallForm form;
  form.form = numbers[logarithmic] != 0 ? ScanForm::logarithmic : ScanForm::linear;
  form.reverse = numbers[reverse] != 0;
  form.rows = numbers[of_rows], form.steps = numbers[of_steps], form.channels = numbers[of_channels];
  form.dtype = frameworks::type_of(numbers[of_type]);
  form.flags.set(CallFlag::lengths, numbers[has_lengths] != 0);
  form.flags.set(CallFlag::reset, numbers[has_reset] != 0);
  form.flags.set(CallFlag::training, training);
  // XLA aligns arrays well, so what counts is the distance from step to step.
  form.alignment = frameworks::alignment_of({static_cast<std::uintptr_t>(form.channels) * size_of(form.dtype)});
  Execution execution;
  execution.device = device;
  return ScanProgram::get(form, execution);
}

/// One scan. Arguments begin with a, b, h0, lengths and resets. On a GPU, the last result is the workspace.
class ScanCall {
 public:
  ScanCall(Frame& frame, bool training)
      : frame_(frame),
        numbers_(frame.numbers(number_count)),
        program_(program_of(numbers_, training, frame.context().execution.device)) {
    terms_ = {frame.argument(), frame.argument(), {}};
    h0_ = frame.argument(numbers_[has_h0] != 0);
    const ScanCallForm& form = program_->form();
    batch_ = frame.batch(form.rows, form.steps, form.has(CallFlag::lengths), form.has(CallFlag::reset));
  }

  void forward() {
    const Tensor h = frame_.result(), last = frame_.result();
    program_->forward(frame_.context(),
                      {.batch = batch_, .terms = terms_, .h = h, .h0 = h0_, .hT = last, .workspace = workspace()});
  }

  void backward() {
    const Tensor h = frame_.argument(), dh = frame_.argument(), dlast = frame_.argument();
    const ScanProgram::Terms dterms{frame_.result(), frame_.result(), {}};
    const Tensor dh0 = frame_.result(numbers_[has_h0] != 0);
    program_->backward(frame_.context(), {.batch = batch_,
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
  Memory workspace() { return frame_.workspace(program_->workspace_bytes()); }

  Frame& frame_;
  std::span<const Index> numbers_;
  std::shared_ptr<const ScanProgram> program_;
  ScanProgram::Terms terms_;
  Tensor h0_;
  Batch batch_;
};

void run_scan(Frame& frame) { ScanCall(frame, false).forward(); }
void run_scan_backward(Frame& frame) { ScanCall(frame, true).backward(); }

}  // namespace
}  // namespace penstock::jax

using penstock::jax::Platform;
using penstock::xla::CallFrame;

extern "C" {

[[gnu::visibility("default")]] penstock::xla::Error* penstock_jax_scan(CallFrame* frame) {
  return penstock::jax::answer(frame, Platform::cpu, penstock::jax::run_scan);
}
[[gnu::visibility("default")]] penstock::xla::Error* penstock_jax_scan_cuda(CallFrame* frame) {
  return penstock::jax::answer(frame, Platform::cuda, penstock::jax::run_scan);
}
[[gnu::visibility("default")]] penstock::xla::Error* penstock_jax_scan_backward(CallFrame* frame) {
  return penstock::jax::answer(frame, Platform::cpu, penstock::jax::run_scan_backward);
}
[[gnu::visibility("default")]] penstock::xla::Error* penstock_jax_scan_backward_cuda(CallFrame* frame) {
  return penstock::jax::answer(frame, Platform::cuda, penstock::jax::run_scan_backward);
}

/// Writes the bytes of the workspace of a pass on a GPU to `bytes`; returns as complain() does. Compiles its kernels.
[[gnu::visibility("default")]] int penstock_jax_scan_bytes(const std::int64_t* numbers, int backward, int gpu,
                                                           std::int64_t* bytes, char* message, std::size_t size) {
  return penstock::jax::complain(message, size, [&] {
    const std::span<const penstock::Index> of_call(numbers, penstock::jax::number_count);
    const auto program = penstock::jax::program_of(of_call, backward != 0, penstock::Device::cuda(gpu));
    *bytes = static_cast<std::int64_t>(program->workspace_bytes());
  });
}
}
