// The built-in cells, written as formulas, against their headers: values and gradients in double precision, and
// what their forward passes keep.

#include <gtest/gtest.h>

#include <vector>

#include "base/random.h"
#include "cells/host_cells.h"
#include "custom/trace.h"
#include "oracle/written_cells.h"

namespace penstock::custom {
namespace {

DerivedCell derived(const test::WrittenCell& written) {
  return derive(trace_cell(written.definition, written.equations), "cell", ErrorCode::invalid_argument);
}

void expect_near(const std::vector<double>& got, std::size_t first, const double* want, std::size_t count,
                 const char* what) {
  ASSERT_LE(first + count, got.size());
  for (std::size_t i = 0; i < count; ++i) EXPECT_NEAR(got[first + i], want[i], 1e-12) << what << " " << i;
}

template <class Cell>
void expect_as_dense(const test::WrittenCell& written) {
  constexpr std::size_t G = Cell::gates, S = Cell::states;
  const DerivedCell cell = derived(written);
  EXPECT_EQ(cell.has_kink, Cell::has_kink || written.definition.states.size() == 4);  // sLSTM's max is smooth enough
  EXPECT_EQ(cell.split_gradients, Cell::split_gradients);
  // No more than the headers keep, except that sLSTM also keeps which side of max won; its header derives it from i'.
  EXPECT_LE(cell.kept.size(), static_cast<std::size_t>(Cell::saved) + (S == 4 ? 1 : 0));
  Random random(5);
  for (int trial = 0; trial < 200; ++trial) {
    SCOPED_TRACE(trial);
    double wx[G], rh[G], prev[S], dnext[S], next[S], save[Cell::saved], dwx[G], drh[G], dprev[S];
    for (std::size_t g = 0; g < G; ++g) wx[g] = random.uniform(-3.0, 3.0), rh[g] = random.uniform(-1.0, 1.0);
    for (std::size_t s = 0; s < S; ++s) prev[s] = random.uniform(-1.0, 1.0), dnext[s] = random.uniform(-1.0, 1.0);
    if (S == 4) prev[2] = trial % 5 == 0 ? 0.0 : random.uniform(1.0, 2.0);  // n of sLSTM; 0 marks an empty state
    Cell::forward(wx, rh, prev, next, save);
    Cell::backward(save, prev, dnext, dwx, drh, dprev);
    const auto value = [&](Operation operation, int index) {
      const auto i = static_cast<std::size_t>(index);
      return operation == Operation::input ? wx[i] : operation == Operation::recurrent ? rh[i] : prev[i];
    };
    const std::vector<double> got = run(cell.training, value);
    expect_near(got, 0, next, S, "state");
    const std::vector<double> gradients = run(cell.backward, [&](Operation operation, int index) {
      if (operation == Operation::kept) return got[S + static_cast<std::size_t>(index)];
      return operation == Operation::gradient ? dnext[index] : prev[index];
    });
    expect_near(gradients, 0, dwx, G, "gradient of W x");
    expect_near(gradients, G, drh, G, "gradient of R h");
    expect_near(gradients, 2 * G, dprev, S, "gradient of state");
  }
}

TEST(WrittenCells, AreTheDenseCellsOfTheList) {
  expect_as_dense<cells_on_host::Lstm>(test::written_lstm());
  expect_as_dense<cells_on_host::Gru>(test::written_gru());
  expect_as_dense<cells_on_host::Slstm>(test::written_slstm());
  expect_as_dense<cells_on_host::ElmanRelu>(test::written_elman_relu());
}

TEST(WrittenCells, MinGruIsTheScanCellOfTheList) {
  using Cell = cells_on_host::MinGru;
  const DerivedCell cell = derived(test::written_mingru());
  EXPECT_TRUE(cell.kept.empty());
  Random random(6);
  for (int trial = 0; trial < 200; ++trial) {
    double wx[2] = {random.uniform(-4.0, 4.0), random.uniform(-4.0, 4.0)}, dwx[2], terms[2];
    const double d[2] = {random.uniform(-1.0, 1.0), random.uniform(-1.0, 1.0)};
    Cell::affine(wx, terms[0], terms[1]);
    Cell::affine_backward(wx, d[0], d[1], dwx);
    expect_near(run(cell.forward, [&](Operation, int index) { return wx[index]; }), 0, terms, 2, "term");
    const auto gradients = run(cell.backward, [&](Operation operation, int index) {
      return operation == Operation::gradient ? d[index] : wx[index];
    });
    expect_near(gradients, 0, dwx, 2, "gradient");
  }
}

TEST(WrittenCells, ShareSubexpressionsAndFoldConstants) {
  const auto count = [](const CellEquations& equations) {
    return trace_cell(test::definition_of("shared", {"h"}, 1), equations).graph.size();
  };
  const int once = count([](const CellSymbols& in) -> std::vector<CellValue> { return {tanh(in.wx[0])}; });
  EXPECT_EQ(count([](const CellSymbols& in) -> std::vector<CellValue> {
              const CellValue a = tanh(in.wx[0] * 1.0), b = tanh(0.0 + in.wx[0]) / 1.0;
              return {where(in.wx[0], a, b)};
            }),
            once + 2);  // the constants 1 and 0
  EXPECT_EQ(count([](const CellSymbols& in) -> std::vector<CellValue> { return {in.wx[0] * exp(CellValue(0.0))}; }),
            once);
}

TEST(WrittenCells, RefuseWrongEquationsInWords) {
  const auto message = [](CellDefinition definition, const CellEquations& equations) -> std::string {
    try {
      trace_cell(definition, equations);
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::invalid_argument);
      return error.what();
    }
    return "accepted";
  };
  const auto one = [](const CellSymbols& in) -> std::vector<CellValue> { return {in.wx[0]}; };
  EXPECT_EQ(message(test::definition_of("two", {"h", "c"}, 1), one),
            "cell \"two\": the cell returns 1 values and has 2 states (h, c): return one value for each state, the "
            "output first");
  EXPECT_EQ(message(test::definition_of("Two", {"h"}, 1), one),
            "cell \"Two\": name must be 1 to 64 characters a-z, 0-9, '-' and '_' and begin with a letter, not \"Two\"");
  EXPECT_EQ(message(test::definition_of("many", {"h"}, 6), one),
            "cell \"many\": gates must be 1 to 5 for a dense cell, not 6");
  CellDefinition scan = test::definition_of("s", {"h"}, 1);
  scan.scan = true;
  EXPECT_EQ(message(scan, one), "cell \"s\": a scan cell returns 2 values, a and b of h' = a h + b, not 1");
  scan.learnt.resize(17, {"p", 0.0});
  EXPECT_EQ(message(scan, one), "cell \"s\": learnt vectors must be at most 16, not 17");
  CellDefinition twice = test::definition_of("twice", {"h", "h"}, 1);
  EXPECT_NE(message(twice, one).find("states[1] is called \"h\", as another"), std::string::npos);
  EXPECT_NE(message(test::definition_of("deep", {"h"}, 1),
                    [](const CellSymbols& in) -> std::vector<CellValue> {
                      CellValue x = in.wx[0];
                      for (int i = 0; i < 300; ++i) x = tanh(x);
                      return {x};
                    })
                .find("nested at most 256 deep, not 300"),
            std::string::npos);
  EXPECT_NE(
      message(test::definition_of("endless", {"h"}, 1),
              [](const CellSymbols& in) -> std::vector<CellValue> { return {in.wx[0] / 0.0 * (CellValue(1.0) / 0.0)}; })
          .find("a constant of a cell must be finite"),
      std::string::npos);
  const auto with_large = [](const CellSymbols& in) -> std::vector<CellValue> { return {in.wx[0] * -1e39}; };
  EXPECT_NE(message(test::definition_of("large", {"h"}, 1), with_large)
                .find("a constant of a cell must be finite in 32 bits (3.4e38 at most), not -1e+39"),
            std::string::npos);
  CellDefinition initial = test::definition_of("initial", {"h"}, 1);
  initial.learnt = {{"bias", 3.5e38}};
  EXPECT_EQ(message(initial, one),
            "cell \"initial\": the initial value of learnt vector \"bias\" must be finite in 32 bits (3.4e38 at most), "
            "not 3.5e+38");
}

/// What no float holds is computed in each step and not written into files, which have floats alone.
TEST(WrittenCells, ConstantsBeyondFloatsAreNotFolded) {
  ExpressionGraph graph;
  const NodeId large = graph.constant(1e30);
  EXPECT_EQ(graph[graph.make(Operation::multiply, large, large)].operation, Operation::multiply);
  EXPECT_EQ(graph[graph.make(Operation::divide, large, large)].value, 1.0);
}

}  // namespace
}  // namespace penstock::custom
