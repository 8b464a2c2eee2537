#include <fmt/format.h>

#include "backend/cuda/driver/blas.h"
#include "backend/cuda/driver/device.h"
#include "backend/cuda/driver/disk_cache.h"
#include "backend/cuda/driver/driver.h"
#include "backend/cuda/driver/nvrtc.h"
#include "penstock/error.h"
#include "penstock/system.h"

namespace penstock {
namespace cuda {
namespace {

GpuInfo describe_gpu(const plan::GpuModel& model) {
  GpuInfo info;
  info.name = model.name;
  info.compute_capability = fmt::format("{}.{}", model.compute_major, model.compute_minor);
  info.multiprocessors = model.multiprocessors;
  info.registers = model.registers;
  info.shared_bytes = model.shared_bytes;
  info.block_bytes = model.block_bytes;
  info.l2_bytes = model.l2_bytes;
  info.memory_bytes = model.memory_bytes;
  return info;
}

}  // namespace
}  // namespace cuda

CudaInfo cuda_info() {
  using namespace cuda;  // NOLINT(google-build-using-namespace): this is its summary
  CudaInfo info;
  info.cache = DiskCache::from_environment().folder();
  info.missing = driver_complaint();
  if (const int version = driver_cuda_version(); version > 0) {
    info.driver = fmt::format("{}.{}", version / 1000, version % 1000 / 10);
  }
  const Nvrtc& compiler = find_nvrtc();
  if (compiler.valid()) {
    info.compiler = fmt::format("{}.{}", compiler.major, compiler.minor);
    info.compiler_at = compiler.origin;
  }
  const Blas& blas = find_blas();
  info.products = blas.version;
  info.products_at = blas.origin;
  try {
    std::string complaints;
    bool usable = false;
    for (int i = 0; i < device_count(); ++i) {
      const plan::GpuModel model = describe_device(i);
      info.gpus.push_back(describe_gpu(model));
      const std::string complaint = complaint_about(i, model);
      usable = usable || complaint.empty();
      if (!complaint.empty()) complaints += (complaints.empty() ? "" : "; ") + complaint;
    }
    if (info.missing.empty() && !usable) info.missing = complaints;
    if (info.missing.empty()) nvrtc();  // says what to install
  } catch (const Error& error) {
    info.missing = error.what();
  }
  return info;
}

}  // namespace penstock
