#include "signals.h"

#include <atomic>
#include <csignal>

namespace penstock::cli {
namespace {

std::atomic<int> received = 0;
static_assert(std::atomic<int>::is_always_lock_free, "a signal handler may touch nothing else");

void remember(int signal) { received = signal; }

}  // namespace

void catch_interrupts() {
  struct sigaction action = {};
  action.sa_handler = remember;
  sigemptyset(&action.sa_mask);
  action.sa_flags = static_cast<int>(SA_RESETHAND);  // the second one meets the default action
  for (const int signal : {SIGINT, SIGTERM}) {
    struct sigaction current = {};
    sigaction(signal, nullptr, &current);
    // A shell starts background jobs with SIGINT ignored, and nohup is a promise too.
    if (current.sa_handler != SIG_IGN) sigaction(signal, &action, nullptr);
  }
}

bool interrupted() { return received != 0; }

int interrupted_status() { return 128 + received; }

void ignore_write_signals() {
  signal(SIGPIPE, SIG_IGN);
  signal(SIGXFSZ, SIG_IGN);
}

}  // namespace penstock::cli
