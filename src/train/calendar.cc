#include "train/calendar.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <span>

#include "base/check.h"
#include "base/quote.h"
#include "train/dates.h"
#include "train/number.h"

namespace penstock::data {
namespace {

constexpr double hour = 3600.0, one_day = 24.0 * hour, month = 30.44 * one_day, one_year = 365.25 * one_day;

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

/// "a day", "15 minutes", "a month"; months and years are as long as they are.
std::string describe_step(double seconds) {
  struct Unit {
    const char* name;
    double seconds;
  };
  constexpr Unit units[] = {{"year", one_year}, {"month", month}, {"week", 7.0 * one_day}, {"day", one_day},
                            {"hour", hour},     {"minute", 60.0}, {"second", 1.0}};
  for (const Unit& unit : units) {
    const double count = seconds / unit.seconds, whole = std::round(count);
    const double tolerance = unit.seconds > 8.0 * one_day ? 0.1 : 1e-6;
    if (whole < 1.0 || std::abs(count - whole) > tolerance) continue;
    if (whole > 1.0) return fmt::format("{} {}s", whole, unit.name);
    return fmt::format("{} {}", unit.name == std::string("hour") ? "an" : "a", unit.name);
  }
  return fmt::format("{:.3g} seconds", seconds);
}

/// The fields of one column, segment by segment.
std::vector<std::string> read_column(const CsvTable& table, std::size_t column, const SeriesTable& series) {
  std::vector<std::string> in_files, result;
  for (auto rows = table.rows(); rows.next();) in_files.push_back(rows.fields()[column].text);
  for (const Index row : series.order) result.push_back(in_files[static_cast<std::size_t>(row)]);
  return result;
}

class CalendarFinder {
 public:
  CalendarFinder(const CsvTable& table, const CalendarOptions& options, const SeriesTable& series)
      : table_(table), options_(options), series_(series) {}

  /// Nothing if the column's fields are no dates.
  std::optional<Calendar> look(std::size_t column) const {
    const std::vector<std::string> read = read_column(table_, column, series_);
    Calendar calendar;
    calendar.column = column;
    if (!find_form(read, calendar)) return std::nullopt;
    for (const std::string& text : read) {
      const auto date = read_date(text, calendar.form, table_.format().decimal);
      if (!date) return std::nullopt;
      calendar.seconds.push_back(*date);
    }
    if (!find_steps(calendar)) return std::nullopt;
    if (calendar.rises()) choose_cycles(calendar);
    return calendar;
  }

  /// Why look() found none.
  [[noreturn]] void refuse(std::size_t column) const {
    const std::string name = in_quotes(table_.header().names()[column]);
    const std::vector<std::string> read = read_column(table_, column, series_);
    Calendar calendar;
    calendar.column = column;
    find_form(read, calendar);
    for (std::size_t row = 0; row < read.size(); ++row) {
      if (read_date(read[row], calendar.form, table_.format().decimal)) continue;
      fail(ErrorCode::bad_input, "{}:{}: column {}: {} is no date", series_.values.source(static_cast<Index>(row)),
           series_.values.lines[row], name, in_quotes(read[row]));
    }
    fail(ErrorCode::bad_input, "{}: the dates of column {} do not rise", table_.header().source(), name);
  }

 private:
  bool find_form(const std::vector<std::string>& read, Calendar& calendar) const {
    std::vector<double> numbers;
    for (const std::string& text : read) {
      double value = 0.0;
      if (parse_number(text, table_.format().decimal, value) != std::errc{}) break;
      numbers.push_back(value);
    }
    if (numbers.size() < read.size()) {
      calendar.form = text_form(read, &calendar.ambiguous);
      return !read.empty();
    }
    // Every segment may begin anew, so that only the first one tells.
    const auto first = static_cast<std::size_t>(series_.segments.front().end);
    const auto form = number_form(table_.header().names()[calendar.column], std::span(numbers).first(first));
    calendar.form = form.value_or(calendar.form);
    return form.has_value();
  }

