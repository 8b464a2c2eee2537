#include "terminal/bench_progress.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>

#include "terminal/signals.h"
#include "terminal/terminal.h"
#include "terminal/units.h"

namespace penstock::cli {

void BenchProgress::at(std::size_t done, std::size_t total, const std::string& what) {
  if (quiet_) return;
  if (!line_.shown()) {
    if (done < total) say(fmt::format("{}/{} {}\n", done + 1, total, what));
    return;
  }
  const double fraction = static_cast<double>(done) / static_cast<double>(std::max<std::size_t>(1, total));
  const double left = done == 0 ? std::numeric_limits<double>::infinity() : line_.seconds() * (1 - fraction) / fraction;
  line_.draw_bar(fraction, fmt::format(" {}/{}  {} left  {}", done, total, clock_time(left), what));
}

bool BenchProgress::stop() { return interrupted(); }

}  // namespace penstock::cli
