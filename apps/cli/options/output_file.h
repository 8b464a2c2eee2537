#pragma once

#include <string>
#include <vector>

#include "penstock/output_files.h"

namespace penstock::cli {

/// Throws Error(io_failure).
[[noreturn]] void cannot_write(const std::string& option, const std::string& path, const std::string& reason);

/// Makes sure, before any work is done, that a file can be written to `path` later. `option` is named in messages.
/// Throws Error(io_failure) if the system will not let us write, Error(invalid_argument) for '-'.
void check_writable_file(const std::string& option, const std::string& path);

/// Returns whether a path is that of our standard output, such as /dev/stdout; never for standard output to a device.
bool is_standard_output(const std::string& path);

/// Throws Error(invalid_argument) if `path` is '-', which other options take for standard output.
void refuse_standard_output(const std::string& option, const std::string& path);

/// Throws Error(invalid_argument) if something stands at `path`: nothing that was trained is replaced unasked. `advice`
/// ends the message: which option does what.
void check_not_there(const std::string& option, const std::string& path, const std::string& advice);

/// Both checks, for --output.
void check_new_output(const std::string& path, bool force);

/// Returns the file that a command makes of its first input, `output` or the input's path with another extension, after
/// these checks.
std::string resolve_output(std::string output, const std::vector<InputFile>& inputs, const char* extension, bool force);

/// Returns files with one role in messages.
std::vector<InputFile> input_files(const std::string& role, const std::vector<std::string>& paths);

/// Applies check_outputs() to the files of a call; the files of --config are inputs too. `force`: a file of another
/// kind may be replaced.
void check_files(std::vector<InputFile> inputs, const std::vector<OutputFile>& outputs, bool force);

}  // namespace penstock::cli
