#pragma once

#include <unistd.h>

#include <cerrno>
#include <string_view>

namespace penstock {

/// Writes all bytes. Returns 0, or the error number. What goes into a pipe may wait for ever, so a signal ends it
/// (EINTR); a disk (`is_regular`) does not wait, and goes on.
inline int write_all(int file, std::string_view bytes, bool is_regular) {
  while (!bytes.empty()) {
    const ssize_t written = ::write(file, bytes.data(), bytes.size());
    if (written < 0 && errno == EINTR && is_regular) continue;
    if (written < 0) return errno;
    bytes.remove_prefix(static_cast<std::size_t>(written));
  }
  return 0;
}

}  // namespace penstock
