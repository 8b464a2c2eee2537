#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "penstock/data/rows.h"
#include "terminal/progress_line.h"

namespace penstock::cli {

/// A file or standard input ("-"), read as it comes: nobody waits for a buffer to fill. What gzip has compressed,
/// whatever its name, text in UTF-16 and, where rows of a table are wanted, .ts files and JSON are read whole and
/// turned into what they stand for.
class Input final : public Lines {
 public:
  enum class Holds { anything, table };

  /// Throws Error(io_failure) naming the path, Error(bad_input) for a table that cannot be read.
  explicit Input(const std::string& path, Holds holds = Holds::anything);
  ~Input() override;
  Input(const Input&) = delete;
  Input& operator=(const Input&) = delete;

  /// Returns the name for messages: the path, or "-".
  const std::string& name() const override { return name_; }

  /// Shows progress from now on, if reading takes a while and standard error is a terminal.
  void show_progress();

  /// Returns the bytes that are there now, at least one; empty at the end, or when the user wants to stop. Valid until
  /// the next call.
  std::string_view read();

  /// Returns all that follows. Throws Error(bad_input) for more than `most` bytes: a device such as /dev/zero has no
  /// end.
  std::string rest(std::size_t most);

  /// The next line without its line end (LF or CRLF); false at the end. The last line needs no line end.
  /// Throws Error(bad_input) for lines that are too long to be meant, Interrupted if the user wants to stop before the
  /// first line, as no reader can tell that from an empty file.
  bool line(std::string& line) override;

 private:
  std::string name_;
  int descriptor_ = -1;
  bool may_wait_ = false;  // it is a pipe or a terminal
  bool whole_ = false;     // the buffer holds all that there is
  bool begun_ = false;     // something was read
  std::vector<char> buffer_;
  std::unique_ptr<ReadProgress> progress_;
  std::string_view waiting_;  // of the buffer, not yet given out as lines
  long lines_ = 0;

  /// Reads into the buffer behind `begin`; the number of bytes, 0 at the end or when the user wants to stop.
  std::size_t read_behind(std::size_t begin);
  /// The first read: of the bytes that are there, or of all that they stand for.
  std::size_t begin();
  void take_whole(std::string_view text);
};

/// Returns the content of a file that an option names, at most `most` bytes of it. Throws as Input, naming the option.
std::string read_option_file(const std::string& option, const std::string& path, std::size_t most);

}  // namespace penstock::cli
