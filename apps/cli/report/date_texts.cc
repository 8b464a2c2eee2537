#include "report/date_texts.h"

#include <fmt/chrono.h>
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <ctime>

namespace penstock::cli::reporting {

std::chrono::year_month_day civil_date(double seconds) {
  return std::chrono::sys_days(std::chrono::days(static_cast<int>(std::floor(seconds / day))));
}

double months_until(double seconds) {
  const auto date = civil_date(seconds);
  return 12.0 * static_cast<int>(date.year()) + static_cast<unsigned>(date.month()) - 1.0;
}

namespace {

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

}  // namespace

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
