#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include "penstock/types.h"

namespace penstock::plan {

struct Tuning;

/// Costs of work on a GPU, from which the planner estimates times. They were measured on an H200 (docs/results/gpu.md)
/// and are scaled to other chips by units, clocks and bandwidths. `tune` overwrites them by measurements.
struct GpuCosts {
#define PENSTOCK_COSTS(Type, name) \
  struct Type {                    \
    using Group = Type
#define PENSTOCK_COST(name, name_in_files, value) double name = value
#define PENSTOCK_END_COSTS(name)                 \
  bool operator==(const Group&) const = default; \
  }                                              \
  name
#include "plan/gpu_costs.inl"
#undef PENSTOCK_COSTS
#undef PENSTOCK_COST
#undef PENSTOCK_END_COSTS

  bool operator==(const GpuCosts&) const = default;
};

/// Costs of work on a CPU, from which the planner estimates times.
struct CpuCosts {
#define PENSTOCK_COST(name, value) double name = value
#include "plan/cpu_costs.inl"
#undef PENSTOCK_COST

  bool operator==(const CpuCosts&) const = default;
};

/// Calls visit(name in files, value) for each cost of a GPU or a CPU, in the order of files.
template <class Costs, class Visit>
void visit_costs(Costs& costs, const Visit& visit) {
  if constexpr (std::is_same_v<std::remove_const_t<Costs>, GpuCosts>) {
#define PENSTOCK_COSTS(Type, name) \
  {                                \
    auto& group = costs.name
#define PENSTOCK_COST(name, name_in_files, value) visit(name_in_files, group.name)
#define PENSTOCK_END_COSTS(name) }
#include "plan/gpu_costs.inl"
#undef PENSTOCK_COSTS
#undef PENSTOCK_COST
#undef PENSTOCK_END_COSTS
  } else {
#define PENSTOCK_COST(name, value) visit(#name, costs.name)
#include "plan/cpu_costs.inl"
#undef PENSTOCK_COST
  }
}

/// Returns the multiply-adds of floats or of int8 per microsecond of one thread.
inline double multiply_adds(const CpuCosts& costs, bool int8) {
  return costs.multiply_adds * (int8 ? costs.int8_products : 1);
}

/// A cost and its name.
using NamedCost = std::pair<std::string, double>;
/// Returns all costs of a machine, in the order of files.
template <class Costs>
std::vector<NamedCost> named_costs(const Costs& costs) {
  std::vector<NamedCost> all;
  visit_costs(costs, [&](const char* name, double value) { all.emplace_back(name, value); });
  return all;
}
/// Sets all costs from values in the order of named_costs().
template <class Costs>
void set_costs(Costs& costs, std::span<const double> values) {
  auto next = values.begin();
  visit_costs(costs, [&](const char*, double& value) { value = *next++; });
}

/// Properties of a GPU for the planner.
struct GpuModel {
  std::string name;
  int compute_major = 0, compute_minor = 0;
  int multiprocessors = 0;
  int threads = 0;                ///< Largest number of threads on one multiprocessor
  int registers = 0;              ///< 32-bit registers of one multiprocessor
  std::int64_t shared_bytes = 0;  ///< Shared memory of one multiprocessor
  std::int64_t block_bytes = 0;   ///< Largest shared memory of one block
  std::int64_t l2_bytes = 0;
  std::int64_t memory_bytes = 0;
  int cluster = 16;  ///< Largest number of blocks of a cluster, on chips with clusters
  /// Clusters of 1, 2, 4, 8 and 16 blocks that the GPU was found to run at once, where fewer than it was thought to
  /// (clusters_at_once): a part of a GPU, for instance. -1: no such finding.
  std::array<Index, 5> clusters_found = {-1, -1, -1, -1, -1};
  int clock_mhz = 0;     ///< 0: unknown
  double bandwidth = 0;  ///< Memory bandwidth in bytes per second; 0: unknown
  int driver = 0;        ///< CUDA version of the driver, such as 12080; 0: no driver
  GpuCosts costs = {};
  std::shared_ptr<const Tuning> tuned = nullptr;  ///< Plans that were measured to be the fastest (tuning.h)

  /// Returns the number in sm_90, such as 90.
  int architecture() const { return compute_major * 10 + compute_minor; }
  bool has_clusters() const { return architecture() >= 90 && cluster > 1; }
  bool operator==(const GpuModel&) const = default;
};

/// Properties of a CPU for the planner.
struct CpuModel {
  std::string name;
  std::string isa;  ///< Instruction set in use, such as "avx512"
  int cores = 1;
  std::int64_t l1_bytes = 32 << 10, l2_bytes = 1 << 20, l3_bytes = 0;  ///< L1 and L2 of one core
  int vector_bytes = 16;
  bool bf16_products = false, bf16_tiles = false;
  CpuCosts costs = {};
  std::shared_ptr<const Tuning> tuned = nullptr;

  bool operator==(const CpuModel&) const = default;
  /// Returns the number of values of a size that fit this fraction of the L2 cache.
  Index cached(double share, std::size_t value_bytes) const {
    return static_cast<Index>(share * static_cast<double>(l2_bytes) / static_cast<double>(value_bytes));
  }
  /// Returns the number of values of a size that fit a piece of a backward pass.
  Index cached_gradients(std::size_t value_bytes) const {
    return static_cast<Index>(std::min(costs.gradient_share * static_cast<double>(l2_bytes), costs.gradient_bytes) /
                              static_cast<double>(value_bytes));
  }
};

/// The devices of a program.
struct Machine {
  CpuModel cpu;
  GpuModel gpu;
};

/// Returns the chips that can be planned for without being present.
const std::vector<GpuModel>& known_gpus();
/// Returns a known chip by a name such as "h100", "rtx 4090" or "sm_90", in upper or lower case. Throws
/// Error(invalid_argument), which lists the names.
GpuModel named_gpu(std::string_view name);
/// Fills in costs and other values that the driver does not report, from the known chip of this name or generation.
void fill_in(GpuModel& gpu);

/// Write and read all costs as a JSON object. Costs that the text does not name stay unchanged. read_costs() throws
/// Error(bad_input) for invalid JSON, an unknown name, or a value that is not a positive number.
template <class Costs>
std::string costs_json(const Costs& costs);
template <class Costs>
void read_costs(std::string_view json, Costs& costs);

}  // namespace penstock::plan
