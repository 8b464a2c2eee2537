#include "terminal.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <langinfo.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <utility>

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

Output::Output(std::string path) : path_(path == "-" ? "" : std::move(path)), descriptor_(STDOUT_FILENO) {
  if (!is_file()) return;
  std::error_code unknown;
  target_ = std::filesystem::weakly_canonical(path_, unknown).string();
  temporary_ = target_ + ".tmp";
  descriptor_ = open(temporary_.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, 0666);
  if (descriptor_ < 0) fail(errno);
}

Output::~Output() {
  if (!is_file() || descriptor_ < 0) return;
  close(descriptor_);
  if (!temporary_.empty()) unlink(temporary_.c_str());
}

void Output::write(std::string_view text) {
  constexpr std::size_t plenty = 1 << 16;
  waiting_ += text;
  if (waiting_.size() >= plenty) flush();
}

void Output::flush() {
  const int error = write_all(descriptor_, waiting_);
  size_ += waiting_.size();
  waiting_.clear();
  if (error == EPIPE && !is_file()) throw ClosedPipe();
  if (error != 0) fail(error);
}

void Output::finish() {
  flush();
  if (!is_file()) return;
  const bool synced = fsync(descriptor_) == 0;
  if (!synced || rename(temporary_.c_str(), target_.c_str()) != 0) fail(errno);
  temporary_.clear();
}

void Output::fail(int error) const {
  const std::string where = is_file() ? fmt::format("'{}'", path_) : "to standard output";
  throw Error(ErrorCode::io_failure, fmt::format("cannot write {}: {}", where, std::strerror(error)));
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
