#pragma once

#include <string>
#include <vector>

/// Information about this machine: CPU, instruction sets, GPUs and CUDA libraries.
namespace penstock {

/// Properties of one GPU, as its driver reports them.
struct GpuInfo {
  std::string name;                ///< "NVIDIA H100 80GB HBM3"
  std::string compute_capability;  ///< "9.0"
  int multiprocessors = 0;
  int registers = 0;                         ///< 32-bit registers of a multiprocessor.
  long long shared_bytes = 0;                ///< Shared memory of a multiprocessor.
  long long block_bytes = 0;                 ///< Shared memory that one thread block may use.
  long long l2_bytes = 0, memory_bytes = 0;  ///< L2 cache and device memory.
};

/// GPUs and CUDA libraries of this machine.
struct CudaInfo {
  std::string missing;      ///< Why no GPU can be used, and what to install; empty if one can.
  std::string driver;       ///< Newest CUDA version that the driver supports, "13.0"; empty without a driver.
  std::string compiler;     ///< Version of NVRTC, which compiles kernels; empty if there is none.
  std::string compiler_at;  ///< File of NVRTC.
  std::string products;     ///< Version of cuBLASLt, which computes matrix products; empty if there is none.
  std::string products_at;  ///< File of cuBLASLt.
  std::string cache;        ///< Folder of compiled kernels; empty if they are not cached.
  std::vector<GpuInfo> gpus;
};

/// The CPU of this machine and what the library uses of it.
struct SystemInfo {
  std::string version;            ///< Version of Penstock.
  std::string cpu;                ///< Model name, as the system reports it.
  int threads = 1;                ///< Threads used by default.
  std::string isa;                ///< Instruction set that is used: "baseline", "avx2", "avx512", "amx", "neon".
  std::vector<std::string> isas;  ///< Instruction sets that this build and this CPU support.
  long l1_data_bytes = 0, l2_bytes = 0, l3_bytes = 0;  ///< Cache sizes in bytes; 0: unknown.
  std::string gemm;                                    ///< Library of large matrix products, with its version.
};

/// Returns the properties of this machine's CPU.
SystemInfo system_info();

/// Opens the CUDA libraries and returns what they report. Slower than system_info(). Without a usable GPU,
/// CudaInfo::missing says why.
CudaInfo cuda_info();

/// Selects the instruction set by name, instead of the best one; the environment variable PENSTOCK_ISA does the same.
/// Throws Error(unsupported) if this machine lacks it.
void select_isa(const std::string& name);

}  // namespace penstock
