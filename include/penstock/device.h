#pragma once

#include <string>
#include <string_view>

namespace penstock {

/// Where numbers lie and where they are computed with.
struct Device {
  enum class Kind { cpu, cuda };

  Kind kind = Kind::cpu;
  int index = 0;  ///< Which GPU, as CUDA numbers them; 0 for the CPU.

  static constexpr Device cpu() { return {}; }
  static constexpr Device cuda(int index = 0) { return {Kind::cuda, index}; }
  constexpr bool is_cuda() const { return kind == Kind::cuda; }
  constexpr bool operator==(const Device&) const = default;
};

/// "cpu", "cuda:0".
std::string to_string(Device device);
/// "cpu", "cuda" (the first GPU) or "cuda:N". Throws Error(invalid_argument) that says so for anything else; whether
/// there is such a GPU shows when it is used.
Device parse_device(std::string_view text);

}  // namespace penstock
