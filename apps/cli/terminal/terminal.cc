#include "terminal/terminal.h"

#include <fmt/format.h>
#include <langinfo.h>
#include <poll.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <utility>

#include "penstock/error.h"
#include "terminal/signals.h"
#include "terminal/units.h"

namespace penstock::cli {
namespace {

/// Waits until the descriptor takes bytes. False if the user wants to stop and nobody makes room: a reader that is only
/// slow has a second to get the rest.
bool wait_for_room(int descriptor) {
  constexpr int grace = 1000;  // milliseconds
  pollfd waiting[] = {{descriptor, POLLOUT, 0}, {interrupt_descriptor(), POLLIN, 0}};
  while (poll(waiting, 2, -1) < 0) {
    if (errno != EINTR) return false;  // after a signal, the other descriptor has something to read
  }
  if (waiting[0].revents != 0 || waiting[1].revents == 0) return true;
  const auto until = std::chrono::steady_clock::now() + std::chrono::milliseconds(grace);
  for (;;) {
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(until - std::chrono::steady_clock::now());
    const int ready = poll(waiting, 1, std::max(0, static_cast<int>(left.count())));
    if (ready >= 0 || errno != EINTR) return ready > 0;
  }
}

/// Writes everything, or returns the error number: EINTR if the user wants to stop and nobody reads.
int write_all(int descriptor, std::string_view text) {
  struct stat status = {};
  const bool may_wait = fstat(descriptor, &status) != 0 || !S_ISREG(status.st_mode);
  while (!text.empty()) {
    if (may_wait && !wait_for_room(descriptor)) return EINTR;
    // A pipe with room for some bytes has room for so many, and the call does not wait.
    const ssize_t written =
        ::write(descriptor, text.data(), may_wait ? std::min<std::size_t>(text.size(), PIPE_BUF) : text.size());
    if (written < 0 && (errno == EINTR || errno == EAGAIN)) continue;
    if (written < 0) return errno;
    text.remove_prefix(static_cast<std::size_t>(written));
  }
  return 0;
}

}  // namespace

Output::Output(std::string path) : path_(path == "-" ? "" : std::move(path)) {
  if (is_file()) file_.emplace(path_);
}

void Output::write(std::string_view text) {
  constexpr std::size_t plenty = 1 << 16;
  waiting_ += text;
  if (waiting_.size() >= plenty) flush();
}

void Output::flush() {
  // Text that cannot be written is dropped: it must not be written again on the way out.
  const std::string text = std::exchange(waiting_, "");
  size_ += text.size();
  if (is_file()) return file_->write(text);
  const int error = write_all(STDOUT_FILENO, text);
  if (error == EPIPE) throw ClosedPipe();
  if (error == EINTR) throw Interrupted();
  if (error == 0) return;
  fail(ErrorCode::io_failure, "cannot write to standard output: {}", std::strerror(error));
}

void Output::finish() {
  flush();
  if (is_file()) file_->finish();
}

int print_answer(std::string_view text) {
  Output output;
  output.write(text);
  output.flush();
  return 0;
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
