#include "options/output_lock.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <string_view>

#include "options/output_file.h"
#include "penstock/error.h"
#include "penstock/file_writer.h"
#include "terminal/units.h"

namespace penstock::cli {
namespace {

/// Returns whether the open file is still the one of this name: the previous holder of the lock may have removed it.
bool is_named(int descriptor, const std::string& path) {
  struct stat open_file = {}, named = {};
  return fstat(descriptor, &open_file) == 0 && stat(path.c_str(), &named) == 0 && open_file.st_ino == named.st_ino &&
         open_file.st_dev == named.st_dev;
}

/// How a lock's content begins, so that no other file of its name is taken for a lock and removed.
constexpr std::string_view lock_mark = "lock of penstock ";

std::string content_of(int descriptor) {
  std::array<char, 64> text = {};
  const ssize_t size = pread(descriptor, text.data(), text.size() - 1, 0);
  return {text.data(), static_cast<std::size_t>(std::max<ssize_t>(size, 0))};
}

}  // namespace

std::string OutputLock::path_for(const std::string& output) { return behind_links(output) + ".lock"; }

OutputLock::OutputLock(const std::string& option, const std::string& path) : path_(path_for(path)) {
  for (;;) {
    descriptor_ = open(path_.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0666);
    if (descriptor_ < 0) cannot_write(option, path_, why_not_written(path_, errno));
    if (flock(descriptor_, LOCK_EX | LOCK_NB) != 0) {
      const std::string who = content_of(descriptor_);
      close(descriptor_);
      fail(ErrorCode::invalid_argument, "{} {}: another run{} is writing to it", option, printable(path),
           who.starts_with(lock_mark) ? fmt::format(" (process {})", printable(who.substr(lock_mark.size()))) : "");
    }
    if (is_named(descriptor_, path_)) break;
    close(descriptor_);
  }
  check_is_lock(option);
  // Only for the message of a process that finds the lock taken.
  const std::string process = fmt::format("{}{}", lock_mark, getpid());
  if (ftruncate(descriptor_, 0) != 0 || pwrite(descriptor_, process.data(), process.size(), 0) < 0) return;
}

/// Refuses a file that somebody else keeps under the name of the lock.
void OutputLock::check_is_lock(const std::string& option) const {
  const std::string content = content_of(descriptor_);
  if (content.empty() || content.starts_with(lock_mark)) return;
  close(descriptor_);
  fail(ErrorCode::invalid_argument, "{}: {} is there already and is not a lock; move it, or name another output",
       option, printable(path_));
}

OutputLock::~OutputLock() {
  unlink(path_.c_str());
  close(descriptor_);
}

}  // namespace penstock::cli
