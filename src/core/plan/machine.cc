#include "plan/machine.h"

#include <cctype>

#include "base/check.h"

namespace penstock::plan {
namespace {

constexpr std::int64_t kKiB = 1024, kMiB = 1024 * kKiB, kGiB = 1024 * kMiB;

/// Bytes of shared memory of one block and of one multiprocessor. The system reserves kReservedBytes per block.
struct SharedMemory {
  std::int64_t of_multiprocessor;
};
constexpr SharedMemory kLargest{228 * kKiB}, kAmpere{164 * kKiB}, kSmall{100 * kKiB};

/// Numbers of data sheets: multiply-adds per microsecond in dense bf16.
struct Sheet {
  const char* name;
  int compute;
  int multiprocessors, threads;
  SharedMemory shared;
  std::int64_t l2, memory;
  int cluster, clock_mhz;
  double bandwidth, halves;
};

constexpr Sheet kSheets[] = {
    {"A100", 80, 108, 2048, kAmpere, 40 * kMiB, 80 * kGiB, 1, 1410, 2.04e12, 312e6},
    {"RTX 3090", 86, 82, 1536, kSmall, 6 * kMiB, 24 * kGiB, 1, 1695, 0.936e12, 71e6},
    {"A10", 86, 72, 1536, kSmall, 6 * kMiB, 24 * kGiB, 1, 1695, 0.6e12, 125e6},
    {"L4", 89, 58, 1536, kSmall, 48 * kMiB, 24 * kGiB, 1, 2040, 0.3e12, 121e6},
    {"RTX 4090", 89, 128, 1536, kSmall, 72 * kMiB, 24 * kGiB, 1, 2520, 1.008e12, 165e6},
    {"H100", 90, 132, 2048, kLargest, 50 * kMiB, 80 * kGiB, 16, 1980, 3.35e12, 990e6},
    {"H200", 90, 132, 2048, kLargest, 50 * kMiB, 141 * kGiB, 16, 1980, 4.8e12, 990e6},
    {"B200", 100, 148, 2048, kLargest, 126 * kMiB, 180 * kGiB, 16, 1965, 8e12, 2250e6},
    {"RTX 5090", 120, 170, 1536, kSmall, 96 * kMiB, 32 * kGiB, 8, 2407, 1.792e12, 209e6},
};

const Sheet& measured_chip() { return *std::ranges::find(kSheets, std::string_view("H200"), &Sheet::name); }

/// Returns the costs of the H200, each scaled by the quantity that limits it.
GpuCosts carried_over(const Sheet& to) {
  const Sheet& from = measured_chip();
  GpuCosts costs;
  const double bandwidth = to.bandwidth / from.bandwidth, halves = to.halves / from.halves;
  const double clock = static_cast<double>(to.clock_mhz) / from.clock_mhz;
  costs.common.bytes *= bandwidth, costs.scan.direct_bytes *= bandwidth, costs.scan.bytes *= bandwidth;
  costs.common.halves *= halves, costs.common.tf32 *= halves;
  costs.common.clock *= clock;
  const double of_cycle = halves / clock * from.multiprocessors / to.multiprocessors;
  costs.product.products *= of_cycle;
  costs.warpgroups.bytes *= bandwidth / clock, costs.pairs.bytes *= bandwidth / clock;
  const auto follow_clock = [clock](auto&... nanoseconds) { ((nanoseconds /= clock), ...); };
  follow_clock(costs.cluster.exchange_of_8, costs.cluster.exchange_of_16, costs.cluster.uneven_rows,
               costs.cluster.back_slot);
  follow_clock(costs.team.warp, costs.team.slot);
  follow_clock(costs.chip.exchange, costs.chip.poll, costs.chip.sums, costs.chip.pair_sums, costs.chip.block_sums,
               costs.chip.backward);
  follow_clock(costs.direct.exchange, costs.direct.backward, costs.direct.request, costs.direct.slot);
  follow_clock(costs.head.step, costs.head.gate, costs.head.state, costs.head.rows);
  follow_clock(costs.diagonal.step, costs.diagonal.gate, costs.diagonal.join);
  costs.team.tensor_tile /= clock * of_cycle, costs.direct.tile /= clock * of_cycle;
  costs.head.product /= clock * of_cycle;
  costs.team.received_bytes *= clock, costs.team.shared_bytes *= clock, costs.chip.gathered_bytes *= clock;
  costs.direct.shared_bytes *= clock, costs.direct.sums_bytes *= clock, costs.direct.pair_bytes *= clock;
  const double chip = clock * to.multiprocessors / from.multiprocessors;
  costs.common.l2_bytes *= chip, costs.step.unaligned *= chip;
  costs.step.halves *= halves, costs.step.floats *= halves;
  return costs;
}

GpuModel model_of(const Sheet& sheet) {
  GpuModel gpu;
  gpu.name = sheet.name;
  gpu.compute_major = sheet.compute / 10, gpu.compute_minor = sheet.compute % 10;
  gpu.multiprocessors = sheet.multiprocessors, gpu.threads = sheet.threads;
  gpu.registers = 65'536;
  gpu.shared_bytes = sheet.shared.of_multiprocessor, gpu.block_bytes = gpu.shared_bytes - kKiB;
  gpu.l2_bytes = sheet.l2, gpu.memory_bytes = sheet.memory;
  gpu.cluster = sheet.cluster, gpu.clock_mhz = sheet.clock_mhz, gpu.bandwidth = sheet.bandwidth;
  gpu.costs = carried_over(sheet);
  return gpu;
}

/// Returns the letters and digits of a name in lower case: "RTX 4090" and "rtx-4090" become "rtx4090".
std::string plain(std::string_view name) {
  std::string text;
  for (const char c : name) {
    const auto byte = static_cast<unsigned char>(c);
    if (std::isalnum(byte) != 0) text += static_cast<char>(std::tolower(byte));
  }
  return text;
}

/// Returns the data sheet with the longest name that occurs in that of a device, as "H200" does in "NVIDIA H200".
const Sheet* sheet_of(std::string_view device) {
  const std::string name = plain(device);
  const Sheet* found = nullptr;
  for (const Sheet& sheet : kSheets) {
    const std::string known = plain(sheet.name);
    if (name.find(known) != std::string::npos && (found == nullptr || known.size() > plain(found->name).size())) {
      found = &sheet;
    }
  }
  return found;
}

}  // namespace

const std::vector<GpuModel>& known_gpus() {
  static const std::vector<GpuModel> all = [] {
    std::vector<GpuModel> models;
    for (const Sheet& sheet : kSheets) models.push_back(model_of(sheet));
    return models;
  }();
  return all;
}

GpuModel named_gpu(std::string_view name) {
  const std::string wanted = plain(name);
  std::vector<std::string> known;
  for (const GpuModel& gpu : known_gpus()) {
    const std::string full = plain(gpu.name), architecture = fmt::format("sm{}", gpu.architecture());
    if (wanted == full || "rtx" + wanted == full || wanted == architecture) return gpu;
    known.push_back(fmt::format("{} (sm_{})", gpu.name, gpu.architecture()));
  }
  fail_choice("chip", name, std::move(known));
}

void fill_in(GpuModel& gpu) {
  const Sheet* sheet = sheet_of(gpu.name);
  if (sheet != nullptr && sheet->compute == gpu.architecture()) {
    gpu.cluster = sheet->cluster, gpu.clock_mhz = sheet->clock_mhz, gpu.bandwidth = sheet->bandwidth;
    gpu.costs = carried_over(*sheet);
    return;
  }
  // An unknown chip: like the nearest known one of the same or an older generation, with its own multiprocessors.
  const Sheet* nearest = &kSheets[0];
  for (const Sheet& known : kSheets) {
    if (known.compute <= gpu.architecture()) nearest = &known;
  }
  Sheet like = *nearest;
  const double share = static_cast<double>(gpu.multiprocessors) / like.multiprocessors;
  if (gpu.clock_mhz > 0) like.clock_mhz = gpu.clock_mhz;
  like.halves *= share * like.clock_mhz / nearest->clock_mhz;
  like.bandwidth = gpu.bandwidth > 0 ? gpu.bandwidth : like.bandwidth * share;
  like.multiprocessors = gpu.multiprocessors;
  gpu.cluster = like.cluster, gpu.clock_mhz = like.clock_mhz, gpu.bandwidth = like.bandwidth;
  gpu.costs = carried_over(like);
}

}  // namespace penstock::plan
