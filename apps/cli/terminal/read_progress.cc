#include "terminal/read_progress.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>

#include "terminal/bar.h"
#include "terminal/terminal.h"
#include "terminal/units.h"

namespace penstock::cli {

ProgressLine::ProgressLine(bool quiet) : shown_(!quiet && is_terminal(STDERR_FILENO)) {}

ProgressLine::~ProgressLine() {
  if (drawn_) say("\r\x1b[K");
}

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

ReadProgress::ReadProgress(std::uint64_t total) : total_(total), utf8_(speaks_utf8()) {}

void ReadProgress::add(std::uint64_t bytes) {
  done_ += bytes;
  if (line_.due()) draw();
}

void ReadProgress::draw() {
  const auto done = static_cast<double>(done_);
  const double seconds = line_.seconds();
  std::string text = fmt::format("{} read, {}/s", byte_size(done), byte_size(done / seconds));
  if (total_ > 0) {
    constexpr std::size_t width = 20;
    const double fraction = std::min(1.0, done / static_cast<double>(total_));
    text = fmt::format("{:3.0f} % {}  {}, {} left", 100.0 * fraction, bar(fraction, width, utf8_), text,
                       clock_time(seconds * (1.0 - fraction) / std::max(fraction, 1e-9)));
  }
  line_.draw(text);
}

}  // namespace penstock::cli
