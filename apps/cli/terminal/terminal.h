#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "penstock/file_writer.h"

/// Standard output and standard error, without stdio: answers leave when we say so, and failures are seen.
namespace penstock::cli {

/// Thrown when the reader of our output has exited, as `head` does; the program then ends quietly.
struct ClosedPipe {};

/// Thrown when the user wants to stop while we wait for a reader that does not read.
struct Interrupted {};

/// Standard output, or a file that appears whole or not at all (FileWriter). Throws ClosedPipe, Interrupted, or
/// Error(io_failure) when the system refuses to write.
class Output {
 public:
  /// Standard output where `path` is empty or "-".
  explicit Output(std::string path = "");
  Output(const Output&) = delete;
  Output& operator=(const Output&) = delete;
  /// Drops text that was not flushed, and a file that was not finished.
  ~Output() = default;

  /// Keeps the text until flush(), or until there is a lot of it.
  void write(std::string_view text);
  void flush();
  /// Flushes, and puts the file in its place.
  void finish();

  bool is_file() const { return !path_.empty(); }
  /// Bytes written so far.
  std::uint64_t size() const { return size_; }

 private:
  std::string waiting_;
  std::string path_;  // empty: standard output
  std::optional<FileWriter> file_;
  std::uint64_t size_ = 0;
};

/// Writes a whole answer to standard output. Returns the exit status 0.
int print_answer(std::string_view text);

/// Writes to standard error and does not care whether it arrives: a run must not die because its reports are not read.
void say(std::string_view text);

/// Can this file descriptor show a bar that is redrawn in place?
bool is_terminal(int descriptor);
/// Columns of the terminal behind standard error; 80 if it does not say.
int terminal_width();
/// Returns whether the locale's characters are UTF-8.
bool speaks_utf8();

}  // namespace penstock::cli
