#include <algorithm>
#include <utility>

#include "base/check.h"
#include "penstock/csp.h"

namespace penstock::csp {
namespace {

/// Largest number of values of a list. Ranges have no limit.
constexpr std::size_t most_values = 1'000'000;

void require_bounded(Integer value) {
  require(value >= -largest && value <= largest, "a domain must stay within {} and {}, not reach {}", -largest, largest,
          value);
}

}  // namespace

Domain::Domain(std::initializer_list<Integer> values) : Domain(std::vector<Integer>(values)) {}

Domain::Domain(std::vector<Integer> values) : values_(std::move(values)) {
  require(!values_.empty(), "a domain must have at least one value");
  std::sort(values_.begin(), values_.end());
  values_.erase(std::unique(values_.begin(), values_.end()), values_.end());
  require(values_.size() <= most_values, "a list of values must have at most {}, not {}", most_values, values_.size());
  bounds_ = {values_.front(), values_.back()};
  require_bounded(bounds_.low);
  require_bounded(bounds_.high);
  if (bounds_.high - bounds_.low == static_cast<Integer>(values_.size()) - 1) values_.clear();
}

Domain::Domain(Range range) : bounds_(range) {
  require(!range.empty(), "a domain must have at least one value, which {}..{} has not", range.low, range.high);
  require_bounded(range.low);
  require_bounded(range.high);
}

Integer Domain::size() const {
  return is_range() ? bounds_.high - bounds_.low + 1 : static_cast<Integer>(values_.size());
}

Integer Domain::operator[](Integer index) const { return is_range() ? bounds_.low + index : values_[index]; }

bool Domain::contains(Integer value) const {
  return is_range() ? bounds_.contains(value) : std::binary_search(values_.begin(), values_.end(), value);
}

std::string Domain::text() const {
  if (is_range()) {
    return bounds_.fixed() ? fmt::format("{{{}}}", bounds_.low) : fmt::format("{}..{}", bounds_.low, bounds_.high);
  }
  return fmt::format("{{{}}}", fmt::join(values_, ", "));
}

Domain range(Integer first, Integer last) { return Domain(Range{first, last}); }

Domain divisors(Integer n) {
  constexpr Integer most = Integer{1} << 40;  // a million divisions
  require(n >= 1 && n <= most, "divisors are those of 1 to {}, not of {}", most, n);
  std::vector<Integer> all;
  for (Integer d = 1; d * d <= n; ++d) {
    if (n % d != 0) continue;
    all.push_back(d);
    all.push_back(n / d);
  }
  return Domain(std::move(all));
}

Domain powers_of_two(Integer first, Integer last) {
  std::vector<Integer> all;
  for (Integer power = 1; power <= std::min(last, largest); power *= 2) {
    if (power >= first) all.push_back(power);
  }
  require(!all.empty(), "there is no power of two from {} to {}", first, last);
  return Domain(std::move(all));
}

Domain multiples(Integer step, Integer first, Integer last) {
  require(step >= 1, "a step must be at least 1, not {}", step);
  require_bounded(first);
  require_bounded(last);
  // Finds the first multiple at or after `first`.
  const Integer rest = first % step;
  const Integer begin = first - rest + (rest > 0 ? step : 0);
  require(begin <= last, "there is no multiple of {} from {} to {}", step, first, last);
  if (step == 1) return range(first, last);
  const Integer count = (last - begin) / step + 1;
  require(count <= static_cast<Integer>(most_values), "a list of values must have at most {}, not {}", most_values,
          count);
  std::vector<Integer> all;
  for (Integer i = 0; i < count; ++i) all.push_back(begin + i * step);
  return Domain(std::move(all));
}

}  // namespace penstock::csp
