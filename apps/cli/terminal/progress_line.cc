#include "terminal/progress_line.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <utility>

#include "penstock/work.h"
#include "terminal/terminal.h"
#include "terminal/units.h"

namespace penstock::cli {
namespace {

constexpr std::size_t bar_cells = 20;

}  // namespace

std::string bar(double fraction, std::size_t width) {
  const double cells = std::clamp(fraction, 0.0, 1.0) * static_cast<double>(width);
  auto full = static_cast<std::size_t>(cells);
  std::string text;
  if (!speaks_utf8()) {
    text.assign(full, '#');
    text.resize(width, '.');
    return "[" + text + "]";
  }
  constexpr const char* eighths[] = {"", "▏", "▎", "▍", "▌", "▋", "▊", "▉"};
  for (std::size_t i = 0; i < full; ++i) text += "█";
  const auto part = static_cast<std::size_t>((cells - static_cast<double>(full)) * 8.0);
  text += eighths[part];
  if (part > 0) ++full;
  return "▕" + text + std::string(width - full, ' ') + "▏";
}

ProgressLine::ProgressLine(bool quiet) : shown_(!quiet && is_terminal(STDERR_FILENO)) {}

bool ProgressLine::due() {
  constexpr auto patience = std::chrono::milliseconds(700), pause = std::chrono::milliseconds(100);
  if (!shown_) return false;
  const auto now = Clock::now();
  if (now - started_ < patience || now - drawn_at_ < pause) return false;
  drawn_at_ = now;
  return true;
}

void ProgressLine::draw(const std::string& text) {
  say("\r" + text + "\x1b[K");
  drawn_ = true;
}

void ProgressLine::draw_bar(double fraction, const std::string& text) {
  const auto room = static_cast<std::size_t>(std::max(terminal_width(), 40) - 1) - bar_cells - 2;
  draw(bar(fraction, bar_cells) + text.substr(0, room));
}

void ProgressLine::erase() {
  if (drawn_) say("\r\x1b[K");
  drawn_ = false;
}

void ProgressLine::end() {
  if (drawn_) say("\n");
  drawn_ = false;
}

WorkProgress::WorkProgress(std::string source, bool quiet)
    : source_(std::move(source)), quiet_(quiet), line_(quiet), watched_([this] {
        show();
        return false;
      }) {}

void WorkProgress::show() {
  constexpr Index many = 100;
  const Work* const work = Work::of_this_thread();
  if (!line_.shown() && !quiet_ && work != nullptr && work->parts() >= many && work->what() != said_) {
    said_ = work->what();
    say(fmt::format("fit    {} of {} columns\n", said_, with_commas(work->parts())));
  }
  if (!line_.due()) return;
  const std::string at = work == nullptr ? "reading " + printable(source_)
                                         : fmt::format("{}, {} of {}", work->what(), with_commas(work->done()),
                                                       with_commas(work->parts()));
  line_.draw(fmt::format("{}: {}", at, clock_time(line_.seconds())));
}

void ReadProgress::add(std::uint64_t bytes) {
  done_ += bytes;
  if (!line_.due()) return;
  const auto done = static_cast<double>(done_);
  const double seconds = line_.seconds();
  std::string text = fmt::format("{} read, {}/s", byte_size(done), byte_size(done / seconds));
  if (total_ > 0) {
    const double fraction = std::min(1.0, done / static_cast<double>(total_));
    text = fmt::format("{:3.0f} % {}  {}, {} left", 100.0 * fraction, bar(fraction, bar_cells), text,
                       clock_time(seconds * (1.0 - fraction) / std::max(fraction, 1e-9)));
  }
  line_.draw(text);
}

}  // namespace penstock::cli
