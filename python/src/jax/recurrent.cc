// Handlers of XLA's calls of a stack of recurrent layers: run the library's programs on JAX's arrays in place.

#include <algorithm>
#include <cstring>
#include <vector>

#include "frame.h"
#include "frameworks/call_numbers.h"
#include "frameworks/host_memory.h"
#include "penstock/recurrent_program.h"

namespace penstock::jax {
namespace {

using frameworks::CallNumbers;
using frameworks::TapeArray;

/// The attribute "numbers": those of CallNumbers, then whether the call has a state, and whether it has a tape
/// (forward) or a gradient of x (backward).
constexpr std::size_t kOfCall = (sizeof(CallNumbers) - sizeof(const char*)) / sizeof(std::int64_t);
constexpr std::size_t kNumbers = kOfCall + 2;

/// Returns the program of a pass. `extra`: the forward pass has a tape, the backward pass a gradient of x.
std::shared_ptr<const RecurrentProgram> program_of(frameworks::DescribedCall& call, Pass pass, bool extra) {
  call.form.flags.set(CallFlag::training, pass == Pass::backward || extra);
  if (pass == Pass::backward) call.form.flags.set(CallFlag::no_input_gradient, !extra);
  return RecurrentProgram::get(call.spec, call.form, call.execution);
}

/// One call of a program. Arguments begin with x, the weights, the state, lengths, resets and the offsets of packed
/// rows. On a GPU, the last result is the workspace.
class ProgramCall {
 public:
  ProgramCall(Frame& frame, Pass pass) : frame_(frame), cell_(frame.cell()), context_(frame.context()) {
    const std::span<const Index> numbers = frame.numbers(kNumbers);
    CallNumbers of_call{};
    of_call.cell = cell_.c_str();
    std::memcpy(&of_call.input, numbers.data(), kOfCall * sizeof(Index));
    of_call.cuda = frame.on_gpu() ? context_.execution.device.index : -1;  // the place, whatever the numbers say
    has_state_ = numbers[kOfCall] != 0, has_extra_ = numbers[kOfCall + 1] != 0;
    time_first_ = of_call.batch_first == 0;
    frameworks::DescribedCall call = frameworks::describe(of_call);
    program_ = program_of(call, pass, has_extra_);
    context_.execution = call.execution;
  }

  void forward() {
    RecurrentProgram::Forward arguments;
    take_inputs(arguments);
    arguments.y = frame_.sequence_result(time_first_);
    arguments.state_out = frame_.result();
    arguments.states = frame_.sequence_result(time_first_, every_state());
    const Tensor tape = frame_.result(has_extra_);
    arguments.workspace = frame_.workspace(program_->workspace_bytes());
    if (tape) {
      check_tape(tape);
      const std::size_t bytes = program_->tape_bytes();
      arguments.tape = frame_.on_gpu() ? Memory{tape.data, bytes} : TapeArray::begin(tape.data, bytes);
    }
    program_->forward(context_, arguments);
  }

  void backward() {
    RecurrentProgram::Backward arguments;
    take_inputs(arguments);
    arguments.y = frame_.sequence(time_first_);
    const Tensor tape = frame_.argument();
    arguments.dy = frame_.sequence(time_first_);
    arguments.dstate_out = frame_.argument();
    arguments.dstates = frame_.sequence(time_first_, every_state());
    arguments.dx = frame_.sequence_result(time_first_, has_extra_);
    std::vector<Tensor> gradients;
    while (gradients.size() < weights_.size()) gradients.push_back(frame_.result());
    arguments.gradients = gradients;
    arguments.dstate_in = frame_.result(has_state_);
    take_memory(arguments, tape);
    program_->backward(context_, arguments);
  }

 private:
  bool every_state() const { return program_->form().has(CallFlag::every_state); }

