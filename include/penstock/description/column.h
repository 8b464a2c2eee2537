#pragma once

#include <string>
#include <string_view>

#include "penstock/types.h"

/// Columns that a model reads or predicts, with their scaling.
namespace penstock {

/// Form of the dates in a column.
enum class DateForm {
  month_first,   ///< 2020-03-04, 4 Mar 2020, 2020Q1 and the like; 03/04/2020 is in March.
  day_first,     ///< As month_first, but 03/04/2020 is in April.
  excel,         ///< Excel's day numbers.
  year,          ///< Year numbers: 2020.
  digits,        ///< Eight digits: 20200304.
  seconds,       ///< Seconds since the start of 1970.
  milliseconds,  ///< Milliseconds since the start of 1970.
};

/// Returns the name of a date form: "month-first", "excel", ...
std::string_view to_string(DateForm form);
/// Returns the date form of that name. Throws Error(invalid_argument) that lists the names.
DateForm parse_date_form(std::string_view text);

/// The quantity that an input derives from its column.
enum class Feature {
  value,        ///< The number in the column.
  missing,      ///< 1 if the value is missing, otherwise 0.
  category,     ///< 1 if the text is Column::category, otherwise 0.
  day_sine,     ///< Sine of the time of day as an angle, from midnight to midnight.
  day_cosine,   ///< Cosine of that angle.
  week_sine,    ///< Sine of the time of the week as an angle, from Monday to Monday.
  week_cosine,  ///< Cosine of that angle.
  year_sine,    ///< Sine of the time of the year as an angle, from 1 January to 1 January.
  year_cosine,  ///< Cosine of that angle.
  elapsed,      ///< log2(1 + u) - 1, with u the time since the previous row in units of the usual time; 0 for u = 1.
};

/// Returns the name of a feature as written above: "day_sine".
std::string_view to_string(Feature feature);
/// Returns the feature of that name. Throws Error(invalid_argument) that lists the names.
Feature parse_feature(std::string_view text);

/// One input or target: a column of the table, what is read from it, and its scaling.
///
/// The normalised value is (v - mean) / scale, with v the feature of the raw value, or its logarithm if `logarithm`.
struct Column {
  std::string name;
  double mean = 0.0;
  double scale = 1.0;
  bool logarithm = false;  ///< Scales the logarithm of the values, which must all be positive.
  Feature feature = Feature::value;
  DateForm dates = DateForm::month_first;  ///< Form of the dates, for features of dates.
  std::string category = {};               ///< The text that Feature::category compares with.
  Index ahead = 0;  ///< Reads the value of the row that many rows later, which is known in advance. 0: this row.
  bool non_negative = false;  ///< Forecasts and their quantiles are at least 0. For targets without `logarithm`.

  /// Returns the normalised value of a raw value; NaN if its logarithm does not exist. The raw value of a date is its
  /// seconds since the start of 1970.
  double normal(double value) const;
  /// Returns the raw value of a normalised value, at least 0 if `non_negative`. For Feature::value only.
  double raw(double normalised) const;
  /// Returns the normalised forecast that counts: at least that of 0 if `non_negative`.
  double bounded(double normalised) const;
  /// Largest magnitude of a normalised value that models accept. Larger numbers, such as 3.4e38, are markers for
  /// missing values, and a sum with them would lose all other digits.
  static constexpr double furthest = 1e12;
  /// Returns whether the normalised value of a raw value is a number of at most `furthest` in magnitude.
  bool can_read(double value) const;
  /// Returns whether the feature is derived from dates.
  bool reads_dates() const { return feature > Feature::category; }
  /// Returns whether `other` has the same column, feature and category, whatever its `ahead`.
  bool reads_same(const Column& other) const {
    return name == other.name && feature == other.feature && category == other.category;
  }
  /// Returns the name, with the feature and `ahead` unless it is the value of the row: "date (year_sine)",
  /// "price (+3)", "weekday = Monday".
  std::string title() const;
};

}  // namespace penstock
