#include "read_progress.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>

#include "bar.h"
#include "terminal.h"
#include "units.h"

namespace penstock::cli {

ReadProgress::ReadProgress(std::uint64_t total)
    : total_(total), shown_(is_terminal(STDERR_FILENO)), utf8_(speaks_utf8()) {}

ReadProgress::~ReadProgress() {
  if (drawn_) say("\r\x1b[K");
}

void ReadProgress::add(std::uint64_t bytes) {
  done_ += bytes;
  if (!shown_) return;
  constexpr auto patience = std::chrono::milliseconds(700), pause = std::chrono::milliseconds(100);
  const auto now = Clock::now();
  if (now - started_ < patience || now - drawn_at_ < pause) return;
  drawn_at_ = now;
  draw(std::chrono::duration<double>(now - started_).count());
}

void ReadProgress::draw(double seconds) {
  const auto done = static_cast<double>(done_);
  std::string text = fmt::format("{} read, {}/s", byte_size(done), byte_size(done / seconds));
  if (total_ > 0) {
    constexpr std::size_t width = 20;
    const double fraction = std::min(1.0, done / static_cast<double>(total_));
    text = fmt::format("{:3.0f} % {}  {}, {} left", 100.0 * fraction, bar(fraction, width, utf8_), text,
                       clock_time(seconds * (1.0 - fraction) / std::max(fraction, 1e-9)));
  }
  say("\r" + text + "\x1b[K");
  drawn_ = true;
}

}  // namespace penstock::cli
