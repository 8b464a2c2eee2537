#pragma once

#include <atomic>

/// A wish to stop, from Ctrl-C (SIGINT), from the system (SIGTERM) or because the terminal went away
/// (SIGHUP).
namespace penstock::cli {

/// Catches the signals from now on: the first one is only remembered, the second ends the program at once. System calls
/// that wait return with EINTR.
void catch_interrupts();
bool interrupted();
/// Returns the flag for a Stoppable, for work that throws Error(interrupted) as soon as such a signal has come.
const std::atomic<bool>& interrupt();
/// Can be read once a signal has come, so that poll() returns; nobody reads it. -1, which poll() skips, before
/// catch_interrupts().
int interrupt_descriptor();
/// Returns the exit status of a program that was told to stop: 128 + the signal's number.
int interrupted_status();

/// Writing to a closed pipe or beyond a size limit becomes an error of that write instead of our death.
void ignore_write_signals();

}  // namespace penstock::cli
