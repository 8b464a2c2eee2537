#include "data/table/missing_words.h"

#include <algorithm>
#include <array>

#include "base/lower_case.h"

namespace penstock::data {

bool is_missing(std::string_view text) {
  if (text.empty()) return true;
  if (text.size() > 4) return false;
  static constexpr std::array<std::string_view, 10> words = {"na",  "n/a",  "n.a.", "#n/a", "<na>",
                                                             "nan", "null", "none", "?",    "-"};
  return std::find(words.begin(), words.end(), lower_case(text)) != words.end();
}

}  // namespace penstock::data
