#include "commands/train/save_patiently.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <thread>

#include "terminal/describe.h"
#include "terminal/signals.h"
#include "terminal/terminal.h"
#include "terminal/units.h"

namespace penstock::cli {

void save_patiently(const Model& model, const std::string& path, const History& history, double seconds_of_training) {
  constexpr double least = 5.0, most = 600.0;
  const double patience = std::clamp(seconds_of_training, least, most);
  const auto begin = std::chrono::steady_clock::now();
  for (bool first = true;; first = false) {
    try {
      return save_model(model, path, history);
    } catch (const Error& error) {
      const double waited = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
      if (error.code() != ErrorCode::io_failure || waited >= patience || interrupted()) throw;
      if (first) {
        say(fmt::format("warning: {}; trying again for {}: make room, or end this with Ctrl-C\n",
                        printable(error.what()), clock_time(patience)));
      }
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(500));
  }
}

}  // namespace penstock::cli
