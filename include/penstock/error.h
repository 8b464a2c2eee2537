#pragma once

#include <stdexcept>
#include <string>

/// The exception type of the library and its error codes.
namespace penstock {

/// Reason why an operation failed. Every Penstock exception has one.
enum class ErrorCode {
  invalid_argument,  ///< An argument is impossible; the message names it.
  bad_input,         ///< The content of a file or stream is invalid; the message says where.
  incompatible,      ///< A file is sound but belongs to another architecture, version or data set.
  io_failure,        ///< The operating system refused to read or write (missing file, full disk, ...).
  numerical,         ///< NaN or infinity that cannot be skipped.
  unsupported,       ///< Valid, but not available in this build or on this machine.
  interrupted,       ///< The user asked to stop; everything that must be saved is saved.
  out_of_memory,     ///< Too little free memory; the message says how much was requested.
  device_failure,    ///< The device or its driver reported a fault; results since the last synchronisation are lost.
};

/// The exception type of all Penstock errors. `what()` is one line for a person.
class Error : public std::runtime_error {
 public:
  Error(ErrorCode code, const std::string& message) : std::runtime_error(message), code_(code) {}
  ErrorCode code() const noexcept { return code_; }

 private:
  ErrorCode code_;
};

/// Returns the exit status of a command-line program: 2 for invalid_argument, 1 for all other errors.
inline int exit_status(ErrorCode code) { return code == ErrorCode::invalid_argument ? 2 : 1; }

}  // namespace penstock
