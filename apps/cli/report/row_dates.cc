#include "report/row_dates.h"

#include <fmt/chrono.h>
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cmath>
#include <ctime>
#include <map>
#include <optional>

namespace penstock::cli::reporting {
namespace {

constexpr double minute = 60.0, hour = 3600.0, day = 86400.0, week = 7 * day;
constexpr double first_monday = 4 * day;  // 1970 began on a Thursday

std::chrono::year_month_day civil_date(double seconds) {
  return std::chrono::sys_days(std::chrono::days(static_cast<int>(std::floor(seconds / day))));
}

double seconds_of(const std::chrono::year_month_day& date) {
  return day * static_cast<double>(std::chrono::sys_days(date).time_since_epoch().count());
}

/// Since the start of year 0.
double months_until(double seconds) {
  const auto date = civil_date(seconds);
  return 12.0 * static_cast<int>(date.year()) + static_cast<unsigned>(date.month()) - 1.0;
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

/// fmt's own format of a time, without a time zone.
std::string written(const char* format, double seconds) {
  return fmt::format(fmt::runtime(format), fmt::gmtime(static_cast<std::time_t>(std::floor(seconds))));
}

double years_until(double seconds) { return static_cast<int>(civil_date(seconds).year()); }
double weeks_until(double seconds) { return std::floor((seconds - first_monday) / week); }
double seconds_until(double seconds) { return seconds; }

constexpr const char *year_text = "{:%Y}", *month_text = "{:%Y-%m}", *day_text = "{:%Y-%m-%d}",
                     *minute_text = "{:%m-%d %H:%M}", *second_text = "{:%H:%M:%S}";

/// A unit that begins now and then, and what is written where it does.
struct TickUnit {
  double (*until)(double seconds);  ///< How often it has begun.
  const char* format;
  std::array<double, 7> times;  ///< Of which only every so many count; 0: none.
};

/// Units of ticks, from the longest to the shortest.
constexpr TickUnit tick_units[] = {
    {years_until, year_text, {100, 50, 20, 10, 5, 2, 1}},
    {months_until, month_text, {6, 3, 1}},
    {weeks_until, day_text, {2, 1}},
    {seconds_until, day_text, {2 * day, day}},
    {seconds_until, minute_text, {12 * hour, 6 * hour, 3 * hour, hour}},
    {seconds_until, minute_text, {30 * minute, 10 * minute, 5 * minute, minute}},
    {seconds_until, second_text, {30, 10, 5, 1}},
};

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

std::vector<std::string> date_texts(const std::vector<double>& dates) {
  const auto all = [&](const auto& begins) { return std::ranges::all_of(dates, begins); };
  const auto whole = [](double unit) { return [unit](double date) { return std::fmod(date, unit) == 0.0; }; };
  const bool days = all(whole(day));
  const bool months = days && all([](double date) { return civil_date(date).day() == std::chrono::day(1); });
  const bool years = months && all([](double date) { return civil_date(date).month() == std::chrono::January; });
  const char* const format = years                ? year_text
                             : months             ? month_text
                             : days               ? day_text
                             : all(whole(minute)) ? "{:%Y-%m-%d %H:%M}"
                                                  : "{:%Y-%m-%d %H:%M:%S}";
  std::vector<std::string> texts;
  for (const double date : dates) texts.push_back(written(format, date));
  return texts;
}

DateWriter::DateWriter(std::span<const double> dates, DateForm form, bool utc)
    : format_("{:%Y-%m-%d %H:%M:%S}"), zone_(utc ? "Z" : "") {
  const auto whole = [](double unit) { return [unit](double date) { return std::fmod(date, unit) == 0.0; }; };
  fractions_ = !std::ranges::all_of(dates, whole(1.0));
  if (!utc && std::ranges::all_of(dates, whole(day))) format_ = form == DateForm::year ? year_text : day_text;
}

std::string DateWriter::text(double seconds) const {
  if (!fractions_) return written(format_, seconds) + zone_;
  const double micros = std::round(seconds * 1e6), whole = std::floor(micros / 1e6);
  return fmt::format("{}.{:06.0f}{}", written(format_, whole), micros - whole * 1e6, zone_);
}

std::vector<DateTick> date_ticks(const std::vector<double>& dates, std::size_t most) {
  std::vector<DateTick> finest;
  for (const TickUnit& unit : tick_units) {
    for (auto times = unit.times.begin(); times != unit.times.end() && *times > 0.0; ++times) {
      const auto number = [&](double seconds) { return std::floor(unit.until(seconds) / *times); };
      std::vector<DateTick> ticks;
      for (std::size_t row = 0; row < dates.size(); ++row) {
        const double before = row > 0 ? dates[row - 1] : dates[row] - 1.0;
        if (number(before) != number(dates[row])) ticks.push_back({row, written(unit.format, dates[row])});
      }
      if (ticks.size() > most) return finest;
      if (ticks.size() > finest.size()) finest = std::move(ticks);
    }
  }
  return finest;
}

}  // namespace penstock::cli::reporting
