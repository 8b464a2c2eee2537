#include "call_numbers.h"

#include <array>

#include "host_memory.h"

namespace penstock::frameworks {

DType type_of(std::int64_t number) {
  constexpr std::array types{DType::f32, DType::f64, DType::bf16, DType::f16};
  return types.at(static_cast<std::size_t>(number));
}

DescribedCall describe(const CallNumbers& numbers) {
  DescribedCall call;
  RecurrentSpec& spec = call.spec;
  spec = {.cell = numbers.cell,
          .input_size = numbers.input,
          .hidden_size = numbers.hidden,
          .heads = numbers.heads,
          .layers = numbers.layers};
  if (numbers.bidirectional != 0) spec.direction = Direction::bidirectional;
  spec.bias = numbers.biases == 0 ? Bias::none : numbers.biases == 1 ? Bias::single : Bias::both;
  RecurrentForm& form = call.form;
  form.dtype = type_of(numbers.type);
  form.weights = type_of(numbers.weight_type);
  form.rows = numbers.rows, form.steps = numbers.steps, form.positions = numbers.positions;
  form.flags = {CallFlag::training, CallFlag::keep_tape, CallFlag::packs_each_call};
  form.flags.set(CallFlag::lengths, numbers.lengths != 0).set(CallFlag::reset, numbers.reset != 0);
  form.flags.set(CallFlag::every_state, numbers.every_state != 0);
  constexpr std::array restarts{Restarts::zeros, Restarts::one, Restarts::rows, Restarts::steps};
  form.restarts = restarts.at(static_cast<std::size_t>(numbers.restarts));
  if (numbers.batch_first == 0) {
    form.x = {spec.input_size, numbers.rows * spec.input_size};
    form.y = {spec.output_size(), numbers.rows * spec.output_size()};
    if (form.has(CallFlag::every_state)) {
      const Index channels = (find_cell(spec.cell).states - 1) * spec.output_size();
      form.states = {channels, numbers.rows * channels};
    }
  }
  if (numbers.cuda >= 0) call.execution.device = Device::cuda(static_cast<int>(numbers.cuda));
  if (numbers.cuda < 0 && form.dtype == DType::bf16) {
    call.execution.precision = Precision::bf16;
    if (form.weights != DType::bf16) form.weights = DType::f32;
  } else if (numbers.cuda < 0 && form.dtype != DType::f64) {
    form.dtype = form.weights = DType::f32;
  }
  return call;
}

std::int64_t tape_array_bytes(const CallNumbers& numbers) {
  const DescribedCall call = describe(numbers);
  const auto program = RecurrentProgram::get(call.spec, call.form, call.execution);
  return static_cast<std::int64_t>(TapeArray::bytes(program->tape_bytes()));
}

int alignment_of(std::initializer_list<std::uintptr_t> bytes) {
  std::uintptr_t bits = 16;
  for (const std::uintptr_t each : bytes) bits |= each;
  return static_cast<int>(bits & (~bits + 1));
}

int alignment_of(std::initializer_list<const void*> addresses) {
  std::uintptr_t bits = 0;
  for (const void* const address : addresses) bits |= reinterpret_cast<std::uintptr_t>(address);
  return alignment_of({bits});
}

}  // namespace penstock::frameworks
