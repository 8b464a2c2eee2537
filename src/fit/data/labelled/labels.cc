#include "data/labelled/labels.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <utility>

#include "base/check.h"
#include "base/quote.h"
#include "data/table/csv.h"

namespace penstock::data {

std::int32_t LabelNumbers::number_of(const std::string& label) {
  const auto [found, added] = numbers_.try_emplace(label, static_cast<std::int32_t>(labels_.size()));
  if (added) labels_.push_back(label);
  return found->second;
}

std::vector<std::int32_t> LabelNumbers::sort() {
  std::vector<std::string> sorted = labels_;
  const bool numeric = std::all_of(sorted.begin(), sorted.end(),
                                   [](const std::string& name) { return finite_number(name).has_value(); });
  std::sort(sorted.begin(), sorted.end(), [&](const std::string& a, const std::string& b) {
    if (!numeric) return a < b;
    return std::pair(*finite_number(a), a) < std::pair(*finite_number(b), b);
  });
  for (std::size_t i = 0; i < sorted.size(); ++i) numbers_[sorted[i]] = static_cast<std::int32_t>(i);
  std::vector<std::int32_t> renumbered;
  for (const std::string& label : labels_) renumbered.push_back(numbers_[label]);
  labels_ = std::move(sorted);
  return renumbered;
}

std::vector<std::int32_t> numbers_among(const std::vector<std::string>& labels, const std::vector<std::string>& classes,
                                        const std::string& source) {
  std::vector<std::int32_t> numbers;
  for (const std::string& label : labels) {
    const auto found = std::ranges::find(classes, label);
    if (found == classes.end()) {
      fail(ErrorCode::incompatible, "{}: the model does not know label {}, its labels are {}", source, in_quotes(label),
           in_quotes(fmt::format("{}", fmt::join(classes, ", "))));
    }
    numbers.push_back(static_cast<std::int32_t>(found - classes.begin()));
  }
  return numbers;
}

}  // namespace penstock::data
