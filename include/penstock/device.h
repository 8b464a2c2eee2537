#pragma once

#include <string>
#include <string_view>

/// Devices: the CPU and GPUs.
namespace penstock {

/// A device that holds data and computes: the CPU or one GPU.
struct Device {
  enum class Kind { cpu, cuda };

  Kind kind = Kind::cpu;
  int index = 0;  ///< Index of the GPU, as CUDA numbers them; 0 for the CPU.

  static constexpr Device cpu() { return {}; }
  static constexpr Device cuda(int index = 0) { return {Kind::cuda, index}; }
  constexpr bool is_cuda() const { return kind == Kind::cuda; }
  constexpr bool operator==(const Device&) const = default;
};

/// Returns the name of a device: "cpu", "cuda:0".
std::string to_string(Device device);
/// Returns the device of a name: "cpu", "cuda" (the first GPU) or "cuda:N". Throws Error(invalid_argument) for anything
/// else. Does not check whether the GPU exists; its first use does.
Device parse_device(std::string_view text);

}  // namespace penstock
