#pragma once

#include <string>
#include <vector>

namespace penstock {

/// What the library found on this machine.
struct SystemInfo {
  std::string version;            ///< Of Penstock.
  std::string cpu;                ///< Model name, as the system reports it.
  int threads = 1;                ///< Threads used by default.
  std::string isa;                ///< Instruction set in use: "baseline", "avx2", "avx512", "neon".
  std::vector<std::string> isas;  ///< Instruction sets that this build and this chip share.
  long l1_data_bytes = 0, l2_bytes = 0, l3_bytes = 0;  ///< 0: unknown.
  std::string gemm;                                    ///< Library and version of the large matrix products.
};

SystemInfo system_info();

/// Forces an instruction set by name (also PENSTOCK_ISA in the environment). Throws Error(unsupported) if this machine
/// lacks it.
void select_isa(const std::string& name);

}  // namespace penstock
