// One wrong weight anywhere must be noticed, and right weights must pass: the comparison is what every time stands on.

#include <gtest/gtest.h>

#include <cstdlib>

#include "bench/contenders/contender.h"
#include "bench/contenders/onednn.h"
#include "penstock/system.h"
#include "support/expect_error.h"
#include "support/names.h"

namespace penstock::bench {
namespace {

using test::expect_error;

/// PENSTOCK_BENCH_FAULT for as long as it lives.
class Fault {
 public:
  Fault(const std::string& name, Index weight) {
    setenv("PENSTOCK_BENCH_FAULT", (name + ":" + std::to_string(weight)).c_str(), 1);
  }
  ~Fault() { unsetenv("PENSTOCK_BENCH_FAULT"); }
  Fault(const Fault&) = delete;
  Fault& operator=(const Fault&) = delete;
};

using Maker = std::unique_ptr<Contender> (*)(const Problem&);

std::unique_ptr<Contender> penstock(const Problem& problem) { return make_ours("penstock", problem); }

Index weight_count(const Problem& problem) {
  Index count = 0;
  for (const Array& array : problem.weights) count += static_cast<Index>(array.values.size());
  return count;
}

/// Biases of sLSTM's input gate scale c and n alike and so leave h = o c / n as it is.
bool is_without_effect(const Problem& problem, Index weight) {
  for (const Array& array : problem.weights) {
    const auto size = static_cast<Index>(array.values.size());
    if (weight < size) {
      return problem.test.cell == "slstm" && array.name.starts_with("bias") && weight < problem.test.shape.hidden;
    }
    weight -= size;
  }
  return false;
}

/// Right as it is; wrong with any one weight wrong, also after timing.
void expect_every_fault_noticed(const Case& c, const std::string& name, Maker make) {
  SCOPED_TRACE(name + " " + c.label());
  const Problem problem = make_problem(c, 3);
  const Answers<double> want = solve(problem);
  {
    const auto contender = make(problem);
    const Verdict checked = judge(problem, want, contender->check(), Extent::all);
    EXPECT_TRUE(checked.right) << checked.complaint;
    EXPECT_FALSE(contender->sample(1e-5).empty());
    const Verdict timed = judge(problem, want, contender->last(), Extent::without_weights);
    EXPECT_TRUE(timed.right) << timed.complaint;
  }
  for (Index weight = 0; weight < weight_count(problem); ++weight) {
    if (is_without_effect(problem, weight)) continue;
    const Fault fault(name, weight);
    const auto contender = make(problem);
    EXPECT_FALSE(judge(problem, want, contender->check(), Extent::all).right) << "weight " << weight;
    contender->sample(1e-5);
    EXPECT_FALSE(judge(problem, want, contender->last(), Extent::without_weights).right) << "weight " << weight;
  }
}

class Faults : public testing::TestWithParam<std::string> {};

TEST_P(Faults, OfOneWeightAreNoticed) {
  for (const Pass pass : {Pass::forward, Pass::training, Pass::step}) {
    expect_every_fault_noticed({.cell = GetParam(), .shape = {2, 40, 3, 5}, .pass = pass}, "penstock", penstock);
  }
}

TEST_P(Faults, OfOneDnnAreNoticed) {
  for (const Pass pass : {Pass::forward, Pass::training, Pass::step}) {
    const Case c{.cell = GetParam(), .shape = {2, 40, 3, 5}, .pass = pass};
    try {
      make_onednn(make_problem(c, 3));
    } catch (const NotOffered&) {
      GTEST_SKIP() << "oneDNN has no " << GetParam();
    }
    expect_every_fault_noticed(c, "onednn", make_onednn);
  }
}

TEST_P(Faults, EveryWayOfOursIsRight) {
  const Problem problem = make_problem({.cell = GetParam(), .shape = {3, 70, 5, 17}}, 3);
  const Answers<double> want = solve(problem);
  for (const char* name : {"penstock", "penstock-sequential", "penstock-scan", "penstock-loop"}) {
    try {
      const Verdict verdict = judge(problem, want, make_ours(name, problem)->check(), Extent::all);
      EXPECT_TRUE(verdict.right) << name << ": " << verdict.complaint;
    } catch (const NotOffered& why) {
      EXPECT_EQ(std::string(name), "penstock-scan") << why.reason;
    }
  }
}

TEST_P(Faults, EveryInstructionSetIsRight) {
  const std::string in_use = system_info().isa;
  const Problem problem = make_problem({.cell = GetParam(), .shape = {3, 9, 17, 33}, .pass = Pass::training}, 3);
  const Answers<double> want = solve(problem);
  for (const std::string& isa : system_info().isas) {
    select_isa(isa);
    const Verdict verdict = judge(problem, want, make_ours("penstock", problem)->check(), Extent::all);
    EXPECT_TRUE(verdict.right) << isa << ": " << verdict.complaint;
  }
  select_isa(in_use);
}

std::vector<std::string> cell_names() {
  std::vector<std::string> names;
  for (const CellInfo& cell : cells()) names.emplace_back(cell.name);
  return names;
}

INSTANTIATE_TEST_SUITE_P(Cells, Faults, testing::ValuesIn(cell_names()), test::test_name);

TEST(Fault, BeforeAHeadIsNoticedBehindIt) {
  for (const char* cell : {"lstm", "gru"}) {
    for (const Index hidden : {8, 17}) {
      expect_every_fault_noticed({.cell = cell, .shape = {1, 64, 1, hidden}, .pass = Pass::step}, "penstock", penstock);
    }
  }
}

TEST(Fault, OfATermOfAScanIsNoticed) {
  for (const char* cell : {"scan", "scan-log"}) {
    for (const Pass pass : {Pass::forward, Pass::training}) {
      for (const char* name : {"penstock", "penstock-sequential", "penstock-scan"}) {
        const Case c{.cell = cell, .shape = {2, 70, 3, 3}, .pass = pass};
        const Problem problem = make_problem(c, 3);
        const Answers<double> want = solve(problem);
        const Verdict right = judge(problem, want, make_ours(name, problem)->check(), Extent::all);
        EXPECT_TRUE(right.right) << c.label() << ": " << right.complaint;
        for (Index term = 3; term < weight_count(problem); ++term) {  // the first steps of a multiply a state of zero
          if (term % 210 < 3) continue;
          const Fault fault(name, term);
          EXPECT_FALSE(judge(problem, want, make_ours(name, problem)->check(), Extent::all).right) << term;
        }
      }
    }
  }
}

TEST(Fault, BeyondTheLastWeightIsAnError) {
  const Problem problem = make_problem({.cell = "mingru", .shape = {1, 2, 1, 1}}, 1);
  EXPECT_EQ(weight_count(problem), 4);
  const Fault fault("penstock", 4);
  expect_error(ErrorCode::invalid_argument, "there are not as many weights", [&] { penstock(problem); });
  EXPECT_NO_THROW(make_ours("penstock-loop", problem)) << "the fault is somebody else's";
}

}  // namespace
}  // namespace penstock::bench
