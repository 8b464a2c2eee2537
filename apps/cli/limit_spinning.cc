#include "limit_spinning.h"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <climits>
#include <cstdlib>
#include <string>
#include <string_view>

#include "base/spin_turns.h"

namespace penstock::cli {
namespace {

constexpr const char *spin_count = "GOMP_SPINCOUNT", *started_anew = "PENSTOCK_STARTED_ANEW";

/// Returns whether a command keeps several threads at work. Commands that measure do not count: they measure the
/// machine as it is.
bool computes(const char* command) {
  constexpr std::array<std::string_view, 5> commands = {"train", "predict", "evaluate", "generate", "report"};
  return command != nullptr && std::ranges::find(commands, std::string_view(command)) != commands.end();
}

}  // namespace

void limit_spinning(char** arguments) {
  if (std::getenv(started_anew) != nullptr) {
    // Not for programs that this one starts: the library has read it.
    unsetenv(started_anew);
    unsetenv(spin_count);
    return;
  }
  if (arguments[0] == nullptr || !computes(arguments[1])) return;
  if (std::getenv(spin_count) != nullptr || std::getenv("OMP_WAIT_POLICY") != nullptr) return;
  std::array<char, PATH_MAX> program;
  const ssize_t size = readlink("/proc/self/exe", program.data(), program.size() - 1);
  if (size <= 0) return;  // no such file system: threads spin as they do
  program[static_cast<std::size_t>(size)] = '\0';
  setenv(spin_count, std::to_string(spin_turns(kSpinMicroseconds)).c_str(), 0);
  setenv(started_anew, "1", 0);
  execv(program.data(), arguments);
  unsetenv(started_anew);
  unsetenv(spin_count);
}

}  // namespace penstock::cli