  /// False if there is nothing to be said of steps. Throws for a series that goes back in time from row to row: what it
  /// holds would be learnt the wrong way round.
  bool find_steps(Calendar& calendar) const {
    std::vector<double> steps;
    for (const training::Segment& segment : series_.segments) {
      for (auto row = static_cast<std::size_t>(segment.first) + 1; row < static_cast<std::size_t>(segment.end); ++row) {
        steps.push_back(calendar.seconds[row] - calendar.seconds[row - 1]);
      }
    }
    if (steps.empty()) return false;
    calendar.earlier = std::ranges::count_if(steps, [](double step) { return step < 0.0; });
    calendar.same = std::ranges::count(steps, 0.0);
    constexpr Index fewest = 3;  // that are no accident
    if (calendar.earlier >= fewest && calendar.earlier + calendar.same == static_cast<Index>(steps.size())) {
      fail(ErrorCode::bad_input,
           "{}: the dates of column {} go from new to old, and a series is read from old to new: sort the rows by it",
           table_.header().source(), in_quotes(table_.header().names()[calendar.column]));
    }
    calendar.shortest = std::ranges::min(steps);
    calendar.longest = std::ranges::max(steps);
    const std::size_t middle = steps.size() / 2;
    std::vector<double> sorted = steps;
    std::nth_element(sorted.begin(), sorted.begin() + static_cast<std::ptrdiff_t>(middle), sorted.end());
    calendar.step = sorted[middle];
    // Months and years differ in length, and clocks are put forward.
    const double tolerance = calendar.step < one_day         ? 1.5
                             : calendar.step > 8.0 * one_day ? 0.12 * calendar.step
                                                             : 4000.0;
    calendar.uneven =
        std::ranges::count_if(steps, [&](double step) { return std::abs(step - calendar.step) > tolerance; });
    return true;
  }

  void choose_cycles(Calendar& calendar) const {
    double earliest = std::numeric_limits<double>::infinity(), latest = -earliest;
    for (const training::Segment& segment : series_.segments) {
      earliest = std::min(earliest, calendar.seconds[static_cast<std::size_t>(segment.first)]);
      latest = std::max(latest, calendar.seconds[static_cast<std::size_t>(segment.training_end) - 1]);
    }
    const double span = latest - earliest + calendar.step;
    for (const CycleShape& shape : cycle_shapes) {
      const bool fits = 2.0 * calendar.step < shape.seconds;
      if (options_.cycles.empty() ? !fits || span < 2.0 * shape.seconds : !asked_for(shape.cycle)) continue;
      require(fits, "calendar: rows are {} apart, too far for {}", describe_step(calendar.step), shape.name);
      calendar.features.push_back(shape.sine);
      calendar.features.push_back(shape.cosine);
    }
  }

  bool asked_for(Cycle cycle) const { return std::ranges::find(options_.cycles, cycle) != options_.cycles.end(); }

  const CsvTable& table_;
  const CalendarOptions& options_;
  const SeriesTable& series_;
};

}  // namespace

std::string Calendar::describe(const std::string& name) const {
  if (!rises()) {
    const std::string why =
        earlier > 0 ? fmt::format("{} row{} earlier than the one before", earlier, earlier == 1 ? " is" : "s are")
                    : fmt::format("{} rows have the date of the one before", same);
    return fmt::format("{}: not read, as {}; if the file holds many series, the option 'group' tells them apart", name,
                       why);
  }
  const std::string apart = describe_step(step);
  std::string text = fmt::format("{}: a row {}{}", name, apart.starts_with('a') ? "" : "every ", apart);
  if (uneven > 0) {
    text += fmt::format(", {} of them not: the steps between dates differ, {} to {}", uneven,
                        shortest > 0.0 ? describe_step(shortest) : "none", describe_step(longest));
  }
  if (same > 0) text += fmt::format(", {} row{} the date of the one before", same, same == 1 ? " has" : "s have");
  if (ambiguous) text += ", read as month/day/year";
  std::vector<std::string> cycles;
  for (const CycleShape& shape : cycle_shapes) {
    if (std::ranges::find(features, shape.sine) != features.end()) cycles.emplace_back(shape.name);
  }
  if (!cycles.empty()) text += fmt::format("; {} as input", fmt::join(cycles, ", "));
  return text;
}

std::optional<Calendar> find_calendar(const CsvTable& table, const CalendarOptions& options,
                                      const std::vector<std::size_t>& taken, const SeriesTable& series) {
  for (const Cycle cycle : options.cycles) check_enum("cycle", cycle, Cycle::year);
  const CalendarFinder finder(table, options, series);
  if (!options.column.empty()) {
    const std::size_t column = table.column(options.column, "calendar");
    auto found = finder.look(column);
    if (!found || !found->rises()) finder.refuse(column);
    return found;
  }
  auto first = table.rows();
  if (!first.next()) return std::nullopt;
  const auto& names = table.header().names();
  std::optional<Calendar> falls;
  for (std::size_t column = 0; column < names.size(); ++column) {
    if (std::ranges::find(taken, column) != taken.end()) continue;
    const std::string& text = first.fields()[column].text;
    if (!parse_date(text) && !(may_name_dates(names[column]) && table.header().looks_numeric(text))) continue;
    auto found = finder.look(column);
    if (found && found->rises()) return found;
    if (found && !falls) falls = std::move(found);
  }
  require(options.cycles.empty(), "calendar: {} has no column of dates that rise among {}", table.header().source(),
          table.header().list());
  return falls;
}

}  // namespace penstock::data
