#include "input.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "penstock/data.h"
#include "penstock/error.h"
#include "signals.h"
#include "units.h"

namespace penstock::cli {
namespace {

[[noreturn]] void cannot_read(const std::string& name) {
  throw Error(ErrorCode::io_failure, fmt::format("{}: cannot read: {}", printable(name), std::strerror(errno)));
}

}  // namespace

Input::Input(const std::string& path) : name_(path), buffer_(1 << 16) {
  if (path.ends_with(".gz") || path.ends_with(".ts")) {
    whole_ = read_source(path);
    return;
  }
  descriptor_ = path == "-" ? STDIN_FILENO : open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (descriptor_ < 0) cannot_read(name_);
}

Input::~Input() {
  if (descriptor_ > STDIN_FILENO) close(descriptor_);
}

void Input::show_progress() {
  struct stat status = {};
  const bool sized = !whole_ && fstat(descriptor_, &status) == 0 && S_ISREG(status.st_mode);
  progress_ = std::make_unique<ReadProgress>(sized ? static_cast<std::uint64_t>(status.st_size) : 0);
}

std::string_view Input::read() {
  if (whole_) {
    buffer_.assign(whole_->begin(), whole_->end());
    whole_->clear();
    return interrupted() ? std::string_view() : std::string_view(buffer_.data(), buffer_.size());
  }
  while (!interrupted()) {
    const ssize_t size = ::read(descriptor_, buffer_.data(), buffer_.size());
    if (size >= 0 && progress_) progress_->add(static_cast<std::uint64_t>(size));
    if (size >= 0) return {buffer_.data(), static_cast<std::size_t>(size)};
    if (errno != EINTR) cannot_read(name_);
  }
  return {};
}

bool Input::line(std::string& line) {
  constexpr std::size_t longest = 1 << 24;
  line.clear();
  bool found = false;
  while (!found) {
    if (waiting_.empty()) waiting_ = read();
    if (waiting_.empty()) break;
    const std::size_t end = waiting_.find('\n');
    found = end != std::string_view::npos;
    line += waiting_.substr(0, end);
    waiting_.remove_prefix(found ? end + 1 : waiting_.size());
    if (line.size() > longest) {
      throw Error(ErrorCode::bad_input, fmt::format("{}:{}: a line of more than {} bytes", name_, lines_ + 1, longest));
    }
  }
  if (!found && line.empty()) return false;
  if (interrupted() && !found) return false;  // half a line is none
  ++lines_;
  if (line.ends_with('\r')) line.pop_back();
  return true;
}

}  // namespace penstock::cli
