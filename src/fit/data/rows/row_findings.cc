#include "base/plural.h"
#include "penstock/data/row_reader.h"

namespace penstock {

std::vector<Message> describe(const RowFindings& findings) {
  std::vector<Message> sentences;
  const auto say = [&](const RowFinding& finding, const char* noun, const char* one, const char* many) {
    if (finding.count == 0) return;
    sentences.push_back(
        fmt::format("{} {}; the first: ", counted(finding.count, noun), finding.count == 1 ? one : many) +
        finding.first);
  };
  say(findings.unknown_categories, "field",
      "has a category that is not in the training part and is read as no category",
      "have a category that is not in the training part and are read as no category");
  say(findings.undated, "row", "without a readable date left out", "without a readable date left out");
  say(findings.earlier, "row", "is earlier than the one before: sort the rows from old to new",
      "are earlier than the one before: sort the rows from old to new");
  say(findings.repeated, "row", "has the date of the one before: leave out what is there twice",
      "have the date of the one before: leave out what is there twice");
  return sentences;
}

}  // namespace penstock
