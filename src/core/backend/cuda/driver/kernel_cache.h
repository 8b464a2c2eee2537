#pragma once

#include <string>

#include "backend/cuda/driver/compile_kernel.h"

namespace penstock::cuda {

/// Name under which the cache keeps what the kernel compiles to. The compiler's version is no part of it, so that
/// a process that finds its kernels there never opens the compiler.
std::string cache_name(const KernelSource& source, int architecture);

/// The machine code of a kernel from the disk cache, else from the compiler. With PENSTOCK_DUMP_DIR set, source, cubin
/// and plan are written there.
std::string machine_code(const KernelSource& source, int architecture);

}  // namespace penstock::cuda
