#include "terminal/progress.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <cmath>
#include <numbers>
#include <utility>

#include "terminal/terminal.h"
#include "terminal/units.h"

namespace penstock::cli {
namespace {

constexpr std::size_t gap = 2;  // between fields

}  // namespace

std::string shown_loss(const Measures& measures, double loss, double accuracy) {
  switch (measures.task) {
    case Task::language:
      return fmt::format("{} bits/{}", short_number(loss / std::numbers::ln2), measures.unit == "B" ? "byte" : "token");
    case Task::classify:
      return fmt::format("{} {}  acc {:.1f} %", measures.loss_name, short_number(loss), 100.0 * accuracy);
    case Task::forecast:
      break;
  }
  return fmt::format("{} {}", measures.loss_name, short_number(loss));
}

std::string shown_rate(const Measures& measures, double per_second) {
  if (measures.unit == "B") return byte_size(per_second) + "/s";
  return fmt::format("{} {}/s", short_count(per_second), measures.unit);
}

ProgressReport::ProgressReport(Measures measures, bool quiet)
    : measures_(std::move(measures)), quiet_(quiet), line_(quiet) {}

void ProgressReport::step(const Progress& progress) {
  measure(progress);
  if (!progress.warning.empty()) warn(progress);
  if (line_.shown()) return draw_bar(progress);
  print_or_keep(progress);
}

/// Prints a line if the one before is old enough.
void ProgressReport::print_or_keep(const Progress& progress) {
  if (quiet_) return;
  if (progress.fraction >= 1.0) {
    last_ = progress;
  } else if (is_due()) {
    print_line(progress);
  }
}

void ProgressReport::finish() {
  if (last_) print_line(*last_);
  last_.reset();
  line_.end();
}

bool ProgressReport::is_due() const {
  constexpr auto pause = std::chrono::seconds(5);
  return !reported_ || Clock::now() - *reported_ >= pause;
}

void ProgressReport::validation(const Progress& progress, const Evaluation& evaluation) {
  validation_ = evaluation;
  if (line_.shown()) return draw_bar(progress);
  print_or_keep(progress);  // validations by steps come many a second where the data are few
}

/// A report's rate is that since the report before it; the first one counts from our own start, because the seconds of
/// a resumed run began earlier.
void ProgressReport::measure(const Progress& progress) {
  const double own = std::chrono::duration<double>(Clock::now() - started_).count();
  const double interval = last_seconds_ ? progress.seconds - *last_seconds_ : std::min(own, progress.seconds);
  if (!last_seconds_) first_step_ = progress.step - 1;
  last_step_ = progress.step;
  done_ += progress.positions_per_second * interval;
  seconds_ += interval;
  last_seconds_ = progress.seconds;
}

std::vector<ProgressReport::Field> ProgressReport::fields(const Progress& progress) const {
  std::vector<Field> all = {{shown_loss(measures_, progress.loss, progress.accuracy), 9}};
  if (validation_) {
    const bool accuracy = measures_.task == Task::classify;
    const double value = measures_.task == Task::language ? validation_->bits_per_step : validation_->loss;
    all.push_back(
        {accuracy ? fmt::format("val {:.1f} %", 100.0 * validation_->accuracy) : "val " + short_number(value), 7});
  }
  all.push_back({shown_rate(measures_, progress.positions_per_second), 6});
  all.push_back({fmt::format("step {}", progress.step), 4});
  all.push_back({clock_time(progress.seconds), 5});
  all.push_back({clock_time(progress.seconds_left) + " left", 8});
  if (measures_.task == Task::language) all.push_back({"loss " + short_number(progress.loss), 3});
  return all;
}

void ProgressReport::draw_bar(const Progress& progress) {
  constexpr std::size_t narrowest = 10, widest = 30, edges = 2;
  const std::string percent = fmt::format("{:3.0f} % ", std::floor(100.0 * progress.fraction));
  const auto room = static_cast<std::size_t>(std::max(terminal_width() - 1, 20));  // the last column would wrap
  std::vector<Field> all = fields(progress);
  const auto used = [&] {
    std::size_t columns = percent.size() + edges;
    for (const Field& field : all) columns += gap + field.text.size();
    return columns;
  };
  while (used() + narrowest > room && all.size() > 1) {
    all.erase(std::min_element(all.begin(), all.end(),
                               [](const Field& a, const Field& b) { return a.importance < b.importance; }));
  }
  const std::size_t width = room > used() ? std::min({room - used(), widest, bar_width_}) : 0;
  bar_width_ = width;
  std::string line = percent + bar(progress.fraction, width);
  for (const Field& field : all) line += std::string(gap, ' ') + field.text;
  line_.draw(line);
}

void ProgressReport::print_line(const Progress& progress) {
  std::string line = fmt::format("{:.0f} %", std::floor(100.0 * progress.fraction));
  for (const Field& field : fields(progress)) line += std::string(gap, ' ') + field.text;
  say(line + "\n");
  reported_ = Clock::now();
}

/// Every skipped step and every rollback is news; that gradients (still) vanish is not.
void ProgressReport::warn(const Progress& progress) {
  constexpr auto pause = std::chrono::seconds(30);
  const bool news = progress.skipped > skipped_ || progress.rollbacks > rollbacks_;
  skipped_ = progress.skipped;
  rollbacks_ = progress.rollbacks;
  std::string kind = progress.warning.text();
  std::erase_if(kind, [](unsigned char c) { return std::isalpha(c) == 0; });
  const auto [said, first] = warned_.try_emplace(kind, Clock::now());
  if (!news && !first && Clock::now() - said->second < pause) return;
  said->second = Clock::now();
  line_.erase();
  say(fmt::format("warning: {}\n", printable(progress.warning.text())));
}

}  // namespace penstock::cli
