#pragma once

#include <string>

namespace penstock::cli {

/// Keeps other processes from writing to the same path for as long as it lives, by a lock on `path`.lock.
class OutputLock {
 public:
  /// Throws Error(invalid_argument) if another process holds it, Error(io_failure) if the system refuses.
  OutputLock(const std::string& option, const std::string& path);
  ~OutputLock();
  OutputLock(const OutputLock&) = delete;
  OutputLock& operator=(const OutputLock&) = delete;

  /// Returns where the lock of an output lies.
  static std::string path_for(const std::string& output);

 private:
  void check_is_lock(const std::string& option) const;

  std::string path_;
  int descriptor_ = -1;
};

}  // namespace penstock::cli
