#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

namespace penstock::runtime {

/// Returns XXH3-64 of a file of more than 240 bytes, its own checksum's `checksum_digits` at `place` read as '0'.
std::uint64_t checksum_of(std::string_view content, std::size_t place);
constexpr std::size_t checksum_digits = 16;

}  // namespace penstock::runtime
