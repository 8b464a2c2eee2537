#pragma once

#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "base/check.h"
#include "data/table/field.h"
#include "penstock/description/column.h"

/// Dates as tables hold them.
namespace penstock::data {

/// Seconds since the start of 1970 (UTC unless the text says otherwise) of a date in one of the usual forms:
///   2020-03-04, 2020/03/04, 2020-03, 2020-03-04T12:30[:45[.5]][Z|+01:00], 20200304
///   04.03.2020 [12:30], 03/04/2020 [12:30[:45] [PM]]
///   4 Mar 2020, Mar 4, 2020, 4-Mar-20, Mar-2020, March 2020
///   2020Q1, 2020-Q1, 2020M03, 2020-W10
/// Nothing for anything else, a plain number among it.
std::optional<double> parse_date(std::string_view text, DateForm form = DateForm::month_first);

/// Returns what stands for the time zone behind the time of such a date; empty if it has none.
std::string_view zone_of(std::string_view date);

/// Returns whether a text is a date in one of these forms, in either order of day and month.
bool looks_like_date(std::string_view text);

/// Returns whether a text is a time of day: 12:30, 12:30:45, 2:30 PM.
bool is_time_of_day(std::string_view text);

/// Advice of messages about a date that cannot be read.
inline Message undated_advice() { return {the_option("undated", "drop"), " leaves such rows out"}; }

/// Returns whether a column is one of dates, even if some cannot be read: all its fields are dates, or at least three
/// and more than half.
bool are_mostly_dates(std::size_t dates, std::size_t fields);

/// The form of fields by which most of these can be read; month first if that is undecided. `ambiguous`, if given, says
/// whether it is, and the two forms differ.
DateForm text_form(std::span<const Field> fields, bool* ambiguous = nullptr);

/// Returns whether a column has a name of dates: "date", "Timestamp", "year", ...
bool may_name_dates(std::string_view column);

/// Returns the unit in which a column of plain numbers counts time, by its name and its values, which must rise;
/// nothing if they seem to be no dates. NaN stands for fields that are no number. Of three values and more, a tenth (at
/// least one) may be no dates.
std::optional<DateForm> number_form(std::string_view column, std::span<const double> values);

/// Seconds since the start of 1970 of a number in such a form; nothing if it is no date.
std::optional<double> date_from_number(double value, DateForm form);

}  // namespace penstock::data
