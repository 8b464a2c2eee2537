#include "terminal/bench_progress.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <limits>

#include "terminal/bar.h"
#include "terminal/signals.h"
#include "terminal/terminal.h"
#include "terminal/units.h"

namespace penstock::cli {

BenchProgress::BenchProgress(bool quiet) : quiet_(quiet), terminal_(is_terminal(STDERR_FILENO)), utf8_(speaks_utf8()) {}

BenchProgress::~BenchProgress() { finish(); }

void BenchProgress::at(std::size_t done, std::size_t total, const std::string& what) {
  if (quiet_) return;
  const double fraction = static_cast<double>(done) / static_cast<double>(std::max<std::size_t>(1, total));
  const double seconds = std::chrono::duration<double>(Clock::now() - started_).count();
  const double left = done == 0 ? std::numeric_limits<double>::infinity() : seconds * (1 - fraction) / fraction;
  if (!terminal_) {
    if (done < total) say(fmt::format("{}/{} {}\n", done + 1, total, what));
    return;
  }
  constexpr std::size_t width = 20;
  const std::string counts = fmt::format(" {}/{}  {} left  ", done, total, clock_time(left));
  const auto room = static_cast<std::size_t>(std::max(terminal_width(), 40) - 1) - width - 2;
  const std::string text = (counts + what).substr(0, room);
  say("\r" + bar(fraction, width, utf8_) + text + "\x1b[K");
  drawn_ = true;
}

bool BenchProgress::stop() { return interrupted(); }

void BenchProgress::finish() {
  if (drawn_) say("\r\x1b[K");
  drawn_ = false;
}

}  // namespace penstock::cli
