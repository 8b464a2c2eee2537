// The text that a derived cell becomes for GPUs: that of some cells word by word, as kept in a file, and the values of
// what is kept there.

#include <gtest/gtest.h>

#include <fstream>
#include <sstream>
#include <string>

#include "base/random.h"
#include "cells/host_cells.h"
#include "custom/cuda_text.h"
#include "custom/trace.h"
#include "oracle/written_cells.h"
#include "support/expect_error.h"

namespace penstock::cells_on_host {

inline double Ratio(double a, double b) { return a / b; }
inline double SubtractProduct(double a, double b, double c) { return c - a * b; }
inline double Most(double a, double b) { return std::max(a, b); }
inline double Less(double a, double b) { return a < b ? 1.0 : 0.0; }
inline double Equal(double a, double b) { return a == b ? 1.0 : 0.0; }

#define PENSTOCK_DEVICE static inline
#include "custom/cuda_texts.txt"

}  // namespace penstock::cells_on_host

namespace penstock::custom {
namespace {

DerivedCell derived(const test::WrittenCell& written) {
  return derive(trace_cell(written.definition, written.equations), "cell", ErrorCode::invalid_argument);
}

std::string written_texts() {
  return "// Written by src/core/custom/cuda_text.cc; test_cuda_text.cc says how to write it anew.\n\n" +
         cuda_text(derived(test::written_lstm()), "WrittenLstm") + "\n" +
         cuda_text(derived(test::written_gru()), "WrittenGru") + "\n" +
         cuda_text(derived(test::written_slstm()), "WrittenSlstm") + "\n" +
         cuda_text(derived(test::written_mingru()), "WrittenMinGru") + "\n" +
         cuda_text(derived(test::written_peephole()), "WrittenPeephole") + "\n" +
         cuda_text(derived(test::written_leaky()), "WrittenLeaky") + "\n" +
         cuda_text(derived(test::written_norm_lstm()), "WrittenNormLstm");
}

/// PENSTOCK_WRITE_CELL_TEXTS=1 writes the file.
TEST(CellText, IsThatOfTheFile) {
  if (std::getenv("PENSTOCK_WRITE_CELL_TEXTS") != nullptr) std::ofstream(PENSTOCK_CUDA_TEXTS) << written_texts();
  std::ostringstream kept;
  kept << std::ifstream(PENSTOCK_CUDA_TEXTS).rdbuf();
  EXPECT_EQ(written_texts(), kept.str());
}

template <class Cell, class Own>
void expect_as_own() {
  static_assert(Cell::gates == Own::gates && Cell::states == Own::states && Cell::phases == Own::phases);
  static_assert(Cell::split_gradients == Own::split_gradients);
  constexpr std::size_t G = Cell::gates, S = Cell::states;
  Random random(7);
  for (int trial = 0; trial < 200; ++trial) {
    SCOPED_TRACE(trial);
    double wx[G], rh[G], prev[S], dnext[S];
    for (std::size_t g = 0; g < G; ++g) wx[g] = random.uniform(-3.0, 3.0), rh[g] = random.uniform(-1.0, 1.0);
    for (std::size_t s = 0; s < S; ++s) prev[s] = random.uniform(-1.0, 1.0), dnext[s] = random.uniform(-1.0, 1.0);
    if (S == 4) prev[2] = trial % 5 == 0 ? 0.0 : random.uniform(1.0, 2.0);  // n of sLSTM; 0 marks an empty state
    double next[2][S], dwx[2][G], drh[2][G], dprev[2][S], save[Cell::saved], own_save[Own::saved];
    Cell::forward(wx, rh, prev, next[0], save);
    Cell::backward(save, prev, dnext, dwx[0], drh[0], dprev[0]);
    Own::forward(wx, rh, prev, next[1], own_save);
    Own::backward(own_save, prev, dnext, dwx[1], drh[1], dprev[1]);
    for (std::size_t s = 0; s < S; ++s) {
      EXPECT_NEAR(next[0][s], next[1][s], 1e-12) << "state " << s;
      EXPECT_NEAR(dprev[0][s], dprev[1][s], 1e-12) << "gradient of state " << s;
    }
    for (std::size_t g = 0; g < G; ++g) {
      EXPECT_NEAR(dwx[0][g], dwx[1][g], 1e-12) << "gradient of W x " << g;
      EXPECT_NEAR(drh[0][g], drh[1][g], 1e-12) << "gradient of R h " << g;
    }
  }
}

TEST(CellText, ComputesTheCell) {
  expect_as_own<cells_on_host::WrittenLstm, cells_on_host::Lstm>();
  expect_as_own<cells_on_host::WrittenGru, cells_on_host::Gru>();
  expect_as_own<cells_on_host::WrittenSlstm, cells_on_host::Slstm>();
}

TEST(CellText, ComputesTheScanCell) {
  using Cell = cells_on_host::WrittenMinGru;
  using Own = cells_on_host::MinGru;
  Random random(8);
  for (int trial = 0; trial < 200; ++trial) {
    const double wx[2] = {random.uniform(-4.0, 4.0), random.uniform(-4.0, 4.0)};
    const double da = random.uniform(-1.0, 1.0), db = random.uniform(-1.0, 1.0);
    double a[2], b[2], dwx[2][2];
    Cell::affine(wx, a[0], b[0]);
    Own::affine(wx, a[1], b[1]);
    Cell::affine_backward(wx, da, db, dwx[0]);
    Own::affine_backward(wx, da, db, dwx[1]);
    EXPECT_NEAR(a[0], a[1], 1e-12);
    EXPECT_NEAR(b[0], b[1], 1e-12);
    for (int g = 0; g < 2; ++g) EXPECT_NEAR(dwx[0][g], dwx[1][g], 1e-12);
  }
}

std::string text_of(const CellEquations& equations) {
  return cuda_text(derived({test::definition_of("text", {"h"}, 2), equations}), "Cell");
}

/// Returns whether the text computes sigmoids with the precision of the storage.
bool is_precise(const CellEquations& equations) {
  return text_of(equations).find("PreciseSigmoid") != std::string::npos;
}

TEST(CellText, ComputesGatesPreciselyWhereSmallOnesMatter) {
  const auto gate = [](const CellSymbols& in, int g) { return sigmoid(in.wx[g] + in.rh[g]); };
  EXPECT_FALSE(is_precise([&](const CellSymbols& in) -> std::vector<CellValue> { return {gate(in, 0) * in.s[0]}; }));
  EXPECT_FALSE(is_precise([&](const CellSymbols& in) -> std::vector<CellValue> { return {gate(in, 0) / 3.0}; }));
  EXPECT_FALSE(is_precise([&](const CellSymbols& in) -> std::vector<CellValue> { return {1.0 / exp(gate(in, 0))}; }));
  EXPECT_TRUE(is_precise([&](const CellSymbols& in) -> std::vector<CellValue> { return {log(gate(in, 0))}; }));
  EXPECT_TRUE(is_precise(
      [&](const CellSymbols& in) -> std::vector<CellValue> { return {gate(in, 0) / (gate(in, 0) + gate(in, 1))}; }));
}

TEST(CellText, WritesConstantsInAllTheirDigits) {
  const std::string text = text_of([](const CellSymbols& in) -> std::vector<CellValue> {
    return {clamp((in.wx[0] + in.rh[0]) * 0.1, -3.4028234e38, 1e-42)};
  });
  EXPECT_NE(text.find("V(0x1.99999ap-4f)"), std::string::npos) << text;
  EXPECT_NE(text.find("V(-0x1.fffffep+127f)"), std::string::npos) << text;
  EXPECT_NE(text.find("V(0x1.65p-140f)"), std::string::npos) << text;
}

/// A choice by W x alone has no gradient, and the cell is no function of W x + R h all the same.
TEST(CellText, SplitsGradientsWhereAChoiceDoes) {
  const auto splits = [](const CellEquations& equations) {
    return derived({test::definition_of("choice", {"h"}, 1), equations}).split_gradients;
  };
  EXPECT_TRUE(splits([](const CellSymbols& in) -> std::vector<CellValue> {
    return {where(less(in.wx[0], 0.0), in.wx[0] + in.rh[0], in.s[0])};
  }));
  EXPECT_TRUE(splits([](const CellSymbols& in) -> std::vector<CellValue> {
    return {where(in.rh[0] * 2.0, in.wx[0] + in.rh[0], in.s[0])};
  }));
  EXPECT_FALSE(splits([](const CellSymbols& in) -> std::vector<CellValue> {
    const CellValue sum = in.wx[0] + in.rh[0];
    return {where(less(sum, in.s[0]), sum, in.s[0])};
  }));
}

/// The gradients of learnt vectors are those that small changes of them make.
TEST(CellText, DifferentiatesByLearntVectors) {
  using Peephole = cells_on_host::WrittenPeephole;
  using Leaky = cells_on_host::WrittenLeaky;
  static_assert(Peephole::learnt == 3 && Leaky::learnt == 2);
  constexpr double change = 1e-6, allowed = 1e-9;
  Random random(9);
  const auto fill = [&](auto& values) {
    for (double& x : values) x = random.uniform(-1.0, 1.0);
  };
  for (int trial = 0; trial < 50; ++trial) {
    double wx[4], rh[4], prev[2], dnext[2], learnt[3], next[2], save[Peephole::saved];
    double dlearnt[3], dwx[4], drh[4], dprev[2];
    fill(wx), fill(rh), fill(prev), fill(dnext), fill(learnt);
    const auto value = [&](int k, double by) {
      double moved[3] = {learnt[0], learnt[1], learnt[2]}, out[2], unused[Peephole::saved];
      moved[k] += by;
      Peephole::forward(wx, rh, prev, moved, out, unused);
      return dnext[0] * out[0] + dnext[1] * out[1];
    };
    Peephole::forward(wx, rh, prev, learnt, next, save);
    Peephole::backward(save, prev, learnt, dnext, dlearnt, dwx, drh, dprev);
    for (int k = 0; k < 3; ++k) EXPECT_NEAR(dlearnt[k], (value(k, change) - value(k, -change)) / (2 * change), allowed);

    double two[2] = {learnt[0], learnt[1]}, gates[2] = {wx[0], wx[1]}, dtwo[2], dgates[2];
    const double da = dnext[0], db = dnext[1];
    const auto terms = [&](int k, double by) {
      double moved[2] = {two[0], two[1]}, a, b;
      moved[k] += by;
      Leaky::affine(gates, moved, a, b);
      return da * a + db * b;
    };
    Leaky::affine_backward(gates, two, da, db, dtwo, dgates);
    for (int k = 0; k < 2; ++k) EXPECT_NEAR(dtwo[k], (terms(k, change) - terms(k, -change)) / (2 * change), allowed);
  }
}

/// The kernels define means, since their threads know each other's units.
TEST(CellText, LeavesMeansToTheKernel) {
  const std::string text = text_of([](const CellSymbols& in) -> std::vector<CellValue> { return {mean(in.rh[0])}; });
  EXPECT_NE(text.find("V m0[] = {rh[0]}, s0[1];\n    head.template average<0, 1>(m0, s0);"), std::string::npos) << text;
  EXPECT_NE(text.find("V m0[] = {dnext[0]}, s0[1];"), std::string::npos) << text;
}

Averages averages(const CellEquations& equations) {
  return averages_of(derived({test::definition_of("averages", {"h"}, 2), equations}));
}

CellValue normal(const CellValue& x) {
  const CellValue centred = x - mean(x);
  return centred / sqrt(mean(centred * centred) + 1e-5);
}

/// A norm has two means, of values and of squares, which are computed at once. So are the two of its gradient, as
/// neither waits for the other.
TEST(CellText, ComputesIndependentMeansAtOnce) {
  const Averages one = averages([](const CellSymbols& in) -> std::vector<CellValue> { return {normal(in.rh[0])}; });
  EXPECT_EQ(one.forward, std::vector{2});
  EXPECT_EQ(one.backward, std::vector{2});
  const Averages two = averages(
      [](const CellSymbols& in) -> std::vector<CellValue> { return {tanh(normal(in.rh[0])) * normal(in.wx[1])}; });
  EXPECT_EQ(two.forward, std::vector{4});
  EXPECT_EQ(two.backward, std::vector{4});
  const Averages chain = averages([](const CellSymbols& in) -> std::vector<CellValue> {
    return {normal(in.wx[1] * tanh(normal(in.rh[0]))) + mean(in.rh[1])};
  });
  EXPECT_EQ(chain.forward, (std::vector{3, 2}));
  EXPECT_EQ(chain.backward, (std::vector{2, 2}));  // the mean of the output's gradient is that of both terms
  const Averages lstm = averages_of(derived(test::written_norm_lstm()));
  EXPECT_EQ(lstm.forward, (std::vector{8, 2}));
  EXPECT_EQ(lstm.backward, (std::vector{4, 6}));
  EXPECT_TRUE(averages_of(derived(test::written_lstm())).forward.empty());
}

}  // namespace
}  // namespace penstock::custom
