#include "terminal/input.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include "penstock/data.h"
#include "penstock/error.h"
#include "penstock/sources.h"
#include "terminal/signals.h"
#include "terminal/terminal.h"
#include "terminal/units.h"

namespace penstock::cli {
namespace {

[[noreturn]] void cannot_read(const std::string& name) {
  fail(ErrorCode::io_failure, "{}: cannot read: {}{}", printable(name), std::strerror(errno),
       address_advice(name, false));
}

}  // namespace

Input::Input(const std::string& path, Holds holds) : name_(path), buffer_(1 << 16) {
  if (holds == Holds::table && is_converted_table(path)) {
    take_whole(read_table(path));
    return;
  }
  descriptor_ = path == "-" ? STDIN_FILENO : open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (descriptor_ < 0 && errno == EINTR && interrupted()) throw Interrupted();  // nobody wrote to a FIFO
  if (descriptor_ < 0) cannot_read(name_);
  struct stat status = {};
  may_wait_ = fstat(descriptor_, &status) != 0 || !S_ISREG(status.st_mode);
}

Input::~Input() {
  if (descriptor_ > STDIN_FILENO) close(descriptor_);
}

void Input::show_progress() {
  struct stat status = {};
  const bool sized = descriptor_ >= 0 && fstat(descriptor_, &status) == 0 && S_ISREG(status.st_mode);
  progress_ = std::make_unique<ReadProgress>(sized ? static_cast<std::uint64_t>(status.st_size) : 0);
}

std::size_t Input::read_behind(std::size_t begin) {
  while (!interrupted()) {
    // A signal that comes just before read() would not end its wait.
    pollfd waiting[] = {{descriptor_, POLLIN, 0}, {interrupt_descriptor(), POLLIN, 0}};
    const int ready = may_wait_ ? poll(waiting, 2, -1) : 0;
    if ((ready < 0 && errno == EINTR) || (ready > 0 && waiting[0].revents == 0)) continue;
    const ssize_t size = ::read(descriptor_, buffer_.data() + begin, buffer_.size() - begin);
    if (size >= 0 && progress_) progress_->add(static_cast<std::uint64_t>(size));
    if (size >= 0) return static_cast<std::size_t>(size);
    if (errno != EINTR) cannot_read(name_);
  }
  return 0;
}

void Input::take_whole(std::string_view text) {
  buffer_.assign(text.begin(), text.end());
  whole_ = true;
}

/// Two bytes tell what is to be decoded, and nothing of that can be told before its end.
std::size_t Input::begin() {
  std::size_t size = read_behind(0);
  const bool may_go_on = size == 1 && (buffer_[0] == '\x1f' || buffer_[0] == '\xff' || buffer_[0] == '\xfe');
  if (may_go_on) size += read_behind(1);
  if (!is_encoded({buffer_.data(), size})) return size;
  std::string content(buffer_.data(), size);
  while ((size = read_behind(0)) > 0) {
    content.append(buffer_.data(), size);
    if (content.size() > largest_source) fail(ErrorCode::bad_input, "{}: more than {} bytes", name_, largest_source);
  }
  if (!interrupted()) take_whole(decoded(content, name_));
  return whole_ ? buffer_.size() : 0;
}

std::string_view Input::read() {
  std::size_t size = 0;
  if (!std::exchange(begun_, true)) {
    size = whole_ ? buffer_.size() : begin();
  } else if (!whole_) {
    size = read_behind(0);
  }
  return interrupted() ? std::string_view() : std::string_view(buffer_.data(), size);
}

std::string Input::rest(std::size_t most) {
  std::string text;
  for (std::string_view part = read(); !part.empty(); part = read()) {
    text += part;
    if (text.size() > most) fail(ErrorCode::bad_input, "{}: more than {} bytes", name_, most);
  }
  return text;
}

std::string read_option_file(const std::string& option, const std::string& path, std::size_t most) {
  try {
    return Input(path).rest(most);
  } catch (const Error& error) {
    throw Error(error.code(), option + " " + error.what());
  }
}

bool Input::line(std::string& line) {
  constexpr std::size_t longest = 1 << 24;
  line.clear();
  bool found = false;
  while (!found && !interrupted()) {
    if (waiting_.empty()) waiting_ = read();
    if (waiting_.empty()) break;
    const std::size_t end = waiting_.find('\n');
    found = end != std::string_view::npos;
    line += waiting_.substr(0, end);
    waiting_.remove_prefix(found ? end + 1 : waiting_.size());
    if (line.size() > longest) {
      fail(ErrorCode::bad_input, "{}:{}: a line of more than {} bytes", name_, lines_ + 1, longest);
    }
  }
  if (!found && interrupted() && lines_ == 0) throw Interrupted();
  if (!found && (line.empty() || interrupted())) return false;  // half a line is none
  ++lines_;
  if (line.ends_with('\r')) line.pop_back();
  return true;
}

}  // namespace penstock::cli
