// Programs over sequences and weights in bfloat16 on a CPU: what those over the same numbers in floats compute, to the
// bit, rounded where it is stored.

#include <span>

#include "nn/check_program.h"
#include "penstock/system.h"
#include "support/expect_error.h"

namespace penstock::test {
namespace {

class Bf16Programs : public CellTest {};

void round_all(std::span<float> values) {
  for (float& x : values) x = rounded(x);
}

/// Beside the shapes and layouts of all programs, sizes on both sides of tiles of 16 rows, 16 units and 32 inputs.
std::vector<Case> cases() {
  std::vector<Case> all;
  for (const std::vector<Case>& more : {shape_cases(), option_cases(), gradient_cases(), layout_cases()}) {
    all.insert(all.end(), more.begin(), more.end());
  }
  all.push_back({.name = "tiles", .input = 32, .hidden = 32, .rows = 32, .steps = 3});
  all.push_back({.name = "past_tiles", .input = 33, .hidden = 49, .rows = 35, .steps = 5, .form = RowForm::lengths});
  all.push_back({.name = "long", .input = 19, .hidden = 33, .rows = 1, .steps = 1031, .form = RowForm::lengths});
  all.push_back(
      {.name = "before_tiles", .input = 31, .hidden = 47, .rows = 15, .steps = 9, .layout = Layout::time_first});
  return all;
}

TEST_P(Bf16Programs, AreThoseOfFloatsRounded) {
  for (const Case& c : cases()) {
    if (!c.applies_to(info())) continue;
    Recurrent<float> network = make_network<float>(cell(), c);
    for (auto& parameter : network.parameters()) round_all(parameter.value);
    network.weights_changed();
    Inputs<float> in = make_inputs(network, c);
    round_all(in.x);
    round_all(in.dy);
    const auto check = [&](const Execution& execution, bool packs_each_call) {
      SCOPED_TRACE(testing::Message() << c.name << ", " << system_info().isa << ", " << to_string(execution.precision)
                                      << (execution.exact ? ", exact" : "") << (packs_each_call ? ", packs" : ""));
      const Calls calls{.packs_each_call = packs_each_call, .rounds_y = true};
      Outputs<float> want = run_program(network, in, execution, calls);
      round_all(want.y);
      round_all(want.dx);
      expect_same_bits(run_program<float, Bf16>(network, in, execution, calls), want);
    };
    for (const std::string& isa : system_info().isas) {
      select_isa(isa);
      check({.threads = 1, .precision = Precision::bf16}, false);
    }
    select_isa(system_info().isas.front());
    check({.threads = 2, .precision = Precision::bf16}, true);
    check({.threads = 1, .exact = true, .precision = Precision::bf16}, true);
    check({.threads = 1, .precision = Precision::bf16_weights}, false);
    check({.threads = 1}, true);
    if (info().scan) check({.threads = 2, .algorithm = Algorithm::scan, .precision = Precision::bf16}, false);
  }
}

TEST(RecurrentProgram, RefusesStepsInBf16) {
  const RecurrentSpec spec{.cell = "lstm", .input_size = 3, .hidden_size = 5};
  expect_error(ErrorCode::invalid_argument, "dtype must be f32 or f64 for a step on the CPU, not bf16", [&] {
    RecurrentProgram::get(spec, {.dtype = DType::bf16, .weights = DType::bf16, .flags = {CallFlag::step}});
  });
  expect_error(ErrorCode::invalid_argument, "weights must be bf16 or f32, not \"f64\"",
               [&] { RecurrentProgram::get(spec, {.dtype = DType::bf16, .weights = DType::f64}); });
}

INSTANTIATE_TEST_SUITE_P(Each, Bf16Programs, testing::ValuesIn(cell_names()), test_name);

}  // namespace
}  // namespace penstock::test
