#include "custom/trace.h"
#include "fuzz/damage.h"
#include "oracle/written_cells.h"

namespace penstock::test {
namespace {

TEST(Fuzz, DamagedCell) {
  std::vector<std::string> seeds;
  for (const WrittenCell& written : {written_peephole(), written_slstm(), written_mingru()}) {
    seeds.push_back(custom::to_json(custom::trace_cell(written.definition, written.equations)));
  }
  feed_damaged(
      seeds,
      {"0",    "-1",          "1e300",   "18446744073709551616", "[",         "]",        "{",           "}",
       "null", "\"",          ",",       "\"of\":[0,1]",         "\"where\"", "\"kept\"", "\"index\":5", "\"scan\"",
       "\xff", "\"nodes\":[", "\"exp\"", "\"constant\""},
      [](const std::string& text, Random&) { return text; });
}

}  // namespace
}  // namespace penstock::test
