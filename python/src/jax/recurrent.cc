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

/// One call of a program. Arguments begin with x, the weights, the state, lengths and resets.
class ProgramCall {
 public:
  explicit ProgramCall(Frame& frame) : frame_(frame), cell_(frame.cell()) {
    const std::span<const Index> numbers = frame.numbers(kNumbers);
    CallNumbers of_call{};
    of_call.cell = cell_.c_str();
    std::memcpy(&of_call.input, numbers.data(), kOfCall * sizeof(Index));
    has_state_ = numbers[kOfCall] != 0, has_extra_ = numbers[kOfCall + 1] != 0;
    time_first_ = of_call.batch_first == 0;
    call_ = frameworks::describe(of_call);
    every_state_ = call_.form.has(CallFlag::every_state);
  }

  void forward() {
    call_.form.flags.set(CallFlag::training, has_extra_);
    take_program();
    RecurrentProgram::Forward arguments;
    take_inputs(arguments);
    arguments.y = frame_.sequence_result(time_first_);
    arguments.state_out = frame_.result();
    arguments.states = frame_.sequence_result(time_first_, every_state_);
    const Tensor tape = frame_.result(has_extra_);
    frame_.finish();
    const std::size_t bytes = program_->workspace_bytes();
    arguments.workspace = {frameworks::scratch(bytes), bytes};
    if (tape) {
      check_tape(tape);
      arguments.tape = TapeArray::begin(tape.data, program_->tape_bytes());
    }
    program_->forward(context_, arguments);
  }

  void backward() {
    call_.form.flags.set(CallFlag::no_input_gradient, !has_extra_);
    take_program();
    RecurrentProgram::Backward arguments;
    take_inputs(arguments);
    arguments.y = frame_.sequence(time_first_);
    const Tensor tape = frame_.argument();
    arguments.dy = frame_.sequence(time_first_);
    arguments.dstate_out = frame_.argument();
    arguments.dstates = frame_.sequence(time_first_, every_state_);
    arguments.dx = frame_.sequence_result(time_first_, has_extra_);
    std::vector<Tensor> gradients;
    while (gradients.size() < weights_.size()) gradients.push_back(frame_.result());
    arguments.gradients = gradients;
    arguments.dstate_in = frame_.result(has_state_);
    frame_.finish();
    check_tape(tape);
    take_memory(arguments, tape);
    program_->backward(context_, arguments);
  }

 private:
  void take_program() {
    program_ = RecurrentProgram::get(call_.spec, call_.form, call_.execution);
    context_.execution = call_.execution;
  }

  template <class Arguments>
  void take_inputs(Arguments& arguments) {
    arguments.x = frame_.sequence(time_first_);
    while (weights_.size() < program_->parameters().size()) weights_.push_back(frame_.argument());
    arguments.weights = weights_;
    arguments.state_in = frame_.argument(has_state_);
    const RecurrentForm& form = call_.form;
    arguments.batch = frame_.batch(form.rows, form.steps, form.has(CallFlag::lengths), form.has(CallFlag::reset));
  }

  void check_tape(const Tensor& tape) const {
    const std::size_t bytes = TapeArray::bytes(program_->tape_bytes());
    if (tape.rank == 1 && tape.dtype == DType::u8 && tape.shape[0] == static_cast<Index>(bytes)) return;
    throw Error(ErrorCode::invalid_argument, "the tape must be u8 [" + std::to_string(bytes) + "]");
  }

  /// Sets the workspace and the tape, which is copied if XLA moved it to an address of another alignment.
  void take_memory(RecurrentProgram::Backward& arguments, const Tensor& tape) const {
    const std::size_t bytes = program_->tape_bytes(), workspace = program_->workspace_bytes();
    const std::size_t offset = TapeArray::offset_at(tape.data), stored = TapeArray::stored(tape.data, bytes);
    const std::size_t aligned = (workspace + TapeArray::alignment - 1) / TapeArray::alignment * TapeArray::alignment;
    auto* const memory = static_cast<std::byte*>(frameworks::scratch(aligned + (offset == stored ? 0 : bytes)));
    std::byte* kept = static_cast<std::byte*>(tape.data) + stored;
    if (offset != stored) kept = std::copy_n(kept, bytes, memory + aligned) - bytes;
    arguments.workspace = {memory, workspace};
    arguments.tape = {kept, bytes};
  }

  Frame& frame_;
  std::string cell_;
  bool has_state_ = false, has_extra_ = false, time_first_ = false, every_state_ = false;
  frameworks::DescribedCall call_;
  std::shared_ptr<const RecurrentProgram> program_;
  Context context_;
  std::vector<Tensor> weights_;
};

}  // namespace
}  // namespace penstock::jax

extern "C" {

__attribute__((visibility("default"))) penstock::xla::Error* penstock_jax_recurrent(penstock::xla::CallFrame* frame) {
  return penstock::jax::answer(frame, [](penstock::jax::Frame& read) { penstock::jax::ProgramCall(read).forward(); });
}

__attribute__((visibility("default"))) penstock::xla::Error* penstock_jax_recurrent_backward(
    penstock::xla::CallFrame* frame) {
  return penstock::jax::answer(frame, [](penstock::jax::Frame& read) { penstock::jax::ProgramCall(read).backward(); });
}

/// Returns the bytes of an array for the tape of this call. For a call that is not possible, returns -1 and writes the
/// reason to `message` [size].
__attribute__((visibility("default"))) std::int64_t penstock_jax_tape_bytes(
    const penstock::frameworks::CallNumbers* numbers, char* message, std::size_t size) {
  try {
    return penstock::frameworks::tape_array_bytes(*numbers);
  } catch (const std::exception& error) {
    const std::string_view text(error.what());
    message[text.copy(message, size - 1)] = '\0';
    return -1;
  }
}
}
