#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "penstock/types.h"

namespace penstock::plan {

struct Tuning;

/// Costs of work on a GPU, from which the planner estimates times. They were measured on an H200 (docs/results/gpu.md)
/// and are scaled to other chips by units, clocks and bandwidths. `tune` overwrites them by measurements.
struct GpuCosts {
  double launch = 3;          ///< Microseconds of a launch
  double product_launch = 3;  ///< Microseconds of launching a product by a library or a separate kernel
  double look_back = 5;       ///< Microseconds for which chunks of a scan wait for each other
  double direct_steps = 64;   ///< Largest number of steps for which one thread is faster than blocks with look-back
  double steps_ahead = 0.65;  ///< Regime::direct: microseconds for each batch of steps that a thread loads at once

  double bytes = 3.3e6;          ///< Bytes of memory per microsecond, for scans and pointwise work
  double direct_bytes = 0.85e6;  ///< Bytes of memory per microsecond, for Regime::direct
  double tf32 = 350e6;           ///< Multiply-adds per microsecond of a product in tf32
  double halves = 700e6;         ///< Multiply-adds per microsecond of a product in bf16 or f16
  double inputs = 0.005;         ///< Microseconds per input of a product, independent of its size

  double clock = 1700;  ///< Cycles per microsecond

  // Layers of scan cells in one launch, in cycles of a block.
  double four_inputs = 150;  ///< Overhead of four inputs of a step
  double chunk = 4000;       ///< Overhead of a chunk
  double chunk_group = 60;   ///< Overhead per group of a chunk
  double weight = 120;       ///< Loading one weight to shared memory, per thread
  double input_copy = 60;    ///< Copying 16 bytes of x, per thread

  // Layers of scan cells as the epilogue of a product by warpgroups.
  double epilogue_launch = 7;       ///< Microseconds before the first and after the last tile
  double epilogue_products = 1750;  ///< 16-bit multiplications per cycle of a multiprocessor
  double epilogue_tile = 1500;      ///< Cycles of a tile besides its multiplications
  double epilogue_step = 36;        ///< Cycles of an epilogue thread per step, channel and gate
  double epilogue_share = 0.2;      ///< Fraction of these cycles that the next tile's multiplications wait for

  double own_product = 1e10;  ///< Multiplications from which a library's product of floats is faster than ours by warps

  // Products of floats by warps, per cycle of a multiprocessor unless stated.
  double products = 340 / 3.0;  ///< Multiplications of floats, each of three 16-bit ones
  double instructions = 4;
  double cached_bytes = 24;     ///< Bytes from the cache that all multiprocessors share
  double product_block = 3000;  ///< Cycles of a block before its first and after its last multiplication
  double product_pass = 5000;   ///< Cycles of the launch that adds up the splits of K
  double added_bytes = 1500;    ///< Bytes per cycle that this launch adds up
  double busy_warps = 8;        ///< Number of warps that saturate the tensor cores

  // Products of floats by warpgroups.
  double group_products = 0.65 * 1024 / 3;  ///< Multiplications per cycle: two thirds of the data sheet's
  double group_block = 4000;                ///< Cycles of a block besides its work
  double group_rows = 700;                  ///< Cycles of the rows of a tile besides their work
  double group_alone = 600;                 ///< Cycles of a warpgroup between its products
  double group_transposed = 350;            ///< Further cycles if A is transposed
  double group_split = 7;                   ///< Cycles of splitting a column of a step
  double group_bytes = 2200;                ///< Bytes of memory per cycle

  // Recurrences of dense cells over clusters, in nanoseconds per step.
  double exchange_of_8 = 300, exchange_of_16 = 350;  ///< An all-gather in a cluster, without its bytes
  double received_bytes = 50;                        ///< Bytes per nanosecond that one block receives
  double tensor_tile = 4;                            ///< Two tiles of 16 x 8 on one tensor core
  double shared_bytes = 250;                         ///< Bytes per nanosecond from a multiprocessor's shared memory
  double cluster_warp = 15;                          ///< Further work of each warp of a tensor core
  double uneven_rows = 45;                           ///< Bank conflicts if rows are not a multiple of four
  double cluster_overlap = 0.8;                      ///< Time of a step as a fraction of the sum of its parts
  double cluster_slot = 200;                         ///< The cell, per unit and row of each thread

