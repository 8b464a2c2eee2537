#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <string_view>

/// Checksums of Penstock's files.
namespace penstock {

/// Length of a checksum in hexadecimal digits.
inline constexpr std::size_t checksum_digits = 16;

/// Returns the 64-bit XXH3 hash of all parts in sequence, as 16 hexadecimal digits.
std::string checksum_of(std::span<const std::span<const std::byte>> parts);

/// Returns the checksum of a file that contains its own checksum: the 16 digits from byte `place` on are hashed as
/// zeros. Throws Error(invalid_argument) if the content has fewer than 16 bytes there.
std::string checksum_of(std::string_view content, std::size_t place);

/// Returns the position of the checksum digits of the field `name` in JSON text; npos if there are none. Text inside a
/// JSON string never matches, since its quotes are escaped.
std::size_t checksum_place(std::string_view json, std::string_view name);

}  // namespace penstock
