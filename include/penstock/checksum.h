#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <string_view>

namespace penstock {

inline constexpr std::size_t checksum_digits = 16;

/// Returns XXH3's 64 bits of all parts, one after the other, as 16 hexadecimal digits: the checksum in Penstock's
/// files.
std::string checksum_of(std::span<const std::span<const std::byte>> parts);

/// The same of a file that carries its own checksum: the 16 digits from byte `place` on count as zeros. Throws
/// Error(invalid_argument) if there are fewer bytes.
std::string checksum_of(std::string_view content, std::size_t place);

/// Where the digits of a checksum stand in a text of JSON that `name` says it by; npos if there are none. No text in
/// quotes is taken for it: there quotes are escaped.
std::size_t checksum_place(std::string_view json, std::string_view name);

}  // namespace penstock
