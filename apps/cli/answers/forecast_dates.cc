#include "answers/forecast_dates.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <map>
#include <optional>

#include "report/date_texts.h"

namespace penstock::cli::reporting {
namespace {

double seconds_of(const std::chrono::year_month_day& date) {
  return day * static_cast<double>(std::chrono::sys_days(date).time_since_epoch().count());
}

bool is_month_end(double seconds) { return months_until(seconds + day) > months_until(seconds); }

/// Dates that are whole months apart: of an example, the same day and time in other months.
struct Monthly {
  int apart = 0;  ///< Months
  bool ends = false;

  double after(double seconds, int dates) const {
    const auto date = civil_date(seconds);
    const auto month = std::chrono::year_month(date.year(), date.month()) + std::chrono::months(apart * dates);
    const double time = seconds - seconds_of(date);
    const std::chrono::year_month_day same = month / date.day();
    return time + seconds_of(ends || !same.ok() ? std::chrono::year_month_day(month / std::chrono::last) : same);
  }
};

std::optional<Monthly> monthly(const std::vector<double>& dates) {
  const auto apart = static_cast<int>(months_until(dates[1]) - months_until(dates[0]));
  if (apart < 1) return std::nullopt;
  for (const bool ends : {false, true}) {
    if (ends && !std::ranges::all_of(dates, is_month_end)) continue;
    if (!ends && civil_date(dates[0]).day() > std::chrono::day(28)) continue;  // that not every month has
    const Monthly found{.apart = apart, .ends = ends};
    bool all = true;
    for (std::size_t i = 1; i < dates.size(); ++i) all = all && dates[i] == found.after(dates[i - 1], 1);
    if (all) return found;
  }
  return std::nullopt;
}

bool is_working_day(double seconds) {
  const double days = std::floor((seconds - first_monday) / day);
  return days - 7.0 * std::floor(days / 7.0) < 5.0;
}

/// Times of the day and days of the week at which there are rows, as at an exchange that opens at nine.
class OpeningHours {
 public:
  OpeningHours() = default;
  /// Rows are `apart`, less than a day. All times are open unless these dates say plainly that some are not.
  OpeningHours(const std::vector<double>& dates, double apart) {
    constexpr std::size_t visits = 3;  // of a time, on average, that make a habit
    if (!(apart < day) || std::fmod(day, apart) != 0.0) return;
    for (const double date : dates) ++times_[time_of(date)], ++days_[day_of(date)];
    if (dates.size() < visits * times_.size()) times_.clear();
    if (dates.back() - dates.front() <= week) days_.clear();
  }
  bool are_known() const { return !times_.empty(); }
  bool hold(double date) const {
    return !are_known() || (is_usual(times_, time_of(date)) && is_usual(days_, day_of(date)));
  }

 private:
  using Counts = std::map<double, std::size_t>;

  static double time_of(double date) { return date - day * std::floor(date / day); }
  static double day_of(double date) {
    const double days = std::floor((date - first_monday) / day);
    return days - 7.0 * std::floor(days / 7.0);
  }
  /// A row at a time of its own is an accident.
  static bool is_usual(const Counts& counts, double key) {
    constexpr std::size_t rare = 10;  // times as often as which others come
    const auto by_count = [](const auto& each) { return each.second; };
    const auto found = counts.find(key);
    return counts.empty() ||
           (found != counts.end() && rare * found->second >= by_count(*std::ranges::max_element(counts, {}, by_count)));
  }

  Counts times_, days_;
};

struct EvenSteps {
  double apart = 0.0;
  bool working_days = false;
};

constexpr double mean_month = 365.25 * day / 12.0;

/// Returns a step in months, as in training, if at least half of these dates agree: 30 days look like a month, too.
std::optional<Monthly> monthly(const std::vector<double>& dates, const RowDates& usual) {
  const auto apart = static_cast<int>(std::round(usual.step / mean_month));
  if (apart < 1) return std::nullopt;
  const Monthly found{.apart = apart, .ends = std::ranges::all_of(dates, is_month_end)};
  std::size_t same = 0;
  for (std::size_t i = 1; i < dates.size(); ++i) same += dates[i] == found.after(dates[i - 1], 1) ? 1 : 0;
  return 2 * same + 1 >= dates.size() ? std::optional(found) : std::nullopt;
}

/// How all others go on.
EvenSteps even_steps(const std::vector<double>& dates) {
  std::vector<double> steps;
  for (std::size_t i = 1; i < dates.size(); ++i) steps.push_back(dates[i] - dates[i - 1]);
  const auto middle = steps.begin() + static_cast<std::ptrdiff_t>(steps.size() / 2);
  std::ranges::nth_element(steps, middle);
  const bool sees_a_weekend = dates.back() - dates.front() > week;
  return {.apart = *middle,
          .working_days = *middle == day && sees_a_weekend && std::ranges::all_of(dates, is_working_day)};
}

/// Returns whether `count` dates, so far apart, can all be written.
bool can_be_written(double last, double apart, std::size_t count) {
  const double end = last + apart * static_cast<double>(count);
  return end >= earliest_date && end <= latest_date;
}

}  // namespace

std::vector<double> without_gaps(std::vector<double> dates) {
  if (dates.empty() || std::isnan(dates.front()) || std::isnan(dates.back())) return {};
  for (std::size_t begin = 0, end = 1; end < dates.size(); ++end) {
    if (std::isnan(dates[end])) continue;
    const double apart = (dates[end] - dates[begin]) / static_cast<double>(end - begin);
    for (std::size_t i = begin + 1; i < end; ++i) dates[i] = dates[begin] + apart * static_cast<double>(i - begin);
    begin = end;
  }
  return dates;
}

std::vector<double> dates_to_come(const std::vector<double>& dates, std::size_t count, const RowDates* usual) {
  constexpr std::size_t telling = 8;  // dates that say by themselves how far they are apart
  std::vector<double> all;
  const bool known = usual != nullptr && usual->step > 0.0;
  if (const auto months = known ? monthly(dates, *usual) : monthly(dates)) {
    if (!can_be_written(dates.back(), months->apart * mean_month, count)) return {};
    for (std::size_t i = 1; i <= count; ++i) all.push_back(months->after(dates.back(), static_cast<int>(i)));
    return all;
  }
  const bool as_usual = known && (usual->working_days || dates.size() < telling);
  const EvenSteps steps =
      as_usual ? EvenSteps{.apart = usual->step, .working_days = usual->working_days} : even_steps(dates);
  OpeningHours open(dates, steps.apart);
  const double with_pauses = open.are_known() ? week : steps.working_days ? 7.0 / 5.0 * steps.apart : steps.apart;
  if (!can_be_written(dates.back(), with_pauses, count)) return {};
  double last = dates.back();
  for (double date = last + steps.apart; all.size() < count; date += steps.apart) {
    if (date - last > 2 * week) {  // the last row was at a time of its own
      open = {};
      date = last + steps.apart;
    }
    if ((!steps.working_days || is_working_day(date)) && open.hold(date)) all.push_back(last = date);
  }
  return all;
}

}  // namespace penstock::cli::reporting
