#pragma once

#include <string>

#include "backend/cuda/driver/compile_kernel.h"
#include "backend/cuda/driver/device.h"

namespace penstock::cuda {

/// Resources that a compiled kernel occupies.
struct KernelResources {
  int registers = 0;     ///< Registers of one thread
  int shared_bytes = 0;  ///< Bytes of one block, including those that the launch adds
  int local_bytes = 0;   ///< Bytes of one thread: spilled registers, and arrays that did not become registers
};

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
  /// process ends. Any number of threads may call this: different kernels compile side by side, each of them once.
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
