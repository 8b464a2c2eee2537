#include "penstock/description/column.h"

#include <chrono>
#include <cmath>
#include <limits>
#include <numbers>

#include "base/names.h"

namespace penstock {

namespace {

constexpr Names<10> feature_names = {"value",     "missing",     "category",  "day_sine",    "day_cosine",
                                     "week_sine", "week_cosine", "year_sine", "year_cosine", "elapsed"};
constexpr Names<7> date_form_names = {"month-first", "day-first", "excel", "year", "digits", "seconds", "milliseconds"};

/// Returns the part of its cycle that has passed at a date, from 0 to 1.
double phase(Feature feature, double seconds) {
  namespace chrono = std::chrono;
  constexpr double day = 86400.0, week = 7.0 * day, monday = 4.0 * day;  // the first of 1970 was a Thursday
  const auto within = [](double value, double cycle) { return value / cycle - std::floor(value / cycle); };
  if (feature == Feature::day_sine || feature == Feature::day_cosine) return within(seconds, day);
  if (feature == Feature::week_sine || feature == Feature::week_cosine) return within(seconds - monday, week);
  const chrono::sys_days date{chrono::days{static_cast<int>(std::floor(seconds / day))}};
  const chrono::year of_date = chrono::year_month_day{date}.year();
  const chrono::sys_days first{of_date / chrono::January / 1}, next{(of_date + chrono::years{1}) / chrono::January / 1};
  const double passed = seconds - static_cast<double>(first.time_since_epoch().count()) * day;
  return passed / (static_cast<double>((next - first).count()) * day);
}

double feature_of(Feature feature, double value) {
  if (feature == Feature::missing) return std::isnan(value) ? 1.0 : 0.0;
  if (feature == Feature::category) return value;
  if (feature == Feature::elapsed) return std::log2(1.0 + value) - 1.0;
  constexpr double farthest = 1e14;  // seconds: three million years, within what dates can count
  if (!(std::abs(value) < farthest)) return std::numeric_limits<double>::quiet_NaN();
  const double angle = 2.0 * std::numbers::pi * phase(feature, value);
  const bool sine = feature == Feature::day_sine || feature == Feature::week_sine || feature == Feature::year_sine;
  return sine ? std::sin(angle) : std::cos(angle);
}

}  // namespace

std::string_view to_string(Feature feature) { return name_of(feature_names, feature); }
Feature parse_feature(std::string_view text) { return parse_name<Feature>("feature", feature_names, text); }
std::string_view to_string(DateForm form) { return name_of(date_form_names, form); }
DateForm parse_date_form(std::string_view text) { return parse_name<DateForm>("dates", date_form_names, text); }

std::string Column::title() const {
  std::string read = feature == Feature::category ? fmt::format("{} = {}", name, category) : name;
  if (ahead > 0) return fmt::format("{} (+{})", read, ahead);
  if (feature == Feature::category) return read;
  return feature == Feature::value ? name : fmt::format("{} ({})", name, to_string(feature));
}

double Column::normal(double value) const {
  if (feature != Feature::value) value = feature_of(feature, value);
  return ((logarithm ? std::log(value) : value) - mean) / scale;
}

bool Column::can_read(double value) const { return std::abs(normal(value)) <= furthest; }

double Column::raw(double normalised) const {
  const double value = normalised * scale + mean;
  if (logarithm) return std::exp(value);
  return non_negative && value <= 0.0 ? 0.0 : value;  // never -0
}

double Column::bounded(double normalised) const {
  return non_negative && normalised < normal(0.0) ? normal(0.0) : normalised;
}

}  // namespace penstock