  // Recurrences of dense cells over the whole chip, in nanoseconds per step. Costs shared with clusters are above.
  double chip_exchange = 920;  ///< From a store in one multiprocessor to its visibility in another, with barriers
  double chip_poll = 400;      ///< A thread waits for more values than it can poll at once
  double gathered_bytes = 60;  ///< Bytes per nanosecond that one block gathers
  double chip_sums = 500;      ///< Exchange of sums among the blocks of a cluster
  double pair_sums = 420;      ///< Exchange of sums in clusters of two
  double block_sums = 60;      ///< Exchange of sums within one block
  double chip_backward = 250;  ///< Further time of a step of a backward pass
  // The same with exchange from registers to registers: measured, and fitted with a mean error below 6 %.
  double direct_exchange = 1116;     ///< A step without multiplications
  double direct_backward = 640;      ///< Further time of a step of a backward pass
  double direct_request = 97;        ///< Each time that a thread must poll again for values beyond one request
  double direct_tile = 2.9;          ///< Two tiles of 16 x 8 on one tensor core
  double direct_shared_bytes = 530;  ///< Bytes per nanosecond of the recurrent matrix from shared memory
  double direct_sums_bytes = 100;    ///< Bytes per nanosecond of sums among the warps of a block
  double direct_pair_bytes = 35;     ///< Bytes per nanosecond of sums among the warps of two blocks
  double direct_slot = 475;          ///< The cell, per unit and row of a thread after the first

  // Recurrences of dense cells with a product and a launch per step.
  double step_launch = 5000;     ///< Nanoseconds from the start of a small kernel to that of the next
  double step_halves = 400e6;    ///< 16-bit multiplications per microsecond of a product of few rows
  double step_floats = 60e6;     ///< Multiplications of floats per microsecond of such a product
  double step_warps = 4;         ///< Warps of a block that applies the cell
  double l2_bytes = 4500;        ///< Bytes per nanosecond from the L2 cache to all multiprocessors
  double resident_share = 0.75;  ///< Largest fraction of the L2 cache that a matrix may take to stay there over steps

  // Recurrences of dense cells in one block, in nanoseconds per step unless stated.
  double head_step = 130;        ///< Barrier, and the dependent chain from loading h to storing it
  double head_gate = 4;          ///< Each gate
  double head_state = 15;        ///< Each state except the output
  double head_rows = 30;         ///< Each pair of rows of a block after the first
  double head_product = 4;       ///< One multiplication of 16 x 8 x 16 on one of four tensor cores
  double head_floats = 10;       ///< A multiplication of floats, as a multiple of a 16-bit one
  double head_training = 1.13;   ///< A step with a tape, as a multiple of one without
  double head_backward = 1.3;    ///< A step of the backward pass, as a multiple of a forward step
  double head_neighbour = 0.45;  ///< Each further block on a multiprocessor, as a fraction of one block

  // Recurrences of dense cells with diagonal matrices, in nanoseconds per step of a thread unless stated.
  double diagonal_step = 95;        ///< Minimum of a step
  double diagonal_gate = 20;        ///< Each gate
  double diagonal_backward = 1.55;  ///< A step of the backward pass, as a multiple of a forward step
  double diagonal_slope = 0.15;     ///< Computing derivatives: each state, as a fraction of a step without them
  double diagonal_join = 1000;      ///< From one batch of pieces, which are read at once, to the next

  // Stacked layers as a wavefront, in microseconds.
  double branch_chunk = 16;   ///< A chunk besides its steps: launch, loading the recurrent matrix, the next branch
  double branch_launch = 13;  ///< Time of the host per chunk of a layer

  // Host and GPU, in microseconds unless stated. The first two are assumed, not measured.
  double recorded_launch = 1.2;  ///< A launch inside a recorded graph
  double host_copy = 12;         ///< A synchronous copy from or to the host, without its bytes
  double host_bytes = 10.5e3;    ///< Bytes per microsecond of such a copy
  double start = 600e3;          ///< Start of a process: driver, memory, kernels from the cache

  bool operator==(const GpuCosts&) const = default;
};

/// Costs of work on a CPU, from which the planner estimates times.
struct CpuCosts {
  double multiply_adds = 25'000;  ///< Multiply-adds per microsecond of one thread
  double gates = 400;             ///< Units and rows per microsecond to which one thread applies the cell
  double bytes = 10'000;          ///< Bytes of memory per microsecond of one thread
  // Recurrences of dense cells, in multiply-adds that a thread could do in the same time, unless stated.
  double weight = 1.1;      ///< Reading a recurrent weight for the rows of a tile
  double far_weight = 1;    ///< Further cost per weight if the matrix does not fit the thread's own cache
  double near_share = 0.9;  ///< Fraction of the L2 cache that a thread's part of a matrix may take to stay there
  double sharing = 4'000;   ///< Waiting at the barrier of a step, per thread
  double exchanged = 90;    ///< Each value of a state that another thread has computed and holds in its cache
  double waiting = 0.06;    ///< Fraction of a step by which each further thread delays the last one

