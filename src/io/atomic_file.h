#pragma once

#include <cstddef>
#include <span>
#include <string>

/// Writing a file from several pieces of memory.
namespace penstock::io {

/// Writes the pieces in sequence with a FileWriter: `path` is replaced whole or not at all. Throws Error(io_failure).
void write_atomically(const std::string& path, std::span<const std::span<const std::byte>> pieces);

}  // namespace penstock::io
