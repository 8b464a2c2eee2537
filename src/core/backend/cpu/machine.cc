#include "backend/cpu/machine.h"

#include <unistd.h>

#include <fstream>

#include "backend/cpu/instruction_sets.h"
#include "backend/cpu/isa.h"
#include "base/threads.h"
#include "plan/tuning.h"

namespace penstock::cpu {
namespace {

/// Leaves the number as it is where the system does not know.
[[maybe_unused]] void read_cache(int name, std::int64_t& bytes) {
  const long known = sysconf(name);
  if (known > 0) bytes = known;
}

plan::CpuModel system_model() {
  static const std::string name = processor_name();
  plan::CpuModel model;
  model.name = name;
#ifdef _SC_LEVEL1_DCACHE_SIZE
  read_cache(_SC_LEVEL1_DCACHE_SIZE, model.l1_bytes);
  read_cache(_SC_LEVEL2_CACHE_SIZE, model.l2_bytes);
  read_cache(_SC_LEVEL3_CACHE_SIZE, model.l3_bytes);
#endif
  return model;
}

plan::CpuModel model_now() {
  plan::CpuModel model = system_model();
  model.cores = default_threads();
  model.isa = current_isa();
  model.vector_bytes = model.isa == "avx2" ? 32 : model.isa == "avx512" || model.isa == "amx" ? 64 : 16;
  model.bf16_products = has_bf16_products(), model.bf16_tiles = has_bf16_tiles();
  // Measured with vectors of 64 bytes (docs/results/cpu.md): an LSTM layer of 256 units, 16 rows on one thread.
  constexpr double multiply_adds = 105'000, gates = 860;
  const double share = model.vector_bytes / 64.0;
  model.costs.multiply_adds = multiply_adds * share, model.costs.gates = gates * share;
  // Measured with layers of 256 units (docs/results/int8.md). The value for NEON is assumed.
  model.costs.int8_products = has_bf16_tiles() ? 4.5 : has_int8_products() ? 3 : model.isa == "baseline" ? 0.4 : 1.3;
  // A Xeon's core reads from beyond its second-level cache at 20 GB/s or so, and hears late of another one
  // (docs/results/planning.md).
  if (model.isa == "amx") model.costs.far_weight = 14, model.costs.sharing = 13'000;
  take_tuning(model);
  return model;
}

}  // namespace

std::string processor_name() {
  std::ifstream information("/proc/cpuinfo");
  for (std::string line; std::getline(information, line);) {
    const std::size_t colon = line.find(": ");
    if (line.starts_with("model name") && colon != std::string::npos) return line.substr(colon + 2);
  }
  return "";
}

const plan::CpuModel& machine() {
  thread_local unsigned generation = isa_generation();
  thread_local plan::CpuModel model = model_now();
  if (generation != isa_generation()) {
    generation = isa_generation();
    model = model_now();
  }
  return model;
}

}  // namespace penstock::cpu