  // Weights that are not packed in advance, in multiply-adds that a thread could do in the same time.
  double packing = 18;      ///< Packing one weight
  double lying_step = 1.6;  ///< Further cost per weight and step of reading unpacked weights instead of panels
  double lying_row = 1.8;   ///< Further cost per weight and position of reading unpacked weights

  double chunk_pass = 1.6;          ///< A scan in chunks, as a multiple of the time of a sequential one
  double narrow_pass = 2.7;         ///< The same for fewer channels than a cache line holds
  double product_grain = 65'536;    ///< Smallest number of multiply-adds worth a further thread
  double library_product = 16'384;  ///< Smallest number of multiply-adds for which the library computes a product
  double product_rows = 4;          ///< Up to this many rows it does not: reading the matrix dominates
  double input_share = 0.25;        ///< Fraction of the L2 cache for the input products of the next steps
  /// Largest ratio at which the input product of a step is computed together with the recurrent one, instead of for
  /// many steps in advance. The ratio is the number of values of panels that are read again per value of a sum that
  /// need not pass through memory. On a Xeon with AMX this made forward passes of LSTM cells 2 to 13 % faster at ratios
  /// up to 1, equally fast at 3, and 14 to 41 % slower from 6 on.
  double input_reads = 3;
  double gradient_share = 1;  ///< Fraction of the L2 cache for inputs and gate gradients of a backward pass
  /// Upper limit of these bytes: with a larger cache, larger pieces are not faster. With 2 MB of 2 MB, the gradient of
  /// x took a seventh longer.
  double gradient_bytes = 1 << 20;
  double panel_share = 2;     ///< Panels of a step up to this multiple of the L2 cache are read as fast as from it
  double streamed_share = 4;  ///< Tapes from this multiple of the L2 cache on bypass the caches

  // Stacked layers as a wavefront.
  double wave_matrix_share = 0.8;    ///< Threads share recurrent matrices larger than this fraction of the L2 cache
  double wave_backward_share = 0.6;  ///< The same for a backward pass, which reads other data, too
  double wave_rows = 16;             ///< With this many rows per thread, sharing the rows gains as much
  double wave_chunks = 16;           ///< Chunks of a sequence: threads are idle during the first and the last ones
  double wave_steps = 8;             ///< Smallest number of steps of a chunk: each chunk reads all input weights again

