// The table of cells with those that a user defines.

#include <gtest/gtest.h>

#include <functional>
#include <string>

#include "oracle/written_cells.h"
#include "penstock/error.h"
#include "plan/cell_table.h"

namespace penstock {
namespace {

std::string refusal(const std::function<void()>& call, ErrorCode code) {
  try {
    call();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), code);
    return error.what();
  }
  return "accepted";
}

TEST(CustomCells, AreFoundByNameAndKeptOnce) {
  const test::WrittenCell written = test::written_peephole();
  const CellInfo& info = define_cell(written.definition, written.equations);
  EXPECT_EQ(&define_cell(written.definition, written.equations), &info);
  EXPECT_EQ(&define_cell_json(cell_json("written-peephole")), &info);
  EXPECT_EQ(&find_cell("written-peephole"), &info);
  CellDefinition described = written.definition;
  described.description = "The same, in other words.";
  EXPECT_EQ(&define_cell(described, written.equations), &info);
  EXPECT_EQ(info.description, "") << "the first description stays";
  EXPECT_EQ(info.gates, 4);
  EXPECT_EQ(info.states, 2);
  const plan::CellTraits& traits = plan::cell_traits("written-peephole");
  EXPECT_EQ(traits.learnt, 3);
  EXPECT_EQ(traits.bias_vectors(), 7);
  EXPECT_EQ(traits.keep_gate, 1);
  EXPECT_EQ(traits.index, plan::kCustomCell);
  EXPECT_GE(traits.saved, 4);
}

TEST(CustomCells, CollideInWords) {
  const test::WrittenCell gru = test::written_gru("mine"), lstm = test::written_lstm("mine");
  define_cell(gru.definition, gru.equations);
  EXPECT_EQ(
      refusal([&] { define_cell(lstm.definition, lstm.equations); }, ErrorCode::invalid_argument),
      "cell: a cell called \"mine\" is defined already and has other equations: give this one another name, such as "
      "name=\"mine-2\", or start a new process");
  const test::WrittenCell own = test::written_lstm("lstm");
  EXPECT_EQ(refusal([&] { define_cell(own.definition, own.equations); }, ErrorCode::invalid_argument),
            "cell: \"lstm\" is a cell that Penstock brings along: choose another name");
  EXPECT_EQ(refusal([] { cell_json("lstm"); }, ErrorCode::invalid_argument),
            "cell \"lstm\" is one that Penstock brings along: it has no equations as JSON");
  const std::string message = refusal([] { find_cell("mien"); }, ErrorCode::invalid_argument);
  EXPECT_NE(message.find("minlstm-log, mine"), std::string::npos) << message;
  EXPECT_NE(
      refusal([] { define_cell_json("{}", "x.json"); }, ErrorCode::bad_input).find("x.json: cell.format is missing"),
      std::string::npos);
}

}  // namespace
}  // namespace penstock
