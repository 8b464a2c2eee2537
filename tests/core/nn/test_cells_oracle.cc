// Values and all gradients of every cell against the oracle, over the shared cases.

#include "nn/check_cell.h"
#include "penstock/system.h"

namespace penstock::test {
namespace {

class CellsAgainstOracle : public CellTest {};

TEST(Cells, TheOracleKnowsTheWholeList) {
  ASSERT_EQ(cells().size(), oracle::cells<double>().size());
  for (const CellInfo& cell : cells()) {
    const auto& known = oracle::find_cell<double>(std::string(cell.name));
    EXPECT_EQ(cell.gates, known.gates) << cell.name;
    EXPECT_EQ(cell.states, known.states) << cell.name;
    EXPECT_EQ(cell.scan, known.scan) << cell.name;
    EXPECT_FALSE(cell.description.empty()) << cell.name;
  }
}

TEST_P(CellsAgainstOracle, ShapesInDouble) {
  for (const Case& c : shape_cases()) check_cell<double>(info(), c);
}

TEST_P(CellsAgainstOracle, ShapesInFloat) {
  for (const Case& c : shape_cases()) check_cell<float>(info(), c);
}

TEST_P(CellsAgainstOracle, OptionsInDouble) {
  for (const Case& c : option_cases()) check_cell<double>(info(), c);
}

TEST_P(CellsAgainstOracle, OptionsInFloat) {
  for (const Case& c : option_cases()) check_cell<float>(info(), c);
}

TEST_P(CellsAgainstOracle, LimitedGradientsAndEveryState) {
  for (const Case& c : gradient_cases()) {
    check_cell<double>(info(), c);
    check_cell<float>(info(), c);
  }
}

TEST_P(CellsAgainstOracle, RowsThatFillTiles) {
  for (const Case& c : tile_cases()) check_cell<float>(info(), c);
}

TEST_P(CellsAgainstOracle, Layouts) {
  for (const Case& c : layout_cases()) check_cell<double>(info(), c);
}

TEST_P(CellsAgainstOracle, ChunksOfAScan) {
  if (!info().scan) GTEST_SKIP() << "knows sequential only";
  for (const Case& c : chunk_cases()) {
    check_cell<double>(info(), c);
    check_cell<float>(info(), c);
  }
}

TEST_P(CellsAgainstOracle, VeryLongSequences) {
  // Units that remember a hundred steps (scan cells: thousands) beside units that forget at once.
  const double bias_scale = info().scan ? 9.0 : 2.0;
  const Case c{.name = "65537_steps", .input = 1, .hidden = 2, .rows = 1, .steps = 65537, .bias_scale = bias_scale};
  check_cell<float>(info(), c);
}

TEST_P(CellsAgainstOracle, GatesFarOpenAndFarShut) {
  // Logits of up to +-120, where exp overflows float and 1 - sigmoid is 0: finite, and right.
  const Case c{.name = "saturated", .hidden = 17, .rows = 2, .steps = 7, .bias_scale = 60.0};
  check_cell<double>(info(), c);
  check_cell<float>(info(), c);
}

template <class Real>
void expect_nan_gets_through(const std::string& cell) {
  const Case c{.name = "nan", .input = 3, .hidden = 5, .rows = 1, .steps = 2, .state = false};
  Recurrent<Real> network = make_network<Real>(cell, c);
  Inputs<Real> in = make_inputs(network, c);
  in.x[0] = std::numeric_limits<Real>::quiet_NaN();
  const std::vector<Real> y = run(network, in).y;
  for (Index j = 0; j < c.hidden; ++j) EXPECT_TRUE(std::isnan(y[j])) << "unit " << j;
}

TEST_P(CellsAgainstOracle, NanGetsThrough) {
  expect_nan_gets_through<double>(cell());
  expect_nan_gets_through<float>(cell());
}

TEST_P(CellsAgainstOracle, EveryInstructionSet) {
  const std::string in_use = system_info().isa;
  const Case c{.name = "isa", .input = 17, .hidden = 33, .layers = 2, .rows = 5, .steps = 9};
  const Case narrow{.name = "narrow", .input = 17, .hidden = 42, .heads = 21, .layers = 2, .rows = 5, .steps = 9};
  for (const std::string& isa : system_info().isas) {
    SCOPED_TRACE(isa);
    select_isa(isa);
    EXPECT_EQ(system_info().isa, isa);
    check_cell<double>(info(), c);
    check_cell<float>(info(), c);
    if (narrow.applies_to(info())) check_cell<float>(info(), narrow);
    check_cell<float>(info(), everything());
  }
  select_isa(in_use);
}

INSTANTIATE_TEST_SUITE_P(Each, CellsAgainstOracle, testing::ValuesIn(cell_names()), test_name);

}  // namespace
}  // namespace penstock::test
