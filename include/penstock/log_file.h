#pragma once

#include <string>
#include <string_view>

/// Log files that grow record by record.
namespace penstock {

/// A file that grows record by record while others read it, such as the metrics of a run. A failure of the log does not
/// end the run: the first record that cannot be written ends the log, and is removed again if the file is regular.
class LogFile {
 public:
  /// How to open the file. replace: starts an empty file. append: continues on a new line, even if a killed writer left
  /// an unfinished one. create: the file must not exist.
  enum class Begin { replace, append, create };

  LogFile() = default;  ///< Makes a log that writes nothing.
  /// Opens a log. `what` describes it in messages: "cannot write metrics". Throws Error(io_failure), which begins with
  /// the path and `what`.
  LogFile(std::string path, Begin begin, std::string what);
  ~LogFile();
  LogFile(LogFile&& other) noexcept;
  LogFile& operator=(LogFile&& other) noexcept;

  bool is_open() const { return descriptor_ >= 0; }
  /// Writes a record immediately. After the first failure, records are dropped.
  void write(std::string_view record);
  /// Returns why the log ended; empty while it has not.
  const std::string& error() const { return error_; }

 private:
  void end_torn_line();

  std::string path_, what_, error_;
  int descriptor_ = -1;
};

}  // namespace penstock
