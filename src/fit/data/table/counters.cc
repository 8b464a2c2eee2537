#include "data/table/counters.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <cmath>
#include <limits>
#include <utility>

#include "base/lower_case.h"
#include "base/plural.h"

namespace penstock::data {

namespace {

/// "id", "store_id", "Customer ID", "uuid".
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

/// Counters, or times of rows.
bool may_name_counters(std::string_view column) {
  // Dates among them that were read as such are none of these numbers.
  constexpr std::array<std::string_view, 23> names = {
      "index", "idx",     "row",         "rownum", "row_number", "row number", "nr",   "nr.",
      "no",    "no.",     "#",           "t",      "timestamp",  "time",       "ts",   "seconds",
      "step",  "counter", "observation", "obs",    "date",       "datum",      "fecha"};
  const std::string name = lower_case(column);
  return std::ranges::find(names, name) != names.end();
}

}  // namespace

CounterSearch::CounterSearch(std::string_view column)
    : identifies_(may_name_identifiers(column)), counts_(may_name_counters(column)) {}

void CounterSearch::look(std::optional<double> value, std::size_t series) {
  if (last_.size() <= series) last_.resize(series + 1);
  const std::optional<double> before = std::exchange(last_[series], value);
  if (!value) return;
  whole_ = whole_ && *value == std::floor(*value);
  if (!before) return;
  // Steps of 0.1 differ in their last bits.
  constexpr double bits = 4.0 * std::numeric_limits<double>::epsilon();
  look_at_step(*value - *before, bits * std::max(std::abs(*value), std::abs(*before)));
}

void CounterSearch::look_at_step(double step, double rounding) {
  constexpr double part = 1e-6;
  rises_ = rises_ && step > 0.0;
  const Index before = steps_++;
  if (before == 0) step_ = step;
  even_ = even_ && step != 0.0 && (step > 0.0) == (step_ > 0.0);
  if (!even_) return;
  const bool smaller = std::abs(step) < std::abs(step_);
  const double times = std::round(smaller ? step_ / step : step / step_);
  even_ = std::abs(smaller ? step_ - times * step : step - times * step_) <= part * std::abs(step_) + rounding;
  if (times == 1.0) return;
  jumps_ = smaller ? before : jumps_ + 1;  // over rows that are not there
  if (smaller) step_ = step;
}

std::string CounterSearch::what() const {
  constexpr Index least = 20;  // steps; fewer may be an accident
  if (steps_ < least) return {};
  const bool named = counts_ && rises_;
  if (even_ && !many_jumps(0) && !(named && jumps_ > 0)) {
    const std::string gaps = jumps_ == 0 ? "" : fmt::format(" but for {}", counted(jumps_, "gap"));
    return fmt::format("an index: {:.6g} {} in each row{}", std::abs(step_), step_ > 0.0 ? "more" : "less", gaps);
  }
  if (named) return "numbers its rows";
  return identifies_ && whole_ ? "an identifier" : "";
}

}  // namespace penstock::data
