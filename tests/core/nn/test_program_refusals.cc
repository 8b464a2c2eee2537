// What programs of recurrent stacks refuse: calls, states, tapes and forms that do not fit.

#include <cstdint>
#include <vector>

#include "nn/small_stack.h"
#include "support/expect_error.h"

namespace penstock::test {
namespace {

TEST(RecurrentProgram, RefusesCallsThatDoNotFit) {
  Stack stack;
  const auto program = stack.program();
  const auto refuses = [&](const char* what, auto damage) {
    RecurrentProgram::Forward call = stack.forward();
    damage(call);
    expect_error(ErrorCode::invalid_argument, what, [&] { program->forward({}, call); });
  };
  refuses("x must not be null", [](auto& call) { call.x = {}; });
  refuses("x must be f32, not f64", [](auto& call) { call.x.dtype = DType::f64; });
  refuses("x must be on cpu, not cuda:0", [](auto& call) { call.x.device = Device::cuda(); });
  refuses("y must be [2, 4, 5], not [2, 4, 6]", [](auto& call) { call.y.shape[2] = 6; });
  refuses("x must have the strides", [](auto& call) { call.x.strides[1] = 4; });
  refuses("y must not overlap x", [](auto& call) { call.y.data = call.x.data; });
  refuses("weights must be the 8 tensors", [](auto& call) { call.weights = call.weights.first(7); });
  refuses("workspace must have at least", [](auto& call) { call.workspace.bytes = 16; });
  refuses("workspace must be aligned",
          [](auto& call) { call.workspace.data = static_cast<std::byte*>(call.workspace.data) + 64; });
  refuses("workspace must not be null", [](auto& call) { call.workspace = {}; });
  refuses("tape must have at least", [](auto& call) { call.tape.bytes = 300; });
  refuses("batch must have the 2 rows", [](auto& call) { call.batch.rows = 3; });
  const Index lengths[] = {4, 4};
  refuses("batch.lengths must be null", [&](auto& call) { call.batch.lengths = lengths; });
  refuses("states must be null by the program's form", [](auto& call) { call.states = call.y; });
  refuses("state_in must be [2, 2, 2, 5]", [&](auto& call) {
    call.state_in = Tensor::contiguous(lengths, DType::f32, {2, 1, 2, 5});
  });
  expect_error(ErrorCode::invalid_argument, "context.execution.device must be cpu, not cuda:1", [&] {
    program->forward({.execution = {.device = Device::cuda(1)}, .stream = nullptr, .seed = 0, .device_seed = nullptr},
                     stack.forward());
  });
}

TEST(RecurrentProgram, RefusesStatesThatDoNotFit) {
  Stack stack;
  std::vector<float> memory(2 * 4 * 5);
  RecurrentProgram::Backward backward = stack.backward();
  backward.dstates = Tensor::contiguous(memory.data(), DType::f32, {2, 4, 5});
  stack.program()->forward({}, stack.forward());
  expect_error(ErrorCode::invalid_argument, "dstates must be null", [&] { stack.program()->backward({}, backward); });
  stack.form.flags.set(CallFlag::every_state);
  const auto refuses = [&](const char* what, auto damage) {
    RecurrentProgram::Forward call = stack.forward();
    call.states = Tensor::contiguous(memory.data(), DType::f32, {2, 4, 5});
    damage(call);
    expect_error(ErrorCode::invalid_argument, what, [&] { stack.program()->forward({}, call); });
  };
  refuses("states must be there by the program's form", [](auto& call) { call.states = {}; });
  refuses("states must be f32, not f64", [](auto& call) { call.states.dtype = DType::f64; });
  refuses("states must be [2, 4, 5], not [2, 4, 6]", [](auto& call) { call.states.shape[2] = 6; });
  refuses("states must have the strides", [](auto& call) { call.states.strides[1] = 6; });
  refuses("states must not overlap y", [](auto& call) { call.states.data = call.y.data; });
  refuses("states must not overlap x", [](auto& call) { call.states.data = call.x.data; });
}

TEST(RecurrentProgram, RefusesGivenStatesInThePlaceOfTheLastOnes) {
  Stack stack;
  stack.form.flags.set(CallFlag::reset), stack.form.restarts = Restarts::one;
  const std::vector<std::uint8_t> reset(2 * 4, 1);
  std::vector<float> states(2 * 2 * 3 * 5), last(2 * 2 * 2 * 5);
  RecurrentProgram::Forward call = stack.forward();
  call.batch.reset = reset.data(), call.batch.restarts = Restarts::one;
  call.state_in = Tensor::contiguous(states.data(), DType::f32, {2, 2, 3, 5});
  call.state_out = Tensor::contiguous(states.data(), DType::f32, {2, 2, 2, 5});
  const auto forward = [&] { stack.program()->forward({}, call); };
  expect_error(ErrorCode::invalid_argument, "state_out must not overlap state_in", forward);
  call.state_out.data = last.data();
  forward();
}

TEST(RecurrentProgram, RefusesATapeOfAnotherPass) {
  Stack stack;
  const std::uint64_t pass = stack.program()->forward({}, stack.forward());
  RecurrentProgram::Backward call = stack.backward();
  call.pass = pass + 1;
  expect_error(ErrorCode::invalid_argument, "tape must hold a forward pass of this program",
               [&] { stack.program()->backward({}, call); });
  Stack other;
  other.spec.cell = "elman";
  other.weights.clear();
  for (const auto& parameter : parameter_shapes(other.spec)) {
    static std::vector<float> zeros(1000);
    other.weights.push_back(
        parameter.shape.size() == 1
            ? Tensor::contiguous(zeros.data(), DType::f32, {parameter.shape[0]})
            : Tensor::contiguous(zeros.data(), DType::f32, {parameter.shape[0], parameter.shape[1]}));
  }
  other.program()->forward({}, other.forward());
  call = stack.backward();
  call.tape = other.tape.memory();
  expect_error(ErrorCode::invalid_argument, "tape must hold a forward pass of this program",
               [&] { stack.program()->backward({}, call); });
}

TEST(RecurrentProgram, RefusesFormsThatCannotBe) {
  const Stack stack;
  const auto refuses = [&](ErrorCode code, const char* what, auto damage) {
    RecurrentForm form = stack.form;
    Execution execution;
    damage(form, execution);
    expect_error(code, what, [&] { RecurrentProgram::get(stack.spec, form, execution); });
  };
  constexpr ErrorCode bad = ErrorCode::invalid_argument, no = ErrorCode::unsupported;
  refuses(no, "dtype must be f32, f64 or bf16 on cpu, not f16", [](auto& form, auto&) { form.dtype = DType::f16; });
  refuses(bad, "weights must be f32, not \"f64\"", [](auto& form, auto&) { form.weights = DType::f64; });
  refuses(bad, "rows must be 1 to", [](auto& form, auto&) { form.rows = 0; });
  refuses(bad, "positions must be 0 to 8", [](auto& form, auto&) { form.positions = 9; });
  refuses(bad, "alignment must be 4, a power of two, to 16", [](auto& form, auto&) { form.alignment = 3; });
  refuses(bad, "the flag sorted must be off unless rows are packed, on a GPU",
          [](auto& form, auto&) { form.flags.set(CallFlag::sorted); });
  refuses(bad, "the flag step is for one step", [](auto& form, auto&) { form.flags.set(CallFlag::step); });
  refuses(bad, "the flag every_state must be off for steps", [](auto& form, auto&) {
    form = {.flags = {CallFlag::every_state, CallFlag::step}};
  });
  RecurrentSpec gru = stack.spec;
  gru.cell = "gru";
  expect_error(bad, "the flag every_state must be off for cell gru",
               [&] { RecurrentProgram::get(gru, {.rows = 2, .steps = 4, .flags = {CallFlag::every_state}}); });
  refuses(no, "precision must be full for layers in double", [](auto& form, auto& execution) {
    form.dtype = form.weights = DType::f64;
    execution.precision = Precision::bf16;
  });
}

}  // namespace
}  // namespace penstock::test
