// Cells as JSON text: what is written is read again, and what is wrong is refused by node and field.

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "base/random.h"
#include "custom/random_cell.h"
#include "custom/trace.h"
#include "oracle/written_cells.h"
#include "support/expect_error.h"

namespace penstock::custom {
namespace {

TEST(CellJson, OfRandomCellsIsReadAsWritten) {
  Random random(4);
  for (int trial = 0; trial < 300; ++trial) {
    const CustomCell cell = test::random_cell(random, trial % 3 == 0, false);
    const std::string text = to_json(cell);
    EXPECT_EQ(to_json(cell_from_json(text, "cell.json")), text);
  }
}

TEST(CellJson, KeepsAllFields) {
  const test::WrittenCell written = test::written_peephole();
  const CustomCell cell = cell_from_json(to_json(trace_cell(written.definition, written.equations)), "cell.json");
  EXPECT_EQ(cell.name, "written-peephole");
  EXPECT_EQ(cell.states, (std::vector<std::string>{"h", "c"}));
  ASSERT_EQ(cell.learnt.size(), 3u);
  EXPECT_EQ(cell.learnt[2].name, "o");
  EXPECT_EQ(cell.learnt[2].initial, -0.2);
  EXPECT_EQ(cell.keep_gate, 1);
  EXPECT_EQ(cell.gates, 4);
}

std::string refusal(const std::string& nodes, const std::string& outputs = "[0]", const std::string& more = "") {
  const std::string text = R"({"format": "penstock-cell", "version": 1, "name": "x", "kind": "dense", "gates": 1,
      "states": ["h"], "nodes": )" +
                           nodes + R"(, "outputs": )" + outputs + more + "}";
  try {
    cell_from_json(text, "x.json");
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::bad_input);
    return error.what();
  }
  return "accepted";
}

TEST(CellJson, IsRefusedByNodeAndField) {
  const std::string input = R"({"op": "input", "index": 0})";
  EXPECT_EQ(refusal("[" + input + "]"), "accepted");
  EXPECT_EQ(refusal("[" + input + R"(, {"op": "tanh", "of": [1]}])"),
            "x.json: cell.nodes[1].of[0] must be 0 to 0, not 1");
  EXPECT_EQ(refusal(R"([{"op": "tanh", "of": [0]}])"),
            "x.json: cell.nodes[0].of[0] reads another node, and this is the first one");
  EXPECT_EQ(refusal("[" + input + R"(, {"op": "add", "of": [0]}])"),
            "x.json: cell.nodes[1].of must be 2 nodes for add, not 1");
  EXPECT_EQ(refusal(R"([{"op": "system", "of": [0]}])"),
            "x.json: cell.nodes[0].op \"system\" is not an operation of cells");
  EXPECT_EQ(refusal(R"([{"op": "kept", "index": 0}])"),
            "x.json: cell.nodes[0].op \"kept\" is not an operation of cells");
  EXPECT_EQ(refusal(R"([{"op": "input", "index": 1}])"), "x.json: node 0 reads gate wx 1, and there are 1");
  EXPECT_EQ(refusal(R"([{"op": "constant", "value": null}])"),
            "x.json: cell.nodes[0].value must be a number, not null");
  EXPECT_EQ(refusal("[" + input + "]", "[1]"), "x.json: cell.outputs[0] must be 0 to 0, not 1");
  EXPECT_EQ(
      refusal("[" + input + "]", "[0, 0]"),
      "x.json: the cell returns 2 values and has 1 states (h): return one value for each state, the output first");
  EXPECT_EQ(refusal("[" + input + "]", "[0]", R"(, "code": "rm")").substr(0, 37),
            "x.json: cell has no field \"code\"; it ");
  EXPECT_EQ(refusal("[]"), "x.json: cell.nodes must be 1 to 1024 operations, not 0");
}

TEST(CellJson, OfANewerVersionIsRefused) {
  test::expect_error(ErrorCode::bad_input, "x.json: cell.version is 2, and this Penstock reads 1: use a newer one",
                     [] { cell_from_json(R"({"format": "penstock-cell", "version": 2})", "x.json"); });
  EXPECT_THROW(cell_from_json("[", "x.json"), Error);
  EXPECT_THROW(cell_from_json("[]", "x.json"), Error);
  EXPECT_THROW(cell_from_json(std::string(2'000'000, ' ') + "{}", "x.json"), Error);
}

}  // namespace
}  // namespace penstock::custom
