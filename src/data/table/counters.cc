#include "data/table/counters.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <cmath>
#include <limits>
#include <utility>

#include "base/lower_case.h"

namespace penstock::data {

bool may_name_identifiers(std::string_view column) {
  const std::string name = lower_case(column);
  if (name == "id" || name == "uid" || name == "uuid" || name == "identifier") return true;
  constexpr std::array<std::string_view, 3> endings = {"_id", " id", "-id"};
  if (std::ranges::any_of(endings, [&](auto end) { return name.ends_with(end); })) return true;
  // "storeId" and "storeID", but neither "bid" nor "PAID"
  const std::size_t size = column.size();
  return size > 2 && column[size - 2] == 'I' && name.ends_with("id") && column[size - 3] == name[size - 3] &&
         std::isalpha(static_cast<unsigned char>(name[size - 3])) != 0;
}

bool may_name_counters(std::string_view column) {
  // Dates among them that were read as such are none of these numbers.
  constexpr std::array<std::string_view, 23> names = {
      "index", "idx",     "row",         "rownum", "row_number", "row number", "nr",   "nr.",
      "no",    "no.",     "#",           "t",      "timestamp",  "time",       "ts",   "seconds",
      "step",  "counter", "observation", "obs",    "date",       "datum",      "fecha"};
  const std::string name = lower_case(column);
  return std::ranges::find(names, name) != names.end();
}

void CounterSearch::look(std::optional<double> value, std::size_t series) {
  if (last_.size() <= series) last_.resize(series + 1);
  const std::optional<double> before = std::exchange(last_[series], value);
  if (!value) return;
  whole_ = whole_ && *value == std::floor(*value);
  if (!before) return;
  const double step = *value - *before;
  if (steps_++ == 0) step_ = step;
  // Steps of 0.1 differ in their last bits.
  constexpr double part = 1e-6, bits = 4.0 * std::numeric_limits<double>::epsilon();
  even_ = even_ && step != 0.0 &&
          std::abs(step - step_) <= part * std::abs(step_) + bits * std::max(std::abs(*value), std::abs(*before));
  rises_ = rises_ && step > 0.0;
}

std::string CounterSearch::what() const {
  constexpr Index least = 20;  // steps; fewer may be an accident
  if (steps_ < least) return {};
  if (even_) return fmt::format("an index: {:.6g} {} in each row", std::abs(step_), step_ > 0.0 ? "more" : "less");
  if (counts_ && rises_) return "numbers its rows";
  return identifies_ && whole_ ? "an identifier" : "";
}

}  // namespace penstock::data
