#include "data/table/sentinels.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <set>
#include <utility>

#include "base/check.h"
#include "base/quote.h"

namespace penstock::data {
namespace {

constexpr double infinite = std::numeric_limits<double>::infinity();

/// Numbers that programs and people write for "no value": nines, the ends of integers, and what netCDF and others fill
/// with. 99 and -9 are too often just values.
bool is_usual_sentinel(double value) {
  constexpr std::array known = {-99.0,   -99.9,         -999.25,      -32768.0,     32767.0,
                                65535.0, -2147483648.0, 2147483647.0, 4294967295.0, 9.96920996838687e36};
  const double size = std::abs(value);
  const auto is = [](double number, double other) { return std::abs(number - other) <= 1e-6 * std::abs(other); };
  if (std::ranges::any_of(known, [&](double each) { return is(value, each); })) return true;
  for (double power = 1e3; power <= 1e9; power *= 10.0) {
    for (const double last : {1.0, 0.1, 0.01}) {  // 999, 999.9, 999.99
      if (std::abs(size - (power - last)) <= 1e-9 * power) return true;
    }
  }
  if (is(size, std::numeric_limits<float>::max()) || is(size, std::numeric_limits<double>::max())) return true;
  constexpr double least_power = 1e15;
  return size >= least_power && is(size, std::pow(10.0, std::round(std::log10(size))));
}

/// One end of the values: the last one, how often it stands there, and the one before.
struct End {
  double value = infinite, next = infinite;
  Index count = 0;

  void see(double other) {
    if (other < value) {
      next = std::exchange(value, other);
      count = 1;
    } else if (other == value) {
      ++count;
    } else {
      next = std::min(next, other);
    }
  }
};

struct Ends {
  End low, high;  // the latter of the negated values
  Index all = 0;
  std::set<double> sizes;  // some of them, each once
};

constexpr std::size_t enough_sizes = 12;

Ends ends_of(const TableValues& values, std::size_t column, const std::set<double>& without) {
  Ends ends;
  for (Index row = 0; row < static_cast<Index>(values.columns[column].size()); ++row) {
    const double value = values.columns[column][row];
    if (!std::isfinite(value) || values.is_filled(column, row) || without.contains(value)) continue;
    ends.low.see(value);
    ends.high.see(-value);
    ++ends.all;
    if (ends.sizes.size() < enough_sizes) ends.sizes.insert(value);
  }
  return ends;
}

/// Returns whether the last value at an end is almost certainly a sentinel. Real outliers and the tail of a
/// distribution differ from each other, and others lie between them and the rest. So the test is how far the value lies
/// beyond all others, in units of their range, without the value at the other end if that may be a sentinel, too:
///   a usual sentinel    that occurs again: 1        once: 10
///   any other number    that occurs 3 times, beside others of 10 sizes: 100
/// There must be 20 others of 3 sizes, and at least as many as sentinels: a column of 0 and 1 has no range.
bool is_sentinel(const End& end, const End& other, const Ends& ends) {
  const double sign = &end == &ends.low ? 1.0 : -1.0;
  const bool aside = is_usual_sentinel(-sign * other.value);
  const double range = -(aside ? other.next : other.value) - end.next, beyond = end.next - end.value;
  const Index others = ends.all - end.count - (aside ? other.count : 0);
  const std::size_t sizes = std::max<std::size_t>(ends.sizes.size(), 2) - (aside ? 2 : 1);
  if (others < 20 || others < end.count || sizes < 3 || !(range > 0.0)) return false;
  if (is_usual_sentinel(sign * end.value)) return beyond >= (end.count > 1 ? 1.0 : 10.0) * range;
  return end.count >= 3 && sizes >= 10 && beyond >= 100.0 * range;
}

Message describe(double sentinel, const std::string& name, const TableValues& values, std::size_t column) {
  Index count = 0, known = 0, first = -1;
  const auto place = [&](Index row) { return std::pair(values.files[row], values.lines[row]); };
  for (Index row = 0; row < values.rows(); ++row) {
    if (values.is_filled(column, row)) continue;
    ++known;
    if (values.columns[column][row] != sentinel) continue;
    ++count;
    if (first < 0 || place(row) < place(first)) first = row;
  }
  return {fmt::format("warning: column {}: {} in {} of {} rows, first in line {} of {}, is far from all other values: "
                      "if it stands for a missing value, leave these cells empty, and ",
                      in_quotes(name), sentinel, count, known, values.lines[first], values.source(first)),
          the_option("missing"), " (carry, interpolate or mask) deals with them"};
}

}  // namespace

std::vector<Message> sentinels(const TableValues& values, const std::vector<std::string>& names) {
  std::vector<Message> findings;
  for (std::size_t column = 0; column < values.columns.size(); ++column) {
    std::set<double> found;
    for (;;) {
      const Ends ends = ends_of(values, column, found);
      const bool low = is_sentinel(ends.low, ends.high, ends);
      if (!low && !is_sentinel(ends.high, ends.low, ends)) break;
      const double sentinel = low ? ends.low.value : -ends.high.value;
      found.insert(sentinel);
      findings.push_back(describe(sentinel, names[column], values, column));
    }
  }
  return findings;
}

}  // namespace penstock::data