  template <class Arguments>
  void take_inputs(Arguments& arguments) {
    arguments.x = frame_.sequence(time_first_);
    while (weights_.size() < program_->parameters().size()) weights_.push_back(frame_.argument());
    arguments.weights = weights_;
    arguments.state_in = frame_.argument(has_state_);
    const RecurrentForm& form = program_->form();
    const bool packed = form.positions > 0;
    arguments.batch =
        frame_.batch(form.rows, form.steps, form.has(CallFlag::lengths), form.has(CallFlag::reset), packed);
    arguments.batch.restarts = form.restarts;
  }

  void check_tape(const Tensor& tape) const {
    const std::size_t bytes = TapeArray::bytes(program_->tape_bytes());
    if (Frame::bytes_of(tape).bytes >= bytes) return;
    throw Error(ErrorCode::invalid_argument, "the tape must be u8 [" + std::to_string(bytes) + "]");
  }

  /// Sets the workspace and the tape. On a CPU, XLA may have moved the tape to an address of another alignment: it is
  /// copied then. XLA aligns arrays on a GPU.
  void take_memory(RecurrentProgram::Backward& arguments, const Tensor& tape) {
    check_tape(tape);
    const std::size_t bytes = program_->tape_bytes();
    const std::size_t offset = frame_.on_gpu() ? 0 : TapeArray::offset_at(tape.data);
    const std::size_t stored = frame_.on_gpu() ? 0 : TapeArray::stored(tape.data, bytes);
    const std::size_t workspace = TapeArray::padded(program_->workspace_bytes());
    arguments.workspace = frame_.workspace(workspace + (offset == stored ? 0 : bytes));
    std::byte* kept = static_cast<std::byte*>(tape.data) + stored;
    if (offset != stored) {
      kept = std::copy_n(kept, bytes, static_cast<std::byte*>(arguments.workspace.data) + workspace) - bytes;
    }
    arguments.tape = {kept, bytes};
  }

  Frame& frame_;
  std::string cell_;
  Context context_;
  bool has_state_ = false, has_extra_ = false, time_first_ = false;
  std::shared_ptr<const RecurrentProgram> program_;
  std::vector<Tensor> weights_;
};

void run_forward(Frame& frame) { ProgramCall(frame, Pass::forward).forward(); }
void run_backward(Frame& frame) { ProgramCall(frame, Pass::backward).backward(); }

}  // namespace
}  // namespace penstock::jax

using penstock::jax::Platform;
using penstock::xla::CallFrame;

extern "C" {

[[gnu::visibility("default")]] penstock::xla::Error* penstock_jax_recurrent(CallFrame* frame) {
  return penstock::jax::answer(frame, Platform::cpu, penstock::jax::run_forward);
}
[[gnu::visibility("default")]] penstock::xla::Error* penstock_jax_recurrent_cuda(CallFrame* frame) {
  return penstock::jax::answer(frame, Platform::cuda, penstock::jax::run_forward);
}
[[gnu::visibility("default")]] penstock::xla::Error* penstock_jax_recurrent_backward(CallFrame* frame) {
  return penstock::jax::answer(frame, Platform::cpu, penstock::jax::run_backward);
}
[[gnu::visibility("default")]] penstock::xla::Error* penstock_jax_recurrent_backward_cuda(CallFrame* frame) {
  return penstock::jax::answer(frame, Platform::cuda, penstock::jax::run_backward);
}

/// Writes the bytes of an array for the tape of this call, and those of the workspace of a pass, to `bytes` [2];
/// returns as complain() does. On a GPU, compiles the kernels of the pass.
[[gnu::visibility("default")]] int penstock_jax_recurrent_bytes(const penstock::frameworks::CallNumbers* numbers,
                                                                int backward, int extra, std::int64_t* bytes,
                                                                char* message, std::size_t size) {
  return penstock::jax::complain(message, size, [&] {
    penstock::frameworks::DescribedCall call = penstock::frameworks::describe(*numbers);
    const auto pass = backward != 0 ? penstock::Pass::backward : penstock::Pass::forward;
    const auto program = penstock::jax::program_of(call, pass, extra != 0);
    bytes[0] = static_cast<std::int64_t>(penstock::jax::TapeArray::bytes(program->tape_bytes()));
    bytes[1] = static_cast<std::int64_t>(program->workspace_bytes());
  });
}
}
