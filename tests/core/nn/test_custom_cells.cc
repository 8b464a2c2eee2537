// Cells that a program defines, in the engines: the built-in cells, written as formulas, against themselves, and
// random cells against double precision and finite differences.

#include "custom/random_cell.h"
#include "nn/check_cell.h"
#include "oracle/written_cells.h"
#include "penstock/system.h"
#include "plan/custom_cells.h"
#include "support/allocations.h"

namespace penstock::test {
namespace {

template <class Real>
void expect_close(const std::string& what, const std::vector<Real>& got, const std::vector<double>& want,
                  double allowed) {
  ASSERT_EQ(got.size(), want.size()) << what;
  double largest = 1.0;
  for (const double x : want) largest = std::max(largest, std::abs(x));
  for (std::size_t i = 0; i < want.size(); ++i) {
    ASSERT_NEAR(got[i], want[i], allowed * largest) << what << " " << i;
  }
}

template <class Got, class Want>
void expect_same(const Outputs<Got>& got, const Outputs<Want>& want, double allowed) {
  expect_close("y", got.y, widen(want.y), allowed);
  expect_close("state_out", got.state_out, widen(want.state_out), allowed);
  expect_close("dx", got.dx, widen(want.dx), allowed);
  expect_close("dstate_in", got.dstate_in, widen(want.dstate_in), allowed);
  expect_close("states", got.states, widen(want.states), allowed);
  ASSERT_EQ(got.gradients.size(), want.gradients.size());
  for (std::size_t i = 0; i < want.gradients.size(); ++i) {
    expect_close(got.gradients[i].first, got.gradients[i].second, widen(want.gradients[i].second), allowed);
  }
}

std::string defined(const WrittenCell& written) {
  return std::string(define_cell(written.definition, written.equations).name);
}

/// A cell of the library and the same, written.
struct Pair {
  std::string own;
  std::string written;
};

std::vector<Pair> pairs() {
  return {{"lstm", defined(written_lstm())},
          {"gru", defined(written_gru())},
          {"slstm", defined(written_slstm())},
          {"elman-relu", defined(written_elman_relu())},
          {"mingru", defined(written_mingru())}};
}

template <class Real>
void expect_as_own(const Pair& pair, const Case& c) {
  SCOPED_TRACE(testing::Message() << pair.written << ", " << c.name << (sizeof(Real) == 4 ? ", float" : ", double"));
  Recurrent<Real> own = make_network<Real>(pair.own, c), written = make_network<Real>(pair.written, c);
  const Inputs<Real> in = make_inputs(own, c);
  for (const Execution& execution : executions(find_cell(pair.own))) {
    expect_same(run(written, in, execution), run(own, in, execution), sizeof(Real) == 4 ? 1e-4 : 1e-11);
  }
}

template <class Real>
void expect_all_as_own(const std::vector<Case>& cases) {
  for (const Pair& pair : pairs()) {
    for (const Case& c : cases) {
      if (c.applies_to(find_cell(pair.own))) expect_as_own<Real>(pair, c);
    }
  }
}

TEST(CustomCells, AreTheLibrarysWhereTheirEquationsAre) {
  for (const auto& cases : {shape_cases(), option_cases(), tile_cases()}) expect_all_as_own<float>(cases);
  expect_all_as_own<double>(option_cases());
}

TEST(CustomCells, ScanInChunks) {
  for (const Case& c : chunk_cases()) expect_as_own<float>({"mingru", defined(written_mingru())}, c);
}

TEST(CustomCells, RunWithEveryInstructionSet) {
  const std::string in_use = system_info().isa;
  const Case c{.name = "isa", .input = 17, .hidden = 33, .layers = 2, .rows = 5, .steps = 9};
  for (const std::string& isa : system_info().isas) {
    SCOPED_TRACE(isa);
    select_isa(isa);
    for (const Pair& pair : pairs()) expect_as_own<float>(pair, c);
  }
  select_isa(in_use);
}

template <class Real>
std::vector<Real> steps_of(const Recurrent<Real>& network, const Inputs<Real>& in) {
  const Index inputs = network.spec().input_size, hidden = network.spec().hidden_size;
  std::vector<Real> state(network.state_size()), y(hidden), all;
  for (Index t = 0; t < in.steps; ++t) {
    network.step(1, in.x.data() + t * inputs, y.data(), state.data());
    all.insert(all.end(), y.begin(), y.end());
  }
  return all;
}

TEST(CustomCells, StepAsTheyRun) {
  std::vector<std::string> names = {defined(written_peephole()), defined(written_leaky()), defined(written_norm_lstm()),
                                    defined(written_leaky_lstm())};
  for (const Pair& pair : pairs()) names.push_back(pair.written);
  for (const std::string& name : names) {
    for (const auto& [hidden, heads] : {std::pair{3, 1}, {8, 1}, {16, 1}, {40, 1}, {38, 19}, {40, 10}}) {
      if (heads > 1 && find_cell(name).scan) continue;
      SCOPED_TRACE(testing::Message() << name << ", " << hidden << ", " << heads);
      const Case c{
          .name = "steps", .input = 5, .hidden = hidden, .heads = heads, .rows = 1, .steps = 6, .state = false};
      Recurrent<float> network = make_network<float>(name, c);
      const Inputs<float> in = make_inputs(network, c);
      expect_close("y", steps_of(network, in), widen(run(network, in).y), 1e-5);
    }
  }
}

TEST(CustomCells, StepsAllocateNothing) {
  for (const std::string& name : {defined(written_peephole()), defined(written_mingru()), defined(written_leaky()),
                                  defined(written_norm_lstm())}) {
    const Case c{.name = "steps", .input = 5, .hidden = 70, .rows = 1, .steps = 1, .state = false};
    Recurrent<float> network = make_network<float>(name, c);
    std::vector<float> x(5), y(70), state(network.state_size());
    network.step(1, x.data(), y.data(), state.data());
    const long before = allocations;
    for (int i = 0; i < 10; ++i) network.step(1, x.data(), y.data(), state.data());
    EXPECT_EQ(allocations, before) << name;
  }
}

/// f(x) of many x at once, by a cell h = f(W x) whose W is 1.
std::vector<float> of_cell(const std::string& name, const std::function<CellValue(CellValue)>& f,
                           const std::vector<float>& x) {
  CellDefinition definition = definition_of("function-" + name, {"h"}, 1);
  define_cell(definition, [&](const CellSymbols& in) -> std::vector<CellValue> { return {f(in.wx[0])}; });
  const auto count = static_cast<Index>(x.size());
  Recurrent<float> network({.cell = definition.name, .input_size = 1, .hidden_size = 1});
  for (auto& parameter : network.parameters()) {
    std::ranges::fill(parameter.value, parameter.name == "weight_ih_l0" ? 1.0f : 0.0f);
  }
  network.weights_changed();
  std::vector<float> y(x.size());
  network.forward({.rows = count, .steps = 1}, {x.data(), 1, 1}, {y.data(), 1, 1}, nullptr, nullptr);
  return y;
}

TEST(CustomCells, FunctionsAreAccurate) {
  struct Function {
    std::string name;
    std::function<CellValue(CellValue)> of_symbol;
    double (*of_number)(double);
    float low, high;
  };
  const Function functions[] = {
      {"log", [](CellValue x) { return log(x); }, [](double x) { return std::log(x); }, 1e-30f, 1e30f},
      {"sin", [](CellValue x) { return sin(x); }, [](double x) { return std::sin(x); }, -100.0f, 100.0f},
      {"cos", [](CellValue x) { return cos(x); }, [](double x) { return std::cos(x); }, -1e6f, 1e6f},
      {"erf", [](CellValue x) { return erf(x); }, [](double x) { return std::erf(x); }, -5.0f, 5.0f},
      {"sqrt", [](CellValue x) { return sqrt(x); }, [](double x) { return std::sqrt(x); }, 0.0f, 1e10f},
      {"gelu", [](CellValue x) { return gelu(x); }, [](double x) { return x * std::erfc(-x * std::sqrt(0.5)) / 2; },
       -3.0f, 30.0f},
  };
  Random random(21);
  for (const Function& f : functions) {
    std::vector<float> x;
    for (int i = 0; i < 4000; ++i) {
      const bool spread = f.name == "log";  // evenly over its exponents
      const double at = spread ? std::exp(random.uniform(std::log(double{f.low}), std::log(double{f.high})))
                               : random.uniform(double{f.low}, double{f.high});
      x.push_back(static_cast<float>(at));
    }
    const std::vector<float> y = of_cell(f.name, f.of_symbol, x);
    for (std::size_t i = 0; i < x.size(); ++i) {
      const double want = f.of_number(x[i]);
      ASSERT_NEAR(y[i], want, 1e-6 * std::max(1.0, std::abs(want))) << f.name << "(" << x[i] << ")";
    }
  }
}

TEST(CustomCells, FunctionsAtTheEndsOfFloats) {
  const float infinity = std::numeric_limits<float>::infinity(), nan = std::numeric_limits<float>::quiet_NaN();
  const std::vector<float> x = {0.0f, -1.0f, infinity, -infinity, nan, 1e-40f};
  const std::vector<float> log_x = of_cell(
      "log", [](CellValue v) { return log(v); }, x);
  EXPECT_EQ(log_x[0], -infinity);
  EXPECT_TRUE(std::isnan(log_x[1]));
  EXPECT_EQ(log_x[2], infinity);
  EXPECT_TRUE(std::isnan(log_x[4]));
  const std::vector<float> sin_x = of_cell(
      "sin", [](CellValue v) { return sin(v); }, x);
  EXPECT_TRUE(std::isnan(sin_x[2]) && std::isnan(sin_x[4]));
  const std::vector<float> erf_x = of_cell(
      "erf", [](CellValue v) { return erf(v); }, x);
  EXPECT_EQ(erf_x[2], 1.0f);
  EXPECT_EQ(erf_x[3], -1.0f);
  EXPECT_TRUE(std::isnan(erf_x[4]));
  const std::vector<float> least = of_cell(
      "least", [](CellValue v) { return min(0.5, v); }, x);
  EXPECT_TRUE(std::isnan(least[4]));
  EXPECT_EQ(least[1], -1.0f);
}

/// The slope of sum(y dy) in some values of the network.
void expect_slopes(Recurrent<double>& network, const Inputs<double>& in) {
  const Outputs<double> out = run(network, in);
  const auto loss = [&] {
    const std::vector<double> y = run(network, in).y;
    double sum = 0;
    for (std::size_t i = 0; i < y.size(); ++i) sum += y[i] * in.dy[i];
    return sum;
  };
  for (std::size_t p = 0; p < out.gradients.size(); ++p) {
    const std::span<double> values = network.parameters()[p].value;
    for (const std::size_t i : {std::size_t{0}, values.size() / 2, values.size() - 1}) {
      const double before = values[i], h = 1e-5;
      values[i] = before + h, network.weights_changed();
      const double above = loss();
      values[i] = before - h, network.weights_changed();
      const double below = loss();
      values[i] = before, network.weights_changed();
      const double slope = (above - below) / (2 * h);
      EXPECT_NEAR(out.gradients[p].second[i], slope, 1e-6 * (1 + std::abs(slope)))
          << out.gradients[p].first << " " << i;
    }
  }
}

TEST(CustomCells, WithLearntVectorsHaveTheSlopesOfTheirLoss) {
  const Case c{
      .name = "slopes", .input = 3, .hidden = 6, .heads = 2, .layers = 2, .rows = 3, .steps = 5, .state = false};
  Recurrent<double> network = make_network<double>(defined(written_peephole()), c);
  EXPECT_EQ(network.parameter("bias_ih_l0").shape, (std::vector<Index>{(4 + 3) * 6}));
  expect_slopes(network, make_inputs(network, c));
}

/// The inputs of one network in another type.
Inputs<float> narrowed(const Inputs<double>& in) {
  const auto narrow = [](const std::vector<double>& values) {
    return std::vector<float>(values.begin(), values.end());
  };
  return {.rows = in.rows, .steps = in.steps, .x = narrow(in.x), .dy = narrow(in.dy)};
}

TEST(CustomCells, MeansOverUnitsHaveTheSlopesOfTheirLoss) {
  for (const auto& [heads, form] : {std::pair{1, RowForm::full}, {3, RowForm::packed}}) {
    SCOPED_TRACE(heads);
    const Case c{.name = "slopes",
                 .input = 3,
                 .hidden = 15,
                 .heads = heads,
                 .direction = Direction::bidirectional,
                 .rows = 3,
                 .steps = 5,
                 .form = form,
                 .state = false};
    Recurrent<double> network = make_network<double>(defined(written_norm_lstm()), c);
    expect_slopes(network, make_inputs(network, c));
  }
}

TEST(CustomCells, MeansOverUnitsAreThoseInDouble) {
  const std::string in_use = system_info().isa, name = defined(written_norm_lstm());
  for (const std::string& isa : system_info().isas) {
    select_isa(isa);
    for (const auto& [hidden, heads] : {std::pair{1, 1}, {7, 1}, {16, 1}, {33, 1}, {130, 1}, {40, 5}, {36, 9}}) {
      for (const Index steps : {1, 9}) {
        SCOPED_TRACE(testing::Message() << isa << ", " << hidden << ", " << heads << ", " << steps);
        const Case c{
            .name = "means", .input = 5, .hidden = hidden, .heads = heads, .rows = 6, .steps = steps, .state = false};
        Recurrent<double> wide = make_network<double>(name, c);
        Recurrent<float> narrow = make_network<float>(name, c);
        for (std::size_t p = 0; p < wide.parameters().size(); ++p) {
          std::ranges::copy(narrow.parameters()[p].value, wide.parameters()[p].value.begin());
        }
        wide.weights_changed();
        const Inputs<double> in = make_inputs(wide, c);
        for (const Execution& execution : executions(find_cell(name))) {
          expect_same(run(narrow, narrowed(in), execution), run(wide, in), 5e-4);
        }
      }
    }
  }
  select_isa(in_use);
}

/// Several threads run a chunk of a sequence, whose parts of the gradients are summed.
TEST(CustomCells, ScanCellsWithLearntVectorsHaveTheSlopesOfTheirLoss) {
  for (Case c : chunk_cases()) {
    SCOPED_TRACE(c.name);
    c.state = false;  // the loss is of outputs alone
    const auto name = defined(written_leaky());
    Recurrent<double> network = make_network<double>(name, c);
    EXPECT_EQ(network.parameter("bias_ih_l0").value.size(), static_cast<std::size_t>((2 + 2) * c.hidden));
    const Inputs<double> in = make_inputs(network, c);
    expect_slopes(network, in);
    const Outputs<double> want = run(network, in);
    for (const Execution& execution : executions(find_cell(name)))
      expect_same(run(network, in, execution), want, 1e-11);
  }
}

TEST(CustomCells, StartWithTheInitialValuesOfLearntVectors) {
  const Recurrent<float> network({.cell = defined(written_peephole()), .input_size = 2, .hidden_size = 3});
  for (const auto& parameter : network.parameters()) {
    if (parameter.name != "bias_ih_l0") continue;
    const std::vector<float> learnt(parameter.value.begin() + 12, parameter.value.end());
    EXPECT_EQ(learnt, (std::vector<float>{0.1f, 0.1f, 0.1f, 0.0f, 0.0f, 0.0f, -0.2f, -0.2f, -0.2f}));
  }
}

std::string random_name(int trial, bool smooth) { return (smooth ? "smooth-" : "random-") + std::to_string(trial); }

std::string define_random(Random& random, int trial, bool smooth) {
  custom::CustomCell cell = random_cell(random, trial % 4 == 3, smooth);
  cell.name = random_name(trial, smooth);
  return std::string(plan::add_custom_cell(std::move(cell), "cell", ErrorCode::invalid_argument).info.name);
}

TEST(CustomCells, ThousandRandomOnesInFloatAreThoseInDouble) {
  Random random(11);
  std::size_t compared = 0, others = 0;  // values of cells with jumps
  for (int trial = 0; trial < 1000; ++trial) {
    SCOPED_TRACE(trial);
    const bool smooth = trial % 3 != 0;
    const std::string name = define_random(random, trial, smooth);
    const Case c{
        .name = "random", .input = 3, .hidden = 1 + trial % 37, .rows = 1 + trial % 9, .steps = 3, .state = false};
    Recurrent<double> wide = make_network<double>(name, c);
    Recurrent<float> narrow = make_network<float>(name, c);
    for (std::size_t p = 0; p < wide.parameters().size(); ++p) {
      std::ranges::copy(narrow.parameters()[p].value, wide.parameters()[p].value.begin());
    }
    wide.weights_changed();
    Inputs<double> in = make_inputs(wide, c);
    for (auto* values : {&in.x, &in.dy}) {
      for (double& x : *values) x = static_cast<double>(static_cast<float>(x));
    }
    const Outputs<double> want = run(wide, in);
    const Outputs<float> got = run(narrow, narrowed(in));
    if (smooth) {
      expect_same(got, want, 2e-4);
      continue;
    }
    // Beside a jump, rounding decides on which side a value is.
    for (std::size_t i = 0; i < want.y.size(); ++i) others += std::abs(got.y[i] - want.y[i]) > 2e-3;
    compared += want.y.size();
  }
  EXPECT_GT(compared, 5000u);
  EXPECT_LT(others, compared / 1000);
}

TEST(CustomCells, RandomOnesHaveTheSlopesOfTheirLoss) {
  Random random(12);
  for (int trial = 0; trial < 60; ++trial) {
    SCOPED_TRACE(trial);
    const std::string name = define_random(random, 5000 + trial, true);
    const Case c{.name = "slopes", .input = 2, .hidden = 3, .rows = 2, .steps = 3, .state = false};
    Recurrent<double> network = make_network<double>(name, c);
    expect_slopes(network, make_inputs(network, c));
  }
}

template <class Call>
std::string refusal(ErrorCode code, const Call& call) {
  try {
    call();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), code) << error.what();
    return error.what();
  }
  return "accepted";
}

TEST(CustomCells, AreRefusedInWordsWhereTheyCannotRun) {
  const std::string name = defined(written_peephole());
  EXPECT_EQ(
      refusal(ErrorCode::invalid_argument,
              [&] { Recurrent<float>({.cell = name, .input_size = 1, .hidden_size = 1, .bias = Bias::none}); }),
      "bias must be single or both for cell written-peephole, whose learnt vectors stand behind bias_ih, not none");
  const Case c{.name = "bf16", .input = 3, .hidden = 4, .rows = 2, .steps = 2, .state = false};
  Recurrent<float> network = make_network<float>(name, c);
  const Inputs<float> in = make_inputs(network, c);
  EXPECT_EQ(refusal(ErrorCode::unsupported, [&] { run(network, in, {.precision = Precision::bf16}); }),
            "precision must be full for cell written-peephole, whose equations a program defined, not bf16");
}

}  // namespace
}  // namespace penstock::test