  bool operator==(const CpuCosts&) const = default;
};

/// Calls visit(name, value) for each cost, in the order of files.
template <class Costs, class Visit>
void visit_gpu_costs(Costs& costs, const Visit& visit);
template <class Costs, class Visit>
void visit_cpu_costs(Costs& costs, const Visit& visit);

/// A cost and its name.
using NamedCost = std::pair<std::string, double>;
/// Returns all costs of a machine, in the order of files.
std::vector<NamedCost> named_costs(const GpuCosts& costs);
std::vector<NamedCost> named_costs(const CpuCosts& costs);
/// Sets all costs from values in the order of named_costs().
void set_costs(GpuCosts& costs, std::span<const double> values);
void set_costs(CpuCosts& costs, std::span<const double> values);

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
  int cluster = 16;      ///< Largest number of blocks of a cluster, on chips with clusters
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
std::string costs_json(const GpuCosts& costs);
std::string costs_json(const CpuCosts& costs);
void read_costs(std::string_view json, GpuCosts& costs);
void read_costs(std::string_view json, CpuCosts& costs);

template <class Costs, class Visit>
void visit_gpu_costs(Costs& c, const Visit& visit) {
  visit("launch", c.launch), visit("product_launch", c.product_launch), visit("look_back", c.look_back);
  visit("direct_steps", c.direct_steps), visit("steps_ahead", c.steps_ahead), visit("bytes", c.bytes),
      visit("direct_bytes", c.direct_bytes);
  visit("tf32", c.tf32), visit("halves", c.halves), visit("inputs", c.inputs), visit("clock", c.clock);
  visit("own_product", c.own_product), visit("four_inputs", c.four_inputs), visit("chunk", c.chunk),
      visit("chunk_group", c.chunk_group);
  visit("epilogue_launch", c.epilogue_launch), visit("epilogue_products", c.epilogue_products);
  visit("epilogue_tile", c.epilogue_tile), visit("epilogue_step", c.epilogue_step);
  visit("epilogue_share", c.epilogue_share);
  visit("weight", c.weight), visit("input_copy", c.input_copy), visit("products", c.products);
  visit("instructions", c.instructions), visit("cached_bytes", c.cached_bytes);
  visit("product_block", c.product_block), visit("product_pass", c.product_pass);
  visit("added_bytes", c.added_bytes), visit("busy_warps", c.busy_warps), visit("group_products", c.group_products);
  visit("group_block", c.group_block), visit("group_rows", c.group_rows), visit("group_alone", c.group_alone);
  visit("group_transposed", c.group_transposed), visit("group_split", c.group_split);
  visit("group_bytes", c.group_bytes), visit("exchange_of_8", c.exchange_of_8);
  visit("exchange_of_16", c.exchange_of_16), visit("received_bytes", c.received_bytes);
  visit("tensor_tile", c.tensor_tile), visit("shared_bytes", c.shared_bytes), visit("cluster_warp", c.cluster_warp);
  visit("uneven_rows", c.uneven_rows), visit("cluster_overlap", c.cluster_overlap),
      visit("cluster_slot", c.cluster_slot), visit("head_step", c.head_step), visit("head_gate", c.head_gate);
  visit("head_state", c.head_state), visit("head_rows", c.head_rows), visit("head_product", c.head_product);
  visit("head_floats", c.head_floats), visit("head_training", c.head_training);
  visit("head_backward", c.head_backward), visit("head_neighbour", c.head_neighbour);
  visit("diagonal_step", c.diagonal_step), visit("diagonal_gate", c.diagonal_gate);
  visit("diagonal_backward", c.diagonal_backward), visit("diagonal_slope", c.diagonal_slope);
  visit("diagonal_join", c.diagonal_join);
  visit("chip_exchange", c.chip_exchange), visit("chip_poll", c.chip_poll);
  visit("gathered_bytes", c.gathered_bytes), visit("chip_sums", c.chip_sums), visit("pair_sums", c.pair_sums);
  visit("block_sums", c.block_sums), visit("chip_backward", c.chip_backward), visit("step_launch", c.step_launch);
  visit("direct_exchange", c.direct_exchange), visit("direct_backward", c.direct_backward);
  visit("direct_request", c.direct_request), visit("direct_tile", c.direct_tile);
  visit("direct_shared_bytes", c.direct_shared_bytes), visit("direct_sums_bytes", c.direct_sums_bytes);
  visit("direct_pair_bytes", c.direct_pair_bytes), visit("direct_slot", c.direct_slot);
  visit("step_halves", c.step_halves), visit("step_floats", c.step_floats), visit("step_warps", c.step_warps);
  visit("l2_bytes", c.l2_bytes), visit("resident_share", c.resident_share);
  visit("branch_chunk", c.branch_chunk), visit("branch_launch", c.branch_launch);
  visit("recorded_launch", c.recorded_launch), visit("host_copy", c.host_copy);
  visit("host_bytes", c.host_bytes), visit("start", c.start);
}

template <class Costs, class Visit>
void visit_cpu_costs(Costs& c, const Visit& visit) {
  visit("multiply_adds", c.multiply_adds), visit("gates", c.gates), visit("bytes", c.bytes);
  visit("weight", c.weight), visit("far_weight", c.far_weight), visit("near_share", c.near_share);
  visit("sharing", c.sharing), visit("exchanged", c.exchanged), visit("waiting", c.waiting);
  visit("packing", c.packing), visit("lying_step", c.lying_step), visit("lying_row", c.lying_row);
  visit("chunk_pass", c.chunk_pass), visit("narrow_pass", c.narrow_pass), visit("product_grain", c.product_grain);
  visit("library_product", c.library_product), visit("product_rows", c.product_rows);
  visit("input_share", c.input_share), visit("input_reads", c.input_reads);
  visit("gradient_share", c.gradient_share), visit("gradient_bytes", c.gradient_bytes);
  visit("panel_share", c.panel_share), visit("streamed_share", c.streamed_share);
  visit("wave_matrix_share", c.wave_matrix_share), visit("wave_backward_share", c.wave_backward_share),
      visit("wave_rows", c.wave_rows);
  visit("wave_chunks", c.wave_chunks), visit("wave_steps", c.wave_steps);
}

}  // namespace penstock::plan
