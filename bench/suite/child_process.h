#pragma once

#include <sys/types.h>

#include <functional>
#include <string>
#include <vector>

namespace penstock::bench {

/// A program that answers one line for each line it gets. Its standard error goes to a file. Between an answer and the
/// next question it is stopped (SIGSTOP), with its helpers: idle threads of libraries spin on, and would be taken for
/// our time.
class ChildProcess {
 public:
  /// `environment` is added to ours ("NAME=value"). A program that cannot be started has ended at the first ask().
  /// `stop`, asked several times a second while we wait for an answer: whether nobody wants it any more.
  ChildProcess(const std::vector<std::string>& command, const std::vector<std::string>& environment,
               const std::string& error_file, std::function<bool()> stop);
  /// Closes its standard input and waits for it; ends it after two seconds, or at once if it was abandoned.
  ~ChildProcess();
  ChildProcess(const ChildProcess&) = delete;
  ChildProcess& operator=(const ChildProcess&) = delete;

  /// Sends a line and returns the next one. Throws Error(io_failure) if the program has ended, and
  /// Error(interrupted) if we were to stop, now or at a question before: the program is then abandoned with what it
  /// does.
  std::string ask(const std::string& line);

  /// The last line that it wrote to its standard error.
  std::string last_words() const;

 private:
  [[noreturn]] void fail_ended() const;
  /// Waits until there is something to read, or the process has ended.
  void wait();

  pid_t id_ = -1;
  int to_ = -1, from_ = -1;
  std::string error_file_, received_;
  std::function<bool()> stop_;
  bool abandoned_ = false;
};

/// The bytes of an answer "bytes HEXADECIMAL", such as a picture. Throws Error(io_failure) with any other answer.
std::string bytes_of(const std::string& answer);

}  // namespace penstock::bench
