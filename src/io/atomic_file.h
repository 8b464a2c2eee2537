#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <string_view>

namespace penstock::io {

/// Writes the pieces, one after the other, to a file that appears under `path` complete or not at all: to `path`.tmp
/// beside it, synced, renamed, and the folder synced. Whatever stops it (full disk, a signal, a power cut), the file
/// that was at `path` before is still there and whole. A kill leaves at most the temporary file, which the next write
/// reuses. A symbolic link is followed; an existing file's permissions are kept.
/// Throws Error(io_failure) with the path and the system's reason, and removes the temporary file.
void write_atomically(const std::string& path, std::span<const std::span<const std::byte>> pieces);
/// The same of a single piece.
void write_text_atomically(const std::string& path, std::string_view text);

}  // namespace penstock::io
