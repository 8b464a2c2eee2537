#include "data/series/calendar.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "base/check.h"
#include "base/lower_case.h"
#include "base/plural.h"
#include "base/quote.h"
#include "data/series/long_table.h"
#include "data/table/dates.h"
#include "penstock/data/row_steps.h"

namespace penstock::data {
namespace {

constexpr double one_day = 86400.0, one_year = 365.25 * one_day;

struct CycleShape {
  Cycle cycle;
  const char* name;
  double seconds;
  Feature sine, cosine;
};
constexpr CycleShape cycle_shapes[] = {
    {Cycle::day, "the time of day", one_day, Feature::day_sine, Feature::day_cosine},
    {Cycle::week, "the day of the week", 7.0 * one_day, Feature::week_sine, Feature::week_cosine},
    {Cycle::year, "the day of the year", one_year, Feature::year_sine, Feature::year_cosine},
};

/// The fields of one column, as they stand in the files.
std::vector<Field> read_column(const OpenTable& table, std::size_t column) {
  std::vector<Field> fields;
  for (auto rows = table.rows(); rows.next();) fields.push_back(rows.fields()[column]);
  return fields;
}

/// Months and years are as long as they are on average; all else is as long as it mostly is.
double usual_step(double median) {
  constexpr double mean_month = one_year / 12.0;
  const double months = std::round(median / mean_month);
  return months >= 1.0 && std::abs(median / (months * mean_month) - 1.0) < 0.04 ? months * mean_month : median;
}

double median_of(std::vector<double> values) {
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

/// Returns how best to treat a few missing rows of a regular calendar, or dates of an irregular one.
Irregular suit(const Calendar& calendar) {
  constexpr double most_missing = 0.1;  // of the rows that there would be
  constexpr double most_off = 0.02;     // of the rows: an accident
  const auto rows = static_cast<double>(calendar.seconds.size());
  if (static_cast<double>(calendar.off) > most_off * rows) return Irregular::elapsed;
  if (calendar.missing > most_missing * (rows + calendar.missing)) return Irregular::elapsed;
  // Days on which nobody trades are no days of which something is not known.
  return calendar.missing > 0.0 && !calendar.dates.working_days ? Irregular::fill : Irregular::ignore;
}

class CalendarFinder {
 public:
  CalendarFinder(const OpenTable& table, const SeriesOptions& options, const std::vector<RowRun>& runs,
                 const TableValues& values)
      : table_(table), options_(options), runs_(runs), values_(values) {}

  /// Nothing if the column's fields are no dates.
  std::optional<Calendar> look(std::size_t column) const {
    const std::vector<Field> read = read_column(table_, column);
    Calendar calendar;
    calendar.column = column;
    if (!find_form(read, calendar)) return std::nullopt;
    std::optional<std::string_view> zone;
    for (const Field& field : read) {
      const auto date = field.date(calendar.dates.form, table_.format().decimal);
      if (date) calendar.zones_differ = calendar.zones_differ || field.zone() != zone.value_or(field.zone());
      if (date) zone = field.zone();
      calendar.zoned = calendar.zoned || (date && !zone->empty());
      if (!date) calendar.undated.push_back(static_cast<Index>(calendar.seconds.size()));
      calendar.seconds.push_back(date.value_or(std::nan("")));
    }
    if (!are_mostly_dates(read.size() - calendar.undated.size(), read.size())) return std::nullopt;
    if (!calendar.undated.empty()) {
      const auto first = static_cast<std::size_t>(calendar.undated.front());
      calendar.first_undated = fmt::format("{} in line {}", in_quotes(read[first].text()), values_.lines[first]);
    }
    if (!find_steps(calendar)) return std::nullopt;
    return calendar;
  }

  /// Columns of which most of the first rows hold dates, or numbers where the name says that they may be dates.
  std::vector<std::size_t> candidates(const std::vector<std::size_t>& taken) const {
    constexpr Index enough = 100;  // rows
    const auto& names = table_.header().names();
    std::vector<Index> dates(table_.header().width(), 0), fields = dates;
    auto rows = table_.rows();
    for (Index row = 0; row < enough && rows.next(); ++row) {
      for (std::size_t column = 0; column < dates.size(); ++column) {
        const Field& field = rows.fields()[column];
        if (field.is_missing()) continue;
        ++fields[column];
        const bool may_be = may_name_dates(names[column]) && table_.header().looks_numeric(field);
        dates[column] += may_be || looks_like_date(field.text()) ? 1 : 0;
      }
    }
    std::vector<std::size_t> result;
    for (std::size_t column = 0; column < dates.size(); ++column) {
      const bool is_taken = std::ranges::find(taken, column) != taken.end();
      if (!is_taken && 2 * dates[column] > fields[column]) result.push_back(column);
    }
    return result;
  }

  /// Refuses a calendar some of whose rows have no date.
  [[noreturn]] void refuse_undated(const Calendar& calendar) const {
    const Field field = read_column(table_, calendar.column)[static_cast<std::size_t>(calendar.undated.front())];
    const auto more = static_cast<Index>(calendar.undated.size()) - 1;
    fail_with(ErrorCode::bad_input,
              undated_advice() + Message{", ", the_option("calendar", "none"), " ignores all dates"},
              "{}: column {}: {} is no date, unlike the others{}", place(calendar.undated.front()),
              in_quotes(table_.header().names()[calendar.column]), in_quotes(field.text()),
              more > 0 ? fmt::format(" ({} more {} none)", more, more == 1 ? "has" : "have") : "");
  }

  /// Returns the name of a column that says when in a day rows were: "12:30", or the hour; empty if there is none.
  std::string column_of_times(std::size_t dates) const {
    auto rows = table_.rows();
    if (!rows.next()) return {};
    for (std::size_t column = 0; column < table_.header().width(); ++column) {
      const std::string& name = table_.header().names()[column];
      const std::string& text = rows.fields()[column].text();
      const bool clock = is_time_of_day(text);
      const bool hour = lower_case(name) == "hour" && table_.header().looks_numeric(rows.fields()[column]);
      if (column != dates && (clock || hour)) return name;
    }
    return {};
  }

  /// The dates of a column of numbers that do not rise, as those of many series below each other; empty for any other.
  std::vector<double> numbers_below_each_other(std::size_t column) const {
    std::vector<double> numbers;
    for (const Field& field : read_column(table_, column)) {
      if (field.number(table_.format().decimal, numbers.emplace_back()) != std::errc{}) return {};
    }
    if (std::ranges::is_sorted(numbers)) return {};
    std::vector<double> sorted = numbers;
    std::ranges::sort(sorted);
    const auto form = number_form(table_.header().names()[column], sorted);
    if (!form) return {};
    for (double& number : numbers) number = date_from_number(number, *form).value_or(number);
    return numbers;
  }

  /// Why there is none of a column that was asked for, or that is needed.
  [[noreturn]] void refuse(std::size_t column) const {
    const std::string name = in_quotes(table_.header().names()[column]);
    const std::vector<Field> read = read_column(table_, column);
    Calendar calendar;
    calendar.column = column;
    find_form(read, calendar);
    const auto found = look(column);
    for (std::size_t row = 0; row < read.size() && !found; ++row) {
      if (read[row].date(calendar.dates.form, table_.format().decimal)) continue;
      fail(ErrorCode::bad_input, "{}: column {}: {} is no date", place(static_cast<Index>(row)), name,
           in_quotes(read[row].text()));
    }
    if (!found || found->earlier == 0) {
      fail(ErrorCode::bad_input, "{}: the dates of column {} do not rise", table_.header().source(), name);
    }
    fail(ErrorCode::bad_input,
         "{}: the dates of column {} do not rise: {} is earlier than the row before; sort the rows",
         place(found->first_earlier), name, in_quotes(read[found->first_earlier].text()));
  }

  /// Says what becomes of rows that are not when they should be.
  void settle(Calendar& calendar) const {
    if (!calendar.undated.empty()) {
      if (options_.undated == Undated::refuse) refuse_undated(calendar);
      return;
    }
    Irregular& irregular = calendar.dates.irregular;
    irregular = options_.irregular == Irregular::automatic ? suit(calendar) : options_.irregular;
    if (irregular != Irregular::ignore) calendar.dates.column = table_.header().names()[calendar.column];
    if (irregular == Irregular::refuse && calendar.first_uneven >= 0) refuse_uneven(calendar);
    constexpr double most_filled = 10.0;  // for each row that is there
    if (irregular != Irregular::fill ||
        calendar.missing <= most_filled * static_cast<double>(calendar.seconds.size())) {
      return;
    }
    fail_with(ErrorCode::bad_input,
              {"use ", the_option("irregular", "elapsed"), " or ", the_option("irregular", "ignore")},
              "{}: column {}: at a step of {}, {:.0f} rows are missing, too many to insert", table_.header().source(),
              in_quotes(calendar.dates.column), describe_step(calendar.dates.step), calendar.missing);
  }

 private:
  std::string place(Index row) const { return fmt::format("{}:{}", values_.source(row), values_.lines[row]); }

  [[noreturn]] void refuse_uneven(const Calendar& calendar) const {
    const Index row = calendar.first_uneven;
    fail_with(ErrorCode::bad_input, {the_option("irregular"), " (ignore, elapsed or fill) accepts such rows"},
              "{}: column {}: {} is not {} after the row before", place(row), in_quotes(calendar.dates.column),
              in_quotes(read_column(table_, calendar.column)[row].text()),
              calendar.dates.working_days ? "a working day" : describe_step(calendar.dates.step));
  }

  bool find_form(const std::vector<Field>& read, Calendar& calendar) const {
    std::vector<double> numbers;
    std::size_t others = 0;
    for (const Field& field : read) {
      double value = 0.0;
      const bool is_number = field.number(table_.format().decimal, value) == std::errc{};
      others += is_number ? 0 : 1;
      numbers.push_back(is_number ? value : std::nan(""));
    }
    if (others > 0 && !are_mostly_dates(read.size() - others, read.size())) {
      calendar.dates.form = text_form(read, &calendar.ambiguous);
      return !read.empty();
    }
    if (runs_.empty()) return false;
    // Every run may begin anew, so that only the first one tells.
    std::vector<double> first;
    for (const Index row : runs_.front().rows) first.push_back(numbers[row]);
    const auto form = number_form(table_.header().names()[calendar.column], first);
    calendar.dates.form = form.value_or(calendar.dates.form);
    return form.has_value();
  }

  /// False if there is nothing to be said of steps. Throws for a series that goes back in time from row to row: what it
  /// holds would be learnt the wrong way round.
  bool find_steps(Calendar& calendar) const {
    std::vector<double> steps;
    for_each_step(calendar,
                  [&](Index row, Index next) { steps.push_back(calendar.seconds[next] - calendar.seconds[row]); });
    if (steps.empty()) return false;
    calendar.dates.step = usual_step(median_of(std::move(steps)));
    steps.clear();
    for_each_step(calendar, [&](Index row, Index next) {
      steps.push_back(calendar.dates.seconds_between(calendar.seconds[row], calendar.seconds[next]));
      if (steps.back() >= 0.0 || calendar.first_earlier >= 0) return;
      calendar.first_earlier = next;
      calendar.earlier_line = values_.lines[next];
    });
    calendar.earlier = std::ranges::count_if(steps, [](double step) { return step < 0.0; });
    calendar.same = std::ranges::count(steps, 0.0);
    constexpr Index fewest = 3;  // that are no accident
    if (calendar.earlier >= fewest && calendar.earlier + calendar.same == static_cast<Index>(steps.size())) {
      fail(ErrorCode::bad_input,
           "{}: the dates of column {} are descending, and a series is read from old to new: sort the rows by it",
           table_.header().source(), in_quotes(table_.header().names()[calendar.column]));
    }
    calendar.shortest = std::ranges::min(steps);
    calendar.longest = std::ranges::max(steps);
    calendar.dates.working_days = has_working_days(calendar);
    if (calendar.rises()) for_each_step(calendar, [&](Index row, Index next) { count_step(calendar, row, next); });
    return true;
  }

  /// From each row with a date to the next one in its run.
  template <class Visit>
  void for_each_step(const Calendar& calendar, const Visit& visit) const {
    for (const RowRun& run : runs_) {
      std::optional<Index> before;
      for (const Index row : run.rows) {
        if (std::isnan(calendar.seconds[row])) continue;
        if (before) visit(*before, row);
        before = row;
      }
    }
  }

  /// Returns whether the rows stand for all days from Monday to Friday.
  bool has_working_days(const Calendar& calendar) const {
    constexpr std::size_t enough = 10;  // rows, among which there is a weekend
    if (calendar.dates.step != one_day || calendar.seconds.size() < enough) return false;
    return std::ranges::none_of(calendar.seconds, [](double date) {
      if (std::isnan(date)) return false;
      const double days = std::floor(date / one_day) + 3.0;  // since a Monday
      return days - 7.0 * std::floor(days / 7.0) >= 5.0;
    });
  }

  static void count_step(Calendar& calendar, Index row, Index next) {
    const double before = calendar.seconds[row], after = calendar.seconds[next];
    if (calendar.dates.is_regular(before, after)) return;
    constexpr double most_off = 0.25;  // of a step
    const double steps = (after - before) / calendar.dates.step;
    const bool on_calendar = calendar.dates.working_days || std::abs(steps - std::round(steps)) <= most_off;
    ++calendar.uneven;
    if (calendar.first_uneven < 0) calendar.first_uneven = next;
    calendar.missing += calendar.dates.missing_between(before, after);
    if (!on_calendar) ++calendar.off;
  }

  const OpenTable& table_;
  const SeriesOptions& options_;
  const std::vector<RowRun>& runs_;
  const TableValues& values_;
};

/// Describes irregular steps, as in ", with 12 irregular steps, a day to 3 days", and how they are treated.
std::string describe_uneven(const Calendar& calendar) {
  std::string text;
  if (calendar.uneven > 0) {
    text += fmt::format(", with {}, {} to {}", counted(calendar.uneven, "irregular step"),
                        calendar.shortest > 0.0 ? describe_step(calendar.shortest) : "none",
                        describe_step(calendar.longest));
  }
  if (calendar.same > 0) {
    text += fmt::format(", {} row{} the date of the one before", calendar.same, calendar.same == 1 ? " has" : "s have");
  }
  if (calendar.dates.irregular == Irregular::fill && calendar.missing > 0.0) {
    text += fmt::format("; {:.0f} missing row{} inserted as missing values", calendar.missing,
                        calendar.missing == 1.0 ? "" : "s");
  }
  return text;
}

bool is_one_series(const OpenTable& table, const SeriesOptions& options) {
  return options.group.empty() && !options.group_by_file && table.sources().size() <= 1;
}

/// Where nobody says that the table holds many series, but dates that come again show it.
void refuse_many_series(const OpenTable& table, const SeriesOptions& options, const Calendar& calendar) {
  if (!is_one_series(table, options) || calendar.earlier + calendar.same == 0) return;
  refuse_long_table(table, calendar.column, calendar.seconds);
}

}  // namespace

void choose_cycles(Calendar& calendar, const CalendarOptions& options, const training::DatedRows& rows) {
  double earliest = std::numeric_limits<double>::infinity(), latest = -earliest;
  for (const training::Segment& segment : rows.segments) {
    earliest = std::min(earliest, rows.seconds[segment.first]);
    latest = std::max(latest, rows.seconds[segment.training_end - 1]);
  }
  const double step = calendar.dates.step, span = latest - earliest + step;
  const bool asked = !options.cycles.empty();
  std::vector<CycleShape> possible;
  std::vector<double> lengths;
  for (const CycleShape& shape : cycle_shapes) {
    const bool fits = 2.0 * step < shape.seconds;
    const bool wanted = asked ? std::ranges::find(options.cycles, shape.cycle) != options.cycles.end()
                              : fits && span >= 2.0 * shape.seconds;
    if (!wanted) continue;
    require_about(fits, "calendar", ": rows are {} apart, too far for {}", describe_step(step), shape.name);
    possible.push_back(shape);
    lengths.push_back(shape.seconds);
  }
  const std::vector<bool> follows = asked ? std::vector<bool>(possible.size(), true) : cycles_shown(rows, lengths);
  for (std::size_t i = 0; i < possible.size(); ++i) {
    if (follows[i]) {
      calendar.features.push_back(possible[i].sine);
      calendar.features.push_back(possible[i].cosine);
    } else {
      calendar.not_followed.push_back(possible[i].cycle);
    }
  }
}

Message Calendar::describe(const std::string& name) const {
  if (!rises()) {
    const std::string why = earlier > 0 ? fmt::format("{} row{} earlier than the one before, first in line {}", earlier,
                                                      earlier == 1 ? " is" : "s are", earlier_line)
                                        : fmt::format("{} rows have the date of the one before", same);
    const Message remedy =
        time_column.empty()
            ? Message{earlier > 0 ? "sort the rows by it, or if" : "if", " the file holds many series, ",
                      the_option("group"), " separates them"}
            : Message(fmt::format("write the date and {} into one column, as in 2024-03-01 12:30", time_column));
    return fmt::format("{}: not read, because {}; ", name, why) + remedy;
  }
  const std::string apart = dates.working_days ? "a working day" : describe_step(dates.step);
  std::string text = fmt::format("{}: a row {}{}", name, apart.starts_with('a') ? "" : "every ", apart);
  text += describe_uneven(*this);
  if (ambiguous) text += ", read as month/day/year";
  if (zoned) text += ", in UTC";
  if (zones_differ) {
    text += " (where clocks change, habits of local time move by an hour; local times without a time zone keep them)";
  }
  std::vector<std::string> read, left_out;
  for (const CycleShape& shape : cycle_shapes) {
    if (std::ranges::find(features, shape.sine) != features.end()) read.emplace_back(shape.name);
    if (std::ranges::find(not_followed, shape.cycle) != not_followed.end()) left_out.emplace_back(shape.name);
  }
  if (dates.irregular == Irregular::elapsed) read.emplace_back("the time since the row before");
  if (!read.empty()) text += fmt::format("; {} as input", fmt::join(read, ", "));
  if (!passed_over.empty()) text += "; " + passed_over;
  if (!left_out.empty()) {
    text += fmt::format("; {} {}, because the training rows do not follow {}", fmt::join(left_out, ", "),
                        left_out.size() == 1 ? "is no input" : "are no inputs", left_out.size() == 1 ? "it" : "them");
  }
  return text;
}

std::optional<Calendar> find_calendar(const OpenTable& table, const SeriesOptions& options,
                                      const std::vector<std::size_t>& taken, const std::vector<RowRun>& runs,
                                      const TableValues& values) {
  for (const Cycle cycle : options.calendar.cycles) check_enum("cycle", cycle, Cycle::year);
  check_enum("irregular", options.irregular, Irregular::refuse);
  check_enum("undated", options.undated, Undated::drop);
  const CalendarFinder finder(table, options, runs, values);
  if (!options.calendar.column.empty()) {
    const std::size_t column = table.column(options.calendar.column, "date_column");
    auto found = finder.look(column);
    if (found) refuse_many_series(table, options, *found);
    if (!found || !found->rises()) finder.refuse(column);
    finder.settle(*found);
    return found;
  }
  auto first = table.rows();
  if (!first.next()) return std::nullopt;
  const auto& names = table.header().names();
  for (std::size_t column = 0; column < table.header().width() && is_one_series(table, options); ++column) {
    if (!may_name_dates(names[column]) || !table.header().looks_numeric(first.fields()[column])) continue;
    refuse_long_table(table, column, finder.numbers_below_each_other(column));
  }
  std::optional<Calendar> partly, falls;
  for (const std::size_t column : finder.candidates(taken)) {
    auto found = finder.look(column);
    if (found) refuse_many_series(table, options, *found);
    if (found && found->is_whole()) {
      if (partly) {
        found->passed_over = fmt::format("{} is not read, because {} is no date",
                                         in_quotes(table.header().names()[partly->column]), partly->first_undated);
      }
      finder.settle(*found);
      return found;
    }
    if (!found) continue;
    std::optional<Calendar>& kept = found->rises() ? partly : falls;
    if (!found->rises() && found->same > 0) found->time_column = finder.column_of_times(column);
    if (!kept) kept = std::move(found);
  }
  if (partly) {
    finder.settle(*partly);
    return partly;
  }
  const bool needed = options.irregular != Irregular::automatic && options.irregular != Irregular::ignore;
  if (needed && falls) finder.refuse(falls->column);
  require_about(options.calendar.cycles.empty() && !needed, needed ? "irregular" : "calendar",
                ": {} has no column of dates that rise among {}", table.header().source(), table.header().list());
  return falls;
}

}  // namespace penstock::data
