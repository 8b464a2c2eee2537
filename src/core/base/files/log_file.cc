#include "penstock/log_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include "base/check.h"
#include "base/files/write_all.h"
#include "penstock/file_writer.h"
#include "penstock/sources.h"

namespace penstock {
namespace {

int flags_of(LogFile::Begin begin) {
  constexpr int common = O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC | O_NOCTTY;
  if (begin == LogFile::Begin::replace) return common | O_TRUNC;
  return begin == LogFile::Begin::create ? common | O_EXCL | O_NOFOLLOW : common;
}

}  // namespace

LogFile::LogFile(std::string path, Begin begin, std::string what) : path_(std::move(path)), what_(std::move(what)) {
  descriptor_ = ::open(path_.c_str(), flags_of(begin), 0666);
  if (descriptor_ < 0) {
    fail(ErrorCode::io_failure, "{}: {}: {}{}", path_, what_, why_not_written(path_, errno),
         address_advice(path_, true));
  }
  if (begin == Begin::append) end_torn_line();
}

LogFile::~LogFile() {
  if (descriptor_ >= 0) ::close(descriptor_);
}

LogFile::LogFile(LogFile&& other) noexcept
    : path_(std::move(other.path_)),
      what_(std::move(other.what_)),
      error_(std::move(other.error_)),
      descriptor_(std::exchange(other.descriptor_, -1)) {}

LogFile& LogFile::operator=(LogFile&& other) noexcept {
  std::swap(path_, other.path_);
  std::swap(what_, other.what_);
  std::swap(error_, other.error_);
  std::swap(descriptor_, other.descriptor_);
  return *this;
}

void LogFile::end_torn_line() {
  struct stat status {};
  if (::fstat(descriptor_, &status) != 0 || !S_ISREG(status.st_mode) || status.st_size == 0) return;
  const int file = ::open(path_.c_str(), O_RDONLY | O_CLOEXEC);
  char last = '\n';
  if (file >= 0 && ::pread(file, &last, 1, status.st_size - 1) != 1) last = '\n';
  if (file >= 0) ::close(file);
  if (last != '\n') write("\n");
}

void LogFile::write(std::string_view record) {
  if (descriptor_ < 0) return;
  struct stat before {};
  const bool is_regular = ::fstat(descriptor_, &before) == 0 && S_ISREG(before.st_mode);
  const int error = write_all(descriptor_, record, is_regular);
  if (error == 0) return;
  if (is_regular && ::ftruncate(descriptor_, before.st_size) != 0) errno = 0;  // the torn line stays, as after a kill
  error_ = fmt::format("{}: {}: {}", path_, what_, std::strerror(error));
  ::close(std::exchange(descriptor_, -1));
}

}  // namespace penstock
