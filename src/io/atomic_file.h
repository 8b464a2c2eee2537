#pragma once

#include <cstddef>
#include <span>
#include <string>

namespace penstock::io {

/// Writes the pieces, one after the other, by a FileWriter.
void write_atomically(const std::string& path, std::span<const std::span<const std::byte>> pieces);

}  // namespace penstock::io
