#pragma once

#include <cstdint>
#include <string>

namespace penstock::io {

/// The whole content of a file (or of a pipe, read to its end).
/// Throws Error(io_failure) with the path and the system's reason, Error(bad_input) if there are more than `limit`
/// bytes.
std::string read_file(const std::string& path, std::uint64_t limit);
/// The same of a file that is open already, from where it stands; `path` names it in messages.
std::string read_open_file(int file, const std::string& path, std::uint64_t limit);

}  // namespace penstock::io
