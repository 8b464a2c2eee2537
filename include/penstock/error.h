#pragma once

#include <stdexcept>
#include <string>

namespace penstock {

/// Why an operation was refused or failed. Every Penstock exception carries one of these.
enum class ErrorCode {
  invalid_argument,  ///< The caller asked for something impossible; the message names the argument.
  bad_input,         ///< A file or a stream holds something that cannot be read; the message says where.
  incompatible,      ///< A file is sound but belongs to another architecture or version.
  io_failure,        ///< The operating system refused to read or write (missing file, full disk, ...).
  numerical,         ///< NaN or infinity where it cannot be skipped any longer.
  unsupported,       ///< Valid, but not available in this build or on this machine.
  interrupted,       ///< The user asked to stop; whatever had to be saved is saved.
  out_of_memory,     ///< The device has too little free memory; the message says how much was asked for.
  device_failure,    ///< The device or its driver reported a fault; results since the last synchronisation are lost.
};

/// The only exception type that Penstock throws on purpose. `what()` is one line for a person.
class Error : public std::runtime_error {
 public:
  Error(ErrorCode code, const std::string& message) : std::runtime_error(message), code_(code) {}
  ErrorCode code() const noexcept { return code_; }

 private:
  ErrorCode code_;
};

/// The exit status a command-line program owes its caller: 2 for wrong use, 1 for a failure.
inline int exit_status(ErrorCode code) { return code == ErrorCode::invalid_argument ? 2 : 1; }

}  // namespace penstock
