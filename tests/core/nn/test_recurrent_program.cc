// Programs of recurrent stacks over memory of the caller's: against the oracle.

#include <algorithm>
#include <iterator>
#include <thread>

#include "nn/check_program.h"
#include "nn/small_stack.h"
#include "support/expect_error.h"

namespace penstock::test {
namespace {

class Programs : public CellTest {};

template <class Real>
void check_program(const CellInfo& cell, const Case& c) {
  if (!c.applies_to(cell)) return;
  Recurrent<Real> network = make_network<Real>(std::string(cell.name), c);
  const Inputs<Real> in = make_inputs(network, c);
  SCOPED_TRACE(testing::Message() << cell.name << ", " << c.name << ", " << (sizeof(Real) == 4 ? "float" : "double"));
  expect_close(network.spec(), run_program(network, in), expected(network, in), tolerances(network, in, c));
}

TEST_P(Programs, AgreeWithTheOracle) {
  for (const Case& c : option_cases()) {
    check_program<double>(info(), c);
    check_program<float>(info(), c);
  }
}

TEST_P(Programs, LimitGradientsAndGiveEveryState) {
  for (const Case& c : gradient_cases()) {
    check_program<double>(info(), c);
    check_program<float>(info(), c);
  }
}

TEST_P(Programs, TakeAnyLayout) {
  for (const Case& c : layout_cases()) check_program<float>(info(), c);
}

/// So few positions that weights are not worth packing.
std::vector<Case> unpacked_cases() {
  std::vector<Case> cases;
  for (const std::vector<Case>& more : {shape_cases(), layout_cases()}) {
    std::ranges::copy_if(more, std::back_inserter(cases), [](const Case& c) { return c.rows * c.steps <= 5; });
  }
  for (const Index hidden : {6, 34, 66}) {
    cases.push_back({.name = "unpacked_heads", .input = 19, .hidden = hidden, .heads = 2, .rows = 9, .steps = 1});
    cases.push_back({.name = "unpacked_both_directions",
                     .input = 31,
                     .hidden = hidden,
                     .layers = 2,
                     .direction = Direction::bidirectional,
                     .bias = Bias::none,
                     .rows = 2,
                     .steps = 3,
                     .form = RowForm::lengths,
                     .reset = true});
    cases.push_back({.name = "unpacked_packed_rows",
                     .input = 15,
                     .hidden = hidden,
                     .layers = 2,
                     .bias = Bias::single,
                     .rows = 3,
                     .steps = 2,
                     .form = RowForm::packed});
  }
  return cases;
}

template <class Real>
bool same_results(const Outputs<Real>& a, const Outputs<Real>& b) {
  return same_bits(a.y, b.y) && same_bits(a.state_out, b.state_out) && same_bits(a.dx, b.dx);
}

TEST_P(Programs, ReadFewPositionsWeightsAsTheyLie) {
  for (const Case& c : unpacked_cases()) {
    if (!c.applies_to(info())) continue;
    SCOPED_TRACE(testing::Message() << cell() << ", " << c.name << ", " << c.hidden << " units");
    Recurrent<double> exact = make_network<double>(cell(), c);
    const Inputs<double> numbers = make_inputs(exact, c);
    expect_close(exact.spec(), run_program(exact, numbers, {}, {.packs_each_call = true}), expected(exact, numbers),
                 tolerances(exact, numbers, c));
    Recurrent<float> network = make_network<float>(cell(), c);
    const Inputs<float> in = make_inputs(network, c);
    RecurrentForm form = form_of(in);
    form.flags.set(CallFlag::packs_each_call);
    ASSERT_EQ(RecurrentProgram::get(network.spec(), form)->packed_bytes() == 0, !info().scan);
    const Outputs<float> got = run_program(network, in, {.threads = 1}, {.packs_each_call = true});
    expect_close(network.spec(), got, expected(network, in), tolerances(network, in, c));
    EXPECT_TRUE(same_results(got, run_program(network, in, {.threads = 1}, {.packs_each_call = true})));
    EXPECT_TRUE(same_results(got, run_program(network, in, {.threads = 2}, {.packs_each_call = true})));
  }
}

/// A layer over W x has the values of a layer over x whose W is the identity.
template <class Real>
void check_projected(const std::string& cell, Case c, const Execution& execution) {
  c.input = find_cell(cell).gates * c.hidden;
  if (!c.applies_to(find_cell(cell)) || c.layers > 1 || c.direction == Direction::bidirectional) return;
  SCOPED_TRACE(testing::Message() << cell << ", " << c.name);
  Recurrent<Real> network = make_network<Real>(cell, c);
  project_by_identity(network);
  const Inputs<Real> in = make_inputs(network, c);
  const Outputs<Real> want = run_program(network, in, execution);
  const Outputs<Real> got = run_program(network, in, execution, {.projected = true});
  EXPECT_EQ(got.y, want.y);
  EXPECT_EQ(got.state_out, want.state_out);
  EXPECT_EQ(got.dx, want.dx);
  EXPECT_EQ(got.dstate_in, want.dstate_in);
  EXPECT_EQ(got.states, want.states);
  for (std::size_t i = 1; i < want.gradients.size(); ++i) {
    EXPECT_EQ(got.gradients[i].second, want.gradients[i].second) << want.gradients[i].first;
  }
}

TEST_P(Programs, TakeTheInputProductOfTheCaller) {
  if (info().scan) GTEST_SKIP() << "has no recurrent matrix";
  for (const std::vector<Case>& cases : {option_cases(), gradient_cases(), layout_cases(), shape_cases()}) {
    for (const Case& c : cases) {
      for (const int threads : {1, 2}) {
        check_projected<double>(cell(), c, {.threads = threads});
        check_projected<float>(cell(), c, {.threads = threads});
      }
    }
  }
}

TEST(RecurrentProgram, RefusesAnInputProductThatDoesNotFit) {
  const auto refuses = [](const char* why, RecurrentSpec spec) {
    spec.hidden_size = 5, spec.projected_input = true;
    expect_error(ErrorCode::invalid_argument, why, [&] { parameter_shapes(spec); });
  };
  refuses("input_size must be the 20 values of all gates", {.cell = "lstm", .input_size = 5});
  refuses("layers must be 1", {.cell = "lstm", .input_size = 20, .layers = 2});
  refuses("direction must be forward or reverse",
          {.cell = "lstm", .input_size = 20, .direction = Direction::bidirectional});
  refuses("no recurrent matrix", {.cell = "mingru", .input_size = 10});
}

TEST(RecurrentProgram, SaysThatWeightsAreReadAsTheyLie) {
  const RecurrentSpec spec{.cell = "lstm", .input_size = 3, .hidden_size = 5};
  const auto reads_them = [&](Index rows, Index steps, bool packs_each_call, bool exact) {
    const auto program = RecurrentProgram::get(
        spec, {.rows = rows, .steps = steps, .flags = CallFlags().set(CallFlag::packs_each_call, packs_each_call)},
        {.exact = exact});
    EXPECT_EQ(program->packed_bytes() == 0, program->explain().find("as they lie") != std::string::npos);
    return program->packed_bytes() == 0;
  };
  EXPECT_TRUE(reads_them(1, 1, true, false));
  EXPECT_TRUE(reads_them(2, 3, true, false));
  EXPECT_FALSE(reads_them(1, 1, false, false));  // packed weights may serve other calls
  EXPECT_FALSE(reads_them(1, 1, true, true));    // in which a step has the bits of a sequence
  EXPECT_FALSE(reads_them(16, 200, true, false));
}

TEST(RecurrentProgram, PacksInEachCallOrTakesPanels) {
  const RecurrentSpec spec{.cell = "lstm", .input_size = 3, .hidden_size = 5};
  Case c{.name = "small", .input = 3, .hidden = 5, .rows = 1, .steps = 1};
  Recurrent<float> network = make_network<float>("lstm", c);
  const auto program = RecurrentProgram::get(network.spec(), {.flags = {CallFlag::packs_each_call}});
  std::vector<float> x(3), y(5);
  Poisoned memory(program->workspace_bytes()), packed(64);
  const std::vector<Tensor> weights = values_of(network);
  expect_error(ErrorCode::invalid_argument, "packed must be null", [&] {
    program->forward({}, {.weights = weights,
                          .batch = {},
                          .x = Tensor::contiguous(x.data(), DType::f32, {1, 1, 3}),
                          .y = Tensor::contiguous(y.data(), DType::f32, {1, 1, 5}),
                          .state_in = {},
                          .state_out = {},
                          .workspace = memory.memory(),
                          .tape = {},
                          .packed = packed.memory()});
  });
}

TEST_P(Programs, AStreamOfStepsIsTheSequence) {
  const Case c{.name = "stream", .input = 3, .hidden = 17, .layers = 2, .rows = 1, .steps = 9};
  Recurrent<float> network = make_network<float>(cell(), c);
  const Inputs<float> in = make_inputs(network, c);
  const Outputs<float> want = run_program(network, in);
  const auto program = RecurrentProgram::get(network.spec(), {.flags = {CallFlag::step}});
  const std::vector<Tensor> weights = values_of(network);
  Poisoned workspace(program->workspace_bytes()), packed(program->packed_bytes());
  program->pack({}, weights, packed.memory());
  std::vector<float> state = in.state_in, y(17);
  for (Index t = 0; t < c.steps; ++t) {
    program->forward({}, {.weights = weights,
                          .batch = {},
                          .x = Tensor::contiguous(&in.x[t * c.input], DType::f32, {1, 1, c.input}),
                          .y = Tensor::contiguous(y.data(), DType::f32, {1, 1, c.hidden}),
                          .state_in = states_of(network.spec(), 1, state),
                          .state_out = states_of(network.spec(), 1, state),
                          .workspace = workspace.memory(),
                          .tape = {},
                          .packed = packed.memory()});
    EXPECT_TRUE(same_bits(y, std::vector<float>(want.y.data() + t * c.hidden, want.y.data() + (t + 1) * c.hidden)))
        << "step " << t;
  }
  EXPECT_TRUE(same_bits(state, want.state_out));
}

INSTANTIATE_TEST_SUITE_P(Each, Programs, testing::ValuesIn(cell_names()), test_name);

TEST(RecurrentProgram, IsSharedByWhoeverAsksForTheSame) {
  const Stack stack;
  EXPECT_EQ(stack.program(), stack.program());
  RecurrentForm other = stack.form;
  other.steps = 5;
  EXPECT_NE(stack.program(), RecurrentProgram::get(stack.spec, other));
  RecurrentSpec wider = stack.spec;
  wider.hidden_size = 6;
  EXPECT_NE(stack.program(), RecurrentProgram::get(wider, stack.form));
}

TEST(RecurrentProgram, NamesItsParametersAsTheNetworkDoes) {
  for (const CellInfo& cell : cells()) {
    for (const Case& c : option_cases()) {
      if (!c.applies_to(cell)) continue;
      const RecurrentSpec spec = c.spec(std::string(cell.name));
      Recurrent<float> network(spec);
      const std::vector<ParameterShape> shapes = parameter_shapes(spec);
      ASSERT_EQ(shapes.size(), network.parameters().size());
      for (std::size_t i = 0; i < shapes.size(); ++i) {
        EXPECT_EQ(shapes[i].name, network.parameters()[i].name);
        EXPECT_EQ(shapes[i].shape, network.parameters()[i].shape);
      }
    }
  }
}

TEST(RecurrentProgram, AddsToGradientsWhereTheFormSaysSo) {
  Stack stack;
  stack.program()->forward({}, stack.forward());
  stack.program()->backward({}, stack.backward());
  const std::vector<std::vector<float>> once = stack.gradient_memory;
  stack.form.flags.set(CallFlag::add_gradients);
  stack.program()->forward({}, stack.forward());
  stack.program()->backward({}, stack.backward());
  for (std::size_t i = 0; i < once.size(); ++i) {
    for (std::size_t j = 0; j < once[i].size(); ++j) {
      // Sums of four or eight terms in another order: a few roundings of the largest.
      EXPECT_NEAR(stack.gradient_memory[i][j], 2 * once[i][j], 1e-5) << stack.program()->parameters()[i].name;
    }
  }
}

TEST(RecurrentProgram, DrawsDropoutFromTheSeedOfTheCall) {
  Stack stack(0.5);
  const auto run = [&](std::uint64_t seed) {
    stack.program()->forward({.execution = {}, .stream = nullptr, .seed = seed, .device_seed = nullptr},
                             stack.forward());
    return stack.y;
  };
  const std::vector<float> first = run(1), second = run(2);
  EXPECT_NE(first, second);
  EXPECT_EQ(first, run(1));
}

TEST(RecurrentProgram, BackwardDrawsTheMaskOfForward) {
  // The gradient of x along a direction is the difference of the loss along it, at the same seed.
  Stack stack(0.4);
  const Context context{.execution = {}, .stream = nullptr, .seed = 7, .device_seed = nullptr};
  const auto loss = [&] {
    stack.program()->forward(context, stack.forward());
    double sum = 0.0;
    for (std::size_t i = 0; i < stack.y.size(); ++i) sum += double{stack.y[i]} * double{stack.in.dy[i]};
    return sum;
  };
  loss();
  stack.program()->backward(context, stack.backward());
  const std::vector<float> dx = stack.dx, x = stack.in.x;
  constexpr float step = 1e-2F;
  double slope = 0.0;
  Random random(3);
  std::vector<float> along(x.size());
  for (std::size_t i = 0; i < x.size(); ++i) {
    along[i] = static_cast<float>(random.uniform(-1.0, 1.0));
    slope += double{along[i]} * double{dx[i]};
  }
  const auto moved = [&](float by) {
    for (std::size_t i = 0; i < x.size(); ++i) stack.in.x[i] = x[i] + by * along[i];
    return loss();
  };
  const double difference = (moved(step) - moved(-step)) / (2.0 * double{step});
  EXPECT_NEAR(slope, difference, 1e-3 * (1.0 + std::abs(slope)));  // step^2 of a third derivative near one
}

TEST(RecurrentProgram, AnyNumberOfThreadsCallOne) {
  Stack stack;
  stack.form.flags.set(CallFlag::training, false);
  const auto program = stack.program();
  program->forward({}, stack.forward());
  const std::vector<float> want = stack.y;
  std::vector<std::vector<float>> got(4, std::vector<float>(want.size()));
  std::vector<std::thread> threads;
  for (auto& y : got) {
    threads.emplace_back([&] {
      Poisoned workspace(program->workspace_bytes());
      for (int i = 0; i < 50; ++i) {
        RecurrentProgram::Forward call = stack.forward();
        call.y.data = y.data();
        call.workspace = workspace.memory();
        program->forward({}, call);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (const auto& y : got) EXPECT_TRUE(same_bits(y, want));
}

TEST(RecurrentProgram, PackedWeightsChangeNothing) {
  Stack stack;
  const auto program = stack.program();
  program->forward({}, stack.forward());
  const std::vector<float> y = stack.y;
  program->backward({}, stack.backward());
  const std::vector<float> dx = stack.dx;
  Poisoned forward(program->packed_bytes()), backward(program->packed_bytes(Pass::backward));
  program->pack({}, stack.weights, forward.memory());
  program->pack({}, stack.weights, backward.memory(), Pass::backward);
  RecurrentProgram::Forward there = stack.forward();
  there.packed = forward.memory();
  program->forward({}, there);
  RecurrentProgram::Backward back = stack.backward();
  back.packed = backward.memory();
  program->backward({}, back);
  EXPECT_TRUE(same_bits(stack.y, y));
  EXPECT_TRUE(same_bits(stack.dx, dx));
}

}  // namespace
}  // namespace penstock::test
