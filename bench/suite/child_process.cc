#include "bench/suite/child_process.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <csignal>
#include <cstring>
#include <fstream>
#include <string_view>
#include <system_error>
#include <utility>

#include "penstock/error.h"

extern char** environ;  // NOLINT(readability-redundant-declaration): POSIX leaves the declaration to us

namespace penstock::bench {
namespace {

std::vector<char*> pointers(std::vector<std::string>& words) {
  std::vector<char*> all;
  for (std::string& word : words) all.push_back(word.data());
  all.push_back(nullptr);
  return all;
}

/// Ours, with the additions in place of what they replace.
std::vector<std::string> merged_environment(const std::vector<std::string>& additions) {
  std::vector<std::string> all = additions;
  for (char** entry = environ; *entry != nullptr; ++entry) {
    const std::string text = *entry;
    bool replaced = false;
    for (const std::string& addition : additions) {
      replaced = replaced || text.starts_with(addition.substr(0, addition.find('=') + 1));
    }
    if (!replaced) all.push_back(text);
  }
  return all;
}

struct Pipe {
  int read_end = -1, write_end = -1;
  Pipe() {
    int ends[2];
    if (pipe2(ends, O_CLOEXEC) != 0) {
      throw Error(ErrorCode::io_failure, fmt::format("cannot make a pipe: {}", std::strerror(errno)));
    }
    read_end = ends[0];
    write_end = ends[1];
  }
};

}  // namespace

ChildProcess::ChildProcess(const std::vector<std::string>& command, const std::vector<std::string>& environment,
                           const std::string& error_file, std::function<bool()> stop)
    : error_file_(error_file), stop_(std::move(stop)) {
  const Pipe in, out;
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_adddup2(&actions, in.read_end, STDIN_FILENO);
  posix_spawn_file_actions_adddup2(&actions, out.write_end, STDOUT_FILENO);
  posix_spawn_file_actions_addopen(&actions, STDERR_FILENO, error_file.c_str(), O_WRONLY | O_CREAT | O_APPEND, 0600);
  // A process group of its own: Ctrl-C is for us, who then end the child in order.
  posix_spawnattr_t attributes;
  posix_spawnattr_init(&attributes);
  posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETPGROUP);
  std::vector<std::string> words = command, variables = merged_environment(environment);
  const int error = posix_spawnp(&id_, words.front().c_str(), &actions, &attributes, pointers(words).data(),
                                 pointers(variables).data());
  posix_spawnattr_destroy(&attributes);
  posix_spawn_file_actions_destroy(&actions);
  close(in.read_end);
  close(out.write_end);
  to_ = in.write_end;
  from_ = out.read_end;
  if (error != 0) {
    id_ = -1;
    std::ofstream(error_file) << "cannot start " << words.front() << ": " << std::strerror(error) << '\n';
  }
}

ChildProcess::~ChildProcess() {
  close(to_);
  close(from_);
  if (id_ < 0) return;
  kill(-id_, SIGCONT);
  const int patience = abandoned_ ? 0 : 100;  // times 20 ms
  for (int i = 0; waitpid(id_, nullptr, WNOHANG) == 0; ++i) {
    if (i == patience) kill(-id_, SIGKILL);  // with its helpers
    usleep(20000);
  }
}

void ChildProcess::fail_ended() const {
  const std::string words = last_words();
  throw Error(ErrorCode::io_failure, words.empty() ? "ended without a word" : words);
}

void ChildProcess::wait() {
  constexpr int milliseconds = 100;
  pollfd answer{.fd = from_, .events = POLLIN, .revents = 0};
  // A signal that another thread took would not end a read.
  while (poll(&answer, 1, milliseconds) <= 0) {
    if (!stop_()) continue;
    abandoned_ = true;
    throw Error(ErrorCode::interrupted, "interrupted");
  }
}

std::string ChildProcess::ask(const std::string& line) {
  if (abandoned_) throw Error(ErrorCode::interrupted, "interrupted while it was asked before");
  if (id_ >= 0) kill(-id_, SIGCONT);
  const std::string message = line + "\n";
  for (std::size_t sent = 0; sent < message.size();) {
    const ssize_t written = write(to_, message.data() + sent, message.size() - sent);
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) fail_ended();
    sent += static_cast<std::size_t>(written);
  }
  while (true) {
    if (const std::size_t end = received_.find('\n'); end != std::string::npos) {
      std::string answer = received_.substr(0, end);
      received_.erase(0, end + 1);
      if (id_ >= 0) kill(-id_, SIGSTOP);
      return answer;
    }
    char buffer[1 << 16];
    wait();
    const ssize_t count = read(from_, buffer, sizeof(buffer));
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0) fail_ended();
    received_.append(buffer, static_cast<std::size_t>(count));
  }
}

std::string ChildProcess::last_words() const {
  std::ifstream file(error_file_);
  std::string last;
  for (std::string line; std::getline(file, line);) {
    if (!line.empty()) last = line;
  }
  return last;
}

std::string bytes_of(const std::string& answer) {
  constexpr std::string_view kind = "bytes ";
  constexpr int hexadecimal = 16;
  if (!answer.starts_with(kind)) throw Error(ErrorCode::io_failure, answer);
  std::string bytes;
  bytes.reserve(answer.size() / 2);
  for (std::size_t at = kind.size(); at < answer.size(); at += 2) {
    const char* const end = answer.data() + std::min(at + 2, answer.size());
    unsigned char byte = 0;
    const auto [stop, error] = std::from_chars(answer.data() + at, end, byte, hexadecimal);
    if (error != std::errc() || stop != end || end - answer.data() != static_cast<std::ptrdiff_t>(at + 2)) {
      throw Error(ErrorCode::io_failure, fmt::format("byte {} of an answer is no hexadecimal number", bytes.size()));
    }
    bytes += static_cast<char>(byte);
  }
  return bytes;
}

}  // namespace penstock::bench
