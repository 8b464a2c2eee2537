#include "terminal.h"

#include <fmt/format.h>
#include <langinfo.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>

#include "penstock/error.h"

namespace penstock::cli {
namespace {

/// Writes everything, or returns the error number.
int write_all(int descriptor, std::string_view text) {
  while (!text.empty()) {
    const ssize_t written = ::write(descriptor, text.data(), text.size());
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) return errno;
    text.remove_prefix(static_cast<std::size_t>(written));
  }
  return 0;
}

}  // namespace

void Output::write(std::string_view text) {
  constexpr std::size_t plenty = 1 << 16;
  waiting_ += text;
  if (waiting_.size() >= plenty) flush();
}

void Output::flush() {
  const int error = write_all(STDOUT_FILENO, waiting_);
  waiting_.clear();
  if (error == EPIPE) throw ClosedPipe();
  if (error != 0) {
    throw Error(ErrorCode::io_failure, fmt::format("cannot write to standard output: {}", std::strerror(error)));
  }
}

void say(std::string_view text) { static_cast<void>(write_all(STDERR_FILENO, text)); }

bool is_terminal(int descriptor) {
  const char* kind = std::getenv("TERM");
  return isatty(descriptor) == 1 && kind != nullptr && std::string_view(kind) != "dumb";
}

int terminal_width() {
  winsize size{};
  if (ioctl(STDERR_FILENO, TIOCGWINSZ, &size) != 0 || size.ws_col == 0) return 80;
  return size.ws_col;
}

bool speaks_utf8() { return std::string_view(nl_langinfo(CODESET)) == "UTF-8"; }

}  // namespace penstock::cli
