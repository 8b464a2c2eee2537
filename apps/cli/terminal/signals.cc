#include "terminal/signals.h"

#include <fcntl.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <csignal>
#include <cstddef>

namespace penstock::cli {
namespace {

std::atomic<int> received = 0;
std::atomic<bool> any_received = false;
static_assert(std::atomic<int>::is_always_lock_free && std::atomic<bool>::is_always_lock_free,
              "a signal handler may touch nothing else");

/// A pipe, as poll() cannot look at a variable: the read end, and the one that the handler writes.
std::array<int, 2> alarm = {-1, -1};

void remember(int signal) {
  const int error = errno;
  received = signal;
  any_received = true;
  const char byte = 0;
  [[maybe_unused]] const ssize_t written = write(alarm[1], &byte, 1);  // a full pipe can be read as well
  errno = error;
}

/// Handlers on the running stack corrupted the heap in one interrupt of forty, inside oneDNN's products: their
/// generated code seems to keep values farther below the stack pointer than a signal's frame spares. So the frame goes
/// elsewhere.
void give_handlers_a_stack() {
  static std::array<char, std::size_t{1} << 16> memory;  // a frame holds all vector registers
  stack_t stack = {};
  stack.ss_sp = memory.data();
  stack.ss_size = memory.size();
  sigaltstack(&stack, nullptr);
}

}  // namespace

void catch_interrupts() {
  give_handlers_a_stack();
  if (alarm[0] < 0 && pipe2(alarm.data(), O_CLOEXEC | O_NONBLOCK) != 0) alarm = {-1, -1};
  struct sigaction action = {};
  action.sa_handler = remember;
  sigemptyset(&action.sa_mask);
  action.sa_flags = static_cast<int>(SA_RESETHAND) | SA_ONSTACK;  // the second one meets the default action
  for (const int signal : {SIGINT, SIGTERM, SIGHUP}) {
    struct sigaction current = {};
    sigaction(signal, nullptr, &current);
    // A shell starts background jobs with SIGINT ignored, and nohup is a promise too.
    if (current.sa_handler != SIG_IGN) sigaction(signal, &action, nullptr);
  }
}

bool interrupted() { return received != 0; }

const std::atomic<bool>& interrupt() { return any_received; }

int interrupt_descriptor() { return alarm[0]; }

int interrupted_status() { return 128 + received; }

void ignore_write_signals() {
  signal(SIGPIPE, SIG_IGN);
  signal(SIGXFSZ, SIG_IGN);
}

}  // namespace penstock::cli
