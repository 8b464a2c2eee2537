// Tables with a caller's choices.

#include <gmock/gmock.h>

#include "bench/suite/report.h"
#include "bench/suite/suite.h"
#include "bench/suite/tables.h"
#include "penstock/system.h"
#include "support/expect_error.h"

namespace penstock::bench {
namespace {

using test::expect_error;

constexpr ErrorCode misuse = ErrorCode::invalid_argument;

TEST(Shapes, AreReadAndWritten) {
  const Shape shape = parse_shape("16x200x3x256");
  EXPECT_EQ(to_string(shape), "16x200x3x256");
  EXPECT_EQ(parse_shape("1x2x3x12x4"), (Shape{1, 2, 3, 12, 4}));
  EXPECT_EQ(to_string(parse_shape("1x2x3x12x4")), "1x2x3x12x4");
  for (const char* text : {"", "1", "1x2x3", "1x2x3x", "1x2x3x4x", "1x2x3x4x5x6", "1x2x3x4x0", "0x1x1x1", "1x-2x3x4",
                           "1x2x3xa", " 1x2x3x4", "1x2x3x99999999999999999999", "1,2,3,4"}) {
    expect_error(misuse, "shapes must be BxTxIxH", [&] { parse_shape(text); });
  }
}

TEST(Passes, AreReadAndWritten) {
  for (const char* name : {"forward", "training", "step"}) EXPECT_EQ(to_string(parse_pass(name)), name);
  expect_error(misuse, "passes must be among", [] { parse_pass("backward"); });
}

TEST(Tables, CaseLists) {
  const auto layer =
      cases(find_table("layer"), {.cells = {}, .shapes = {}, .passes = {}, .dtypes = {}, .threads = {1}});
  EXPECT_EQ(layer.size(), 2u * (4 * 7 + 2 * 4));
  for (const Table& table : tables()) {
    const auto all = cases(table, {});
    EXPECT_FALSE(all.empty()) << table.name;
    EXPECT_FALSE(table.about.empty());
    EXPECT_EQ(table.ours.front(), "penstock");
    for (const Case& c : all) EXPECT_TRUE(is_bare_scan(c.cell) || !find_cell(c.cell).name.empty());
  }
  expect_error(misuse, "TABLE must be one of layer, scan, stream", [] { find_table("bar"); });
}

TEST(Tables, OnAGpu) {
  for (const Table& table : tables("cuda")) {
    const auto all = cases(table, {});
    EXPECT_FALSE(all.empty()) << table.name;
    for (const Case& c : all) {
      EXPECT_TRUE(c.on_gpu());
      EXPECT_EQ(c.threads, 1);
      EXPECT_EQ(c.shape.hidden % c.shape.heads, 0);
    }
  }
  expect_error(misuse,
               "TABLE must be one of layer, scan, recurrent, batch, throughput, fused, cuda_rnn, cs179 or all on "
               "device cuda, not "
               "'stream'",
               [] { find_table("stream", "cuda"); });
  expect_error(misuse, "device must be one of cpu, cuda, not \"gpu\"", [] { tables("gpu"); });
}

/// Values that the dtype cannot hold are rounded for all contenders, so that this rounding is no error of any of them.
TEST(Problems, OnAGpuAreNumbersOfTheDtype) {
  for (const auto& [dtype, bits] : {std::pair{"bf16", 8}, {"f16", 11}, {"f32", 24}}) {
    Case test{.cell = "mingru", .shape = {2, 5, 3, 4}, .pass = Pass::training, .dtype = dtype, .device = "cuda"};
    const Problem problem = make_problem(test, 3);
    const auto fits = [&, bits = bits](float value) {
      int exponent = 0;
      const float units = std::ldexp(std::frexp(value, &exponent), bits);
      return units == std::nearbyint(units);
    };
    for (const Array& array : problem.weights) EXPECT_TRUE(std::ranges::all_of(array.values, fits)) << dtype;
    EXPECT_TRUE(std::ranges::all_of(problem.x, fits) && std::ranges::all_of(problem.dy, fits)) << dtype;
  }
}

TEST(Tables, CellsKeepTheShapesOfTheirKind) {
  Choice choice;
  choice.cells = {"gru-before", "minlstm"};
  choice.threads = {1};
  for (const Case& c : cases(find_table("layer"), choice)) {
    EXPECT_EQ(c.cell == "minlstm", c.shape.steps * c.shape.rows > 20000 || c.shape.steps == 4096 || c.shape.rows == 8);
  }
  choice.shapes = {{1, 2, 3, 4}};
  EXPECT_EQ(cases(find_table("layer"), choice).size(), 4u);
}

TEST(Tables, Threads) {
  Choice choice;
  choice.cells = {"lstm"};
  choice.shapes = {{1, 1, 1, 1}};
  choice.passes = {Pass::forward};
  choice.threads = {0};
  EXPECT_EQ(cases(find_table("layer"), choice).front().threads, system_info().threads);
  choice.threads = {3, 3, 1000};
  EXPECT_EQ(cases(find_table("layer"), choice).size(), 2u);
  for (const int count : {-1, 5000}) {
    choice.threads = {count};
    expect_error(misuse, "threads must be 0 to 1024", [&] { cases(find_table("layer"), choice); });
  }
}

TEST(Tables, RefuseWhatTheyHaveNot) {
  Choice choice;
  choice.passes = {Pass::step};
  expect_error(misuse, "passes must be", [&] { cases(find_table("layer"), choice); });
  choice.passes = {Pass::training};
  expect_error(misuse, "passes must be", [&] { cases(find_table("stream"), choice); });
  choice.passes = {};
  choice.dtypes = {"f8"};
  expect_error(misuse, "dtypes must be", [&] { cases(find_table("layer"), choice); });
  choice.dtypes = {};
  choice.cells = {"gru2"};
  expect_error(misuse, "gru2", [&] { cases(find_table("layer"), choice); });
}

/// Counts the cases that begin.
class Counter : public Watcher {
 public:
  void at(std::size_t done, std::size_t, const std::string&) override { last = done; }
  bool stop() override { return last >= limit; }
  std::size_t last = 0, limit = 1000;
};

Settings alone() {
  Settings settings;
  settings.seconds = 0.002;
  settings.peers.emplace();
  return settings;
}

TEST(Runs, HaveATimeForEveryCase) {
  Choice choice;
  choice.cells = {"gru", "mingru"};
  choice.shapes = {{2, 5, 3, 4}, {1, 1, 1, 1}};
  choice.threads = {1, 2};
  Counter counter;
  const Report report =
      run({&find_table("layer"), &find_table("fused"), &find_table("cs179")}, choice, alone(), counter);
  EXPECT_TRUE(report.all_right());
  EXPECT_FALSE(report.interrupted);
  ASSERT_EQ(report.tables.size(), 3u);
  EXPECT_EQ(report.tables[0].lines.size(), 16u);
  for (const Measured& measured : report.tables) {
    for (const Line& line : measured.lines) {
      EXPECT_EQ(line.entries.size(), measured.table->ours.size());
      EXPECT_GT(line.entries.front().time.median, 0.0);
      EXPECT_GT(line.limit.seconds, 0.0);
      EXPECT_GT(line.entries.front().tolerance, line.entries.front().error);
    }
  }
}

TEST(Runs, StopWhenTold) {
  Choice choice;
  choice.cells = {"gru"};
  choice.shapes = {{1, 1, 1, 1}};
  choice.threads = {1, 2, 3};
  Counter counter;
  counter.limit = 1;
  const Report report = run({&find_table("batch")}, choice, alone(), counter);
  EXPECT_TRUE(report.interrupted);
  EXPECT_EQ(report.tables[0].lines.size(), 1u);
}

TEST(Runs, RefuseWhatDoesNotFitAndWhomNobodyKnows) {
  Counter counter;
  Choice choice;
  choice.shapes = {{1000000, 1000000, 1, 1}};
  expect_error(misuse, "of memory", [&] { run({&find_table("layer")}, choice, alone(), counter); });
  Settings settings = alone();
  settings.peers->emplace_back("torhc");
  expect_error(misuse, "peers must be among torch", [&] { run({&find_table("layer")}, {}, settings, counter); });
}

TEST(Limits, AreWrongWhereOurTimeIsWellBelowThem) {
  Entry ours;
  ours.name = "penstock";
  ours.time.median = 1e-3;
  Choice one;
  one.threads = {1};
  const Case test = cases(find_table("layer"), one).front();
  const auto line = [&](double limit) {
    Line made{.test = test, .checked = "all", .entries = {ours}, .limit = {}};
    made.limit.seconds = limit;
    return made;
  };
  Report report;
  report.tables.push_back({&find_table("layer"), {line(0.5e-3), line(1.2e-3)}});
  EXPECT_EQ(wrong_limits(report.tables.front()), "");
  EXPECT_THAT(report_markdown(report), testing::AllOf(testing::HasSubstr("50 %"), testing::HasSubstr("120 %")));
  report.tables.front().lines.push_back(line(0.27));
  const std::string said = wrong_limits(report.tables.front());
  EXPECT_THAT(said, testing::HasSubstr("The limit of 1 case is wrong"));
  EXPECT_THAT(said, testing::HasSubstr("it allows 2.7e+05 us and the case took 1e+03 us"));
  EXPECT_THAT(report_markdown(report, 0),
              testing::AllOf(testing::HasSubstr(said), testing::Not(testing::HasSubstr("27000"))));
}

}  // namespace
}  // namespace penstock::bench
