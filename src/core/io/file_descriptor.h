#pragma once

#include <unistd.h>

#include <cerrno>
#include <utility>

#include "penstock/stop.h"

/// Ownership of POSIX file descriptors, and system calls that signals interrupt.
namespace penstock::io {

/// Owns a POSIX file descriptor.
class FileDescriptor {
 public:
  explicit FileDescriptor(int value) : value_(value) {}
  ~FileDescriptor() { close(); }
  FileDescriptor(FileDescriptor&& other) noexcept : value_(std::exchange(other.value_, -1)) {}
  FileDescriptor& operator=(FileDescriptor&& other) noexcept {
    std::swap(value_, other.value_);
    return *this;
  }

  int get() const { return value_; }
  bool valid() const { return value_ >= 0; }
  /// Closes the file. Returns false with errno set if the system reports an error only now, as network file systems
  /// may.
  bool close() { return value_ < 0 || ::close(std::exchange(value_, -1)) == 0; }

 private:
  int value_;
};

/// Repeats a system call while signals interrupt it, and returns its result. Throws Error(interrupted) if the work of
/// this thread was asked to stop (Stoppable): a pipe may never have more to read.
template <class Call>
auto retry(Call call) {
  auto result = call();
  while (result < 0 && errno == EINTR) {
    stop_if_asked();
    result = call();
  }
  return result;
}

}  // namespace penstock::io
