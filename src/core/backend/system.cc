#include "penstock/system.h"

#include <dnnl.h>
#include <fmt/format.h>
#include <unistd.h>

#include "backend/cpu/instruction_sets.h"
#include "backend/cpu/machine.h"
#include "base/threads.h"
#include "penstock/version.h"

namespace penstock {
namespace {

long cache_bytes(int name) {
  const long bytes = sysconf(name);
  return bytes > 0 ? bytes : 0;
}

}  // namespace

SystemInfo system_info() {
  SystemInfo info;
  info.version = PENSTOCK_VERSION;
  info.cpu = cpu::processor_name();
  if (info.cpu.empty()) info.cpu = "unknown";
  info.threads = default_threads();
  info.isa = cpu::current_isa();
  for (const std::string_view isa : cpu::available_isas()) info.isas.emplace_back(isa);
#ifdef _SC_LEVEL1_DCACHE_SIZE
  info.l1_data_bytes = cache_bytes(_SC_LEVEL1_DCACHE_SIZE);
  info.l2_bytes = cache_bytes(_SC_LEVEL2_CACHE_SIZE);
  info.l3_bytes = cache_bytes(_SC_LEVEL3_CACHE_SIZE);
#endif
  const dnnl_version_t* gemm = dnnl_version();
  info.gemm = fmt::format("oneDNN {}.{}.{}", gemm->major, gemm->minor, gemm->patch);
  return info;
}

void select_isa(const std::string& name) { cpu::use_isa(name); }

}  // namespace penstock
