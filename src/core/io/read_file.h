#pragma once

#include <cstdint>
#include <string>

/// Reading whole files.
namespace penstock::io {

/// Returns the whole content of a file, or of a pipe up to its end. Throws Error: io_failure with the path and the
/// system's reason; bad_input for more than `limit` bytes.
std::string read_file(const std::string& path, std::uint64_t limit);
/// Returns the rest of an open file from its current position; `path` names it in messages.
std::string read_open_file(int file, const std::string& path, std::uint64_t limit);

}  // namespace penstock::io
