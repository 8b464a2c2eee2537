#pragma once

#include <optional>
#include <string_view>

/// Tables: their format, and the treatment of missing values.
namespace penstock {

/// Format of a table. Fields that are not set are detected from its first rows; Dataset::reading() reports what was
/// found.
struct TableFormat {
  char delimiter = 0;                         ///< Separator of fields; 0: detect.
  char decimal = 0;                           ///< Decimal mark, '.' or ','; 0: detect.
  std::optional<bool> header = std::nullopt;  ///< True if the first row holds column names; empty: detect.
};

/// Treatment of missing values: empty fields, NA, NaN, null, ?.
enum class Missing {
  refuse,       ///< Error that names the place.
  carry,        ///< The last value of the column; before that, the first value.
  interpolate,  ///< Linear interpolation between the neighbouring values; as carry at the ends of the data.
  mask,         ///< As carry, plus an input Feature::missing; forecasts of missing values are not scored.
};

std::string_view to_string(Missing missing);
/// Returns the treatment of that name. Throws Error(invalid_argument) for anything except "refuse", "carry",
/// "interpolate" and "mask".
Missing parse_missing(std::string_view text);

/// Describes the tables that a model reads.
struct TableDescription {
  char delimiter = ',';               ///< Separator of the CSV rows.
  char decimal = '.';                 ///< Decimal mark of their numbers.
  bool header = true;                 ///< True if tables have a header; if not, columns are "column1", "column2", ...
  Missing missing = Missing::refuse;  ///< How training treated missing values.
};

}  // namespace penstock
