#include "answers/input_findings.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <charconv>

#include "options/options.h"
#include "penstock/error.h"
#include "terminal/terminal.h"
#include "terminal/units.h"

namespace penstock::cli {

std::string first_replaced(const Rows& rows) { return rows.reader().findings().replaced.first.text(option_named); }

void say_findings(const Rows& rows, bool first_said) {
  RowFindings found = rows.reader().findings();
  for (RowFinding* finding : {&found.replaced, &found.undated, &found.earlier, &found.repeated}) {
    if (first_said && finding->count == 1) *finding = {};
  }
  if (rows.missing() > 0) {
    say(fmt::format("note: {} missing row{} inserted as missing values\n", with_commas(rows.missing()),
                    rows.missing() == 1 ? " was" : "s were"));
  }
  for (const Message& finding : describe(found)) say(fmt::format("note: {}\n", printable(finding.text(option_named))));
  const Index count = found.replaced.count;
  if (count == 0) return;
  say(
      fmt::format("note: {} value{} replaced by the last value of {} column (--missing refuse ends with an error "
                  "instead); the first: {}\n",
                  with_commas(count), count == 1 ? " was" : "s were", count == 1 ? "its" : "their",
                  printable(first_replaced(rows))));
}

void say_new_groups(const std::vector<std::string>& groups, const std::string& source, Index scaled_by) {
  constexpr std::size_t shown = 6;
  std::vector<std::string> names;
  for (const std::string& name : groups) names.push_back(printable(name));
  if (names.empty()) return;
  const std::size_t more = names.size() > shown ? names.size() - shown : 0;
  const std::string by = scaled_by > 0 ? fmt::format("the first {}", with_commas(scaled_by)) : "all";
  names.resize(names.size() - more);
  say(fmt::format("note: {}{} {} not in the training data: scaled by {} of {} rows in {}\n", fmt::join(names, ", "),
                  more > 0 ? fmt::format(" and {} more", more) : "", names.size() + more == 1 ? "is" : "are", by,
                  names.size() + more == 1 ? "its" : "their", printable(source)));
}

std::vector<std::int32_t> parse_tokens(const std::string& line, Index vocabulary, const std::string& source,
                                       Index line_number) {
  constexpr std::string_view blanks = " \t";
  std::vector<std::int32_t> tokens;
  for (std::size_t begin = line.find_first_not_of(blanks); begin != std::string::npos;) {
    const std::size_t end = std::min(line.find_first_of(blanks, begin), line.size());
    const std::string_view word = std::string_view(line).substr(begin, end - begin);
    std::int32_t token = -1;
    const auto [stop, error] = std::from_chars(word.data(), word.data() + word.size(), token);
    if (error != std::errc() || stop != word.data() + word.size() || token < 0 || token >= vocabulary) {
      fail(ErrorCode::bad_input, "{}:{}:{}: a token must be 0 to {}, not '{}'", source, line_number, begin + 1,
           vocabulary - 1, printable(word));
    }
    tokens.push_back(token);
    begin = line.find_first_not_of(blanks, end);
  }
  return tokens;
}

}  // namespace penstock::cli
