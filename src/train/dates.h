#pragma once

#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

/// Dates as tables hold them.
namespace penstock::data {

/// Which number comes first in dates such as 03/04/2020.
enum class DayOrder { month_first, day_first };

/// Seconds since the start of 1970 (UTC unless the text says otherwise) of a date in one of the usual forms:
///   2020-03-04, 2020/03/04, 2020-03, 2020-03-04T12:30[:45[.5]][Z|+01:00], 20200304
///   04.03.2020 [12:30], 03/04/2020 [12:30[:45] [PM]]
///   4 Mar 2020, Mar 4, 2020, 4-Mar-20, Mar-2020, March 2020
///   2020Q1, 2020-Q1, 2020M03, 2020-W10
/// Nothing for anything else, a plain number among it.
std::optional<double> parse_date(std::string_view text, DayOrder order = DayOrder::month_first);

/// The order in which all of these can be read; month first if both can be or none. `ambiguous`, if given, says whether
/// both can.
DayOrder day_order(std::span<const std::string> texts, bool* ambiguous = nullptr);

/// Whether a column is called as columns of dates are: "date", "Timestamp", "year", ...
bool may_name_dates(std::string_view column);

/// What a column of plain numbers counts in, judged by its name and its values (which rise): days as Excel counts them,
/// seconds since 1970, years, or 20200304. Seconds since 1970 of each value, or nothing if it seems to be none of them.
std::optional<std::vector<double>> dates_from_numbers(std::string_view column, std::span<const double> values);

}  // namespace penstock::data
