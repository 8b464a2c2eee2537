#pragma once

#include <fmt/format.h>

#include <array>
#include <bit>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include "backend/cuda/runtime/device.h"
#include "backend/cuda/runtime/nvrtc.h"
#include "plan/cell_table.h"

namespace penstock::cuda {

/// Constant that specialises a kernel, such as "constexpr int kLanes" and 32, or "using Storage" and "F32".
struct Constant {
  template <class Value>
  Constant(std::string what, const Value& is) : declaration(std::move(what)), value(fmt::format("{}", is)) {}

  std::string declaration, value;
};

/// The constant kPass of a kernel: a struct of ints that NVRTC compiles, too, and that has this name there.
template <class Pass>
Constant pass_constant(std::string_view name, const Pass& pass) {
  static_assert(std::is_trivially_copyable_v<Pass> && sizeof(Pass) % sizeof(int) == 0);
  const auto numbers = std::bit_cast<std::array<int, sizeof(Pass) / sizeof(int)>>(pass);
  return {fmt::format("constexpr {} kPass", name), fmt::format("{{{}}}", fmt::join(numbers, ", "))};
}

/// A kernel before it is compiled: the text that holds it and the constants that specialise it.
struct KernelSource {
  std::string entry;  ///< Name of the function, such as "ScanForward".
  std::string file;   ///< File that the program includes, such as "backend/cuda/kernels/scan/scan_forward.cuh".
  std::vector<Constant> constants;  ///< Seen by the text.
  std::string functions;            ///< Seen by the text: those that only a program can write.
  plan::CellText rule;              ///< The cell that the text calls Rule, if it does.
  bool early = false;               ///< The text begins with WaitForKernelBefore(): launches may overlap, on Hopper.
  int shared_bytes = 0;             ///< Shared memory that each launch gives a block, on top of what the text declares.
  std::string plan;                 ///< For people who read what PENSTOCK_DUMP_DIR holds; it changes nothing.

  /// The program: the constants by name, and one include.
  std::string text() const;
};

/// Resources that a compiled kernel occupies.
struct KernelResources {
  int registers = 0;     ///< Registers of one thread
  int shared_bytes = 0;  ///< Bytes of one block, including those that the launch adds
  int local_bytes = 0;   ///< Bytes of one thread: spilled registers, and arrays that did not become registers
};

/// Compiles for a chip (80: sm_80), without a GPU and without the cache; `log` states the resources of every kernel.
Compiled compile_kernel(const KernelSource& source, int architecture);

/// Name under which the cache keeps what the kernel compiles to. The compiler's version is no part of it, so that
/// a process that finds its kernels there never opens the compiler.
std::string cache_name(const KernelSource& source, int architecture);

/// How a kernel is started. All sizes along one axis.
struct Launch {
  unsigned grid = 1;         ///< Blocks, a multiple of `cluster`
  unsigned block = 1;        ///< Threads of a block
  unsigned cluster = 1;      ///< Blocks that share their shared memory; more than one from sm_90 on
  bool cooperative = false;  ///< All blocks run at once, so that they may wait for each other
  unsigned shared = 0;       ///< Bytes of shared memory of a block: at most KernelSource::shared_bytes, and 0: as many
};

/// Sees the launches of a thread.
class LaunchObserver {
 public:
  virtual ~LaunchObserver() = default;
  virtual void before_launch() = 0;
  virtual void after_launch(const std::string& kernel) = 0;
};

/// A kernel on a GPU, ready to be launched.
class Kernel {
 public:
  /// Returns a kernel from memory, else from the disk cache, else from the compiler. The reference is valid until the
  /// process ends. Any number of threads may call this: different kernels compile side by side, each of them once. With
  /// PENSTOCK_DUMP_DIR set, source, cubin and plan are written there.
  static const Kernel& load(Device& device, const KernelSource& source);

  const KernelResources& resources() const { return resources_; }
  /// Parameters as one struct, passed by value to the kernel.
  template <class Parameters>
  void launch(const Launch& how, const Parameters& parameters, StreamHandle stream) const {
    void* arguments[] = {const_cast<Parameters*>(&parameters)};
    launch_raw(how, arguments, stream);
  }
  template <class Parameters>
  void launch(unsigned blocks, unsigned threads, const Parameters& parameters, StreamHandle stream) const {
    launch(Launch{.grid = blocks, .block = threads}, parameters, stream);
  }

  /// How many blocks one multiprocessor, or with clusters how many clusters the whole GPU, runs at once. 0: it cannot
  /// run one.
  int resident(const Launch& how) const;

  /// Kernels launched by this process so far.
  static unsigned long long launches();
  /// Makes `observer` see the launches of the calling thread from now on; null: nobody.
  static void observe(LaunchObserver* observer);

 private:
  Kernel(Device& device, const KernelSource& source, const std::string& cubin);
  void launch_raw(const Launch& how, void** arguments, StreamHandle stream) const;
  unsigned shared_of(const Launch& how) const;

  Device& device_;
  std::string name_;
  bool early_;
  FunctionHandle function_ = nullptr;
  unsigned dynamic_bytes_;
  KernelResources resources_;
};

}  // namespace penstock::cuda
