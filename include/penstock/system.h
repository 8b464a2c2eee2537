#pragma once

#include <string>
#include <vector>

namespace penstock {

/// One GPU, as its driver describes it.
struct GpuInfo {
  std::string name;
  std::string compute_capability;  ///< "9.0"
  int multiprocessors = 0;
  int registers = 0;           ///< 32-bit, of one multiprocessor
  long long shared_bytes = 0;  ///< Of one multiprocessor
  long long block_bytes = 0;   ///< Of them, what one block of threads may have
  long long l2_bytes = 0, memory_bytes = 0;
};

/// What the library found for GPUs.
struct CudaInfo {
  std::string missing;      ///< Why no GPU can be used, and what to do about it; empty if one can.
  std::string driver;       ///< Newest CUDA that the driver runs, "13.0"; empty without a driver.
  std::string compiler;     ///< Version of NVRTC, which compiles kernels; empty if there is none.
  std::string compiler_at;  ///< The file it was loaded from.
  std::string products;     ///< Version of cuBLASLt, which multiplies matrices; empty if there is none.
  std::string products_at;  ///< The file it was loaded from.
  std::string cache;        ///< Folder of compiled kernels; empty if they are not kept.
  std::vector<GpuInfo> gpus;
};

/// What the library found on this machine.
struct SystemInfo {
  std::string version;            ///< Of Penstock.
  std::string cpu;                ///< Model name, as the system reports it.
  int threads = 1;                ///< Threads used by default.
  std::string isa;                ///< Instruction set in use: "baseline", "avx2", "avx512", "amx", "neon".
  std::vector<std::string> isas;  ///< Instruction sets that this build and this chip share.
  long l1_data_bytes = 0, l2_bytes = 0, l3_bytes = 0;  ///< 0: unknown.
  std::string gemm;                                    ///< Library and version of the large matrix products.
};

SystemInfo system_info();

/// Opens CUDA's libraries and asks them, which takes longer than system_info(). Without a GPU it says what is missing.
CudaInfo cuda_info();

/// Forces an instruction set by name (also PENSTOCK_ISA in the environment). Throws Error(unsupported) if this machine
/// lacks it.
void select_isa(const std::string& name);

}  // namespace penstock
