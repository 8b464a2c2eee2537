#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "report/chart.h"
#include "report/date_texts.h"
#include "terminal/units.h"

namespace penstock::cli::reporting {
namespace {

constexpr double largest = 1e300, smallest = 1e-300;  // see Axis::holds
constexpr double finest = 1e-12;  // range of an axis by its values, so that the ticks on it are different doubles

bool can_be_placed(double value) { return std::abs(value) <= largest; }

struct Extent {
  double least = std::numeric_limits<double>::infinity(), greatest = -std::numeric_limits<double>::infinity();
  double least_positive = std::numeric_limits<double>::infinity();

  void add(const std::vector<double>& values) {
    for (const double value : values) {
      if (!can_be_placed(value)) continue;
      least = std::min(least, value);
      greatest = std::max(greatest, value);
      if (value >= smallest) least_positive = std::min(least_positive, value);
    }
  }
  bool empty() const { return least > greatest; }
};

/// "0.05", "12 k", "1e-06"; next to its neighbours, `step` away, with as many digits as tell them apart.
std::string tick_text(double value, double step) {
  constexpr double shown = 1e-3;  // of a value, in three or four digits
  if (step > 0.0 && step < shown * std::abs(value)) {
    constexpr double longest = 1e15, most_decimals = 15.0;  // that are written out
    const double digits = std::ceil(std::log10(std::abs(value) / step)) + 1.0;
    const double decimals = std::max(0.0, -std::floor(std::log10(step) + 1e-9));
    return std::abs(value) < longest && decimals <= most_decimals
               ? fmt::format("{:.{}f}", value, static_cast<int>(decimals))
               : fmt::format("{:.{}g}", value, static_cast<int>(std::min(digits, 17.0)));
  }
  if (std::abs(value) < 1e4) return fmt::format("{:.4g}", value);
  std::string text = short_count(std::abs(value));
  if (const auto zero = text.find(".0 "); zero != std::string::npos) text.erase(zero, 2);
  if (const auto zeros = text.find(".00 "); zeros != std::string::npos) text.erase(zeros, 3);
  return (value < 0.0 ? "-" : "") + text;
}

void label_ticks(Axis& axis, double step) {
  for (const double tick : axis.ticks) axis.labels.push_back(tick_text(tick, step));
}

/// 1, 2 or 5 times a power of ten, so that about `count` of them make the range.
double round_step(double range, double count) {
  const double rough = range / count, power = std::pow(10.0, std::floor(std::log10(rough)));
  const double share = rough / power;
  return power * (share <= 1.0 ? 1.0 : share <= 2.0 ? 2.0 : share <= 5.0 ? 5.0 : 10.0);
}

void add_linear_ticks(Axis& axis, double count) {
  const double step = round_step(axis.to - axis.from, count);
  // By whole multiples: a sum of steps would end a rounding beside the last tick.
  for (double i = std::ceil(axis.from / step - 1e-9); i * step <= axis.to + 1e-9 * step; ++i) {
    axis.ticks.push_back(i * step == 0.0 ? 0.0 : i * step);
  }
  label_ticks(axis, step);
}

void add_logarithmic_ticks(Axis& axis) {
  const double first = std::floor(std::log10(axis.from)), last = std::ceil(std::log10(axis.to));
  const double every = std::max(1.0, std::ceil((last - first) / 6.0));
  const bool few = last - first <= 2.0;
  for (double decade = first; decade <= last; decade += every) {
    for (const double times : {1.0, 2.0, 5.0}) {
      const double tick = times * std::pow(10.0, decade);
      if ((times == 1.0 || few) && tick >= axis.from * 0.999 && tick <= axis.to * 1.001) axis.ticks.push_back(tick);
    }
  }
  label_ticks(axis, 0.0);
}

void add_date_ticks(Axis& axis, const Chart& chart, int width) {
  constexpr int room = 100;  // for a date and what keeps it from the next one
  for (const DateTick& tick : date_ticks(chart.dates, static_cast<std::size_t>(width / room))) {
    axis.ticks.push_back(chart.first_row + static_cast<double>(tick.row));
    axis.labels.push_back(tick.text);
  }
}

Axis logarithmic_axis(const Extent& extent) {
  Axis axis{.from = extent.least_positive / 1.15, .to = extent.greatest * 1.15, .logarithmic = true, .ticks = {}};
  add_logarithmic_ticks(axis);
  return axis;
}

/// Returns whether the range is too narrow for ticks.
bool is_narrow(const Axis& axis) {
  return !(axis.to - axis.from > std::max(smallest, finest * std::max(std::abs(axis.from), std::abs(axis.to))));
}

}  // namespace

bool Axis::holds(double value) const { return can_be_placed(value) && !(logarithmic && value < smallest); }

double Axis::place(double value) const {
  if (!logarithmic) return (value - from) / (to - from);
  return (std::log(value) - std::log(from)) / (std::log(to) - std::log(from));
}

Axis x_axis(const Chart& chart, int width) {
  Extent extent;
  for (const Line& line : chart.lines) extent.add(line.x);
  Axis axis;
  if (!extent.empty()) axis = {.from = extent.least, .to = extent.greatest, .logarithmic = false, .ticks = {}};
  if (chart.dates.empty() && axis.from > 0.0 && axis.from < 0.1 * axis.to) axis.from = 0.0;
  if (is_narrow(axis)) axis.to = axis.from + std::max(1.0, 1e-9 * std::abs(axis.from));
  if (!chart.dates.empty()) {
    add_date_ticks(axis, chart, width);
    return axis;
  }
  constexpr int page = 800;
  add_linear_ticks(axis, width > page ? 8.0 : 5.0);
  return axis;
}

Axis y_axis(const Chart& chart) {
  Extent extent;
  for (const Line& line : chart.lines) extent.add(line.y);
  for (const Band& band : chart.bands) {
    extent.add(band.low);
    extent.add(band.high);
  }
  if (extent.empty()) extent.add({0.0, 1.0});
  if (chart.logarithmic && std::isfinite(extent.least_positive)) return logarithmic_axis(extent);
  Axis axis{.from = extent.least, .to = extent.greatest, .logarithmic = false, .ticks = {}};
  const double range = is_narrow(axis) ? std::max(1e-12, 0.1 * std::abs(axis.to)) : axis.to - axis.from;
  // Zero belongs to the picture where it is near.
  const bool from_zero = axis.from >= 0.0 && axis.from <= 0.4 * axis.to;
  axis.from = from_zero ? 0.0 : axis.from - 0.05 * range;
  axis.to += 0.05 * range;
  add_linear_ticks(axis, 5.0);
  return axis;
}

Line thinned(const Line& line, std::size_t buckets) {
  if (line.x.size() <= 2 * buckets) return line;
  Line thin = line;
  thin.x.clear();
  thin.y.clear();
  const auto take = [&](std::size_t i) {
    thin.x.push_back(line.x[i]);
    thin.y.push_back(line.y[i]);
  };
  for (std::size_t bucket = 0; bucket < buckets; ++bucket) {
    const std::size_t begin = bucket * line.x.size() / buckets, end = (bucket + 1) * line.x.size() / buckets;
    std::size_t least = begin, greatest = begin;
    for (std::size_t i = begin; i < end; ++i) {
      // A comparison with a gap is false: a bucket that begins with one ends up with what comes behind it.
      if (!(line.y[least] <= line.y[i])) least = i;
      if (!(line.y[greatest] >= line.y[i])) greatest = i;
    }
    take(std::min(least, greatest));
    if (least != greatest) take(std::max(least, greatest));
  }
  return thin;
}

}  // namespace penstock::cli::reporting
