#pragma once

#include <string>
#include <string_view>

namespace penstock {

/// A file that grows record by record while others read it, such as metrics of a run. A log is not worth a run: the
/// first record that cannot be written is taken back, where the file is a regular one, and ends the log.
class LogFile {
 public:
  /// replace: begins an empty file; append: goes on in a line of its own, behind a line that a killed writer left
  /// unfinished; create: the file must not exist.
  enum class Begin { replace, append, create };

  LogFile() = default;  ///< Writes nothing.
  /// Throws Error(io_failure), which begins with the path and `what`: "cannot write metrics".
  LogFile(std::string path, Begin begin, std::string what);
  ~LogFile();
  LogFile(LogFile&& other) noexcept;
  LogFile& operator=(LogFile&& other) noexcept;

  bool is_open() const { return descriptor_ >= 0; }
  /// Hands the record to the system at once. After the first failure, records are dropped.
  void write(std::string_view record);
  /// Why the log ended; empty if it did not.
  const std::string& error() const { return error_; }

 private:
  void end_torn_line();

  std::string path_, what_, error_;
  int descriptor_ = -1;
};

}  // namespace penstock
