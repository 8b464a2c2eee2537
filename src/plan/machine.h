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

/// What work takes on one GPU, as far as plans are chosen by it: measured on an H200 (docs/results/gpu.md), carried
/// over to other chips by their units, clocks and bandwidths, and overwritten by what `tune` measures.
struct GpuCosts {
  double launch = 3;          ///< Of a launch, microseconds
  double product_launch = 3;  ///< Of a product by a library or a kernel of its own, microseconds
  double look_back = 5;       ///< Of a scan's chunks that wait for each other, microseconds
  double direct_steps = 64;   ///< Up to so many steps a thread is done with a walk sooner than blocks with looking back
  double steps_ahead = 0.65;  ///< A thread that walks: of the steps that it asks for at once, microseconds

  double bytes = 3.3e6;          ///< Of memory in a microsecond, by scans and pointwise work
  double direct_bytes = 0.85e6;  ///< The same, by threads that walk
  double tf32 = 350e6;           ///< Multiplications and additions of a product in a microsecond
  double halves = 700e6;         ///< The same, of bf16 and f16
  double inputs = 0.005;         ///< Of each input of a product, however small it is, microseconds

  double clock = 1700;  ///< Cycles of a microsecond

  // Layers of scan cells in one launch, in cycles of a block.
  double four_inputs = 150;  ///< Around four inputs of a step
  double chunk = 4000;       ///< Around a chunk
  double chunk_group = 60;   ///< Of each of its groups
  double weight = 120;       ///< Of a thread, for bringing a weight to shared memory
  double input_copy = 60;    ///< Of a thread, for a copy of 16 bytes of x

  // Layers of scan cells as the epilogue of a product by warpgroups.
  double epilogue_launch = 7;       ///< Around the first and the last tile, microseconds
  double epilogue_products = 1750;  ///< Multiplications of halves of one multiprocessor in a cycle
  double epilogue_tile = 1500;      ///< Cycles of a tile around its multiplications
  double epilogue_step = 36;    ///< Cycles of a thread of the epilogue, for a step of a channel and each of its gates
  double epilogue_share = 0.2;  ///< Of those cycles, that multiplications of the next tile wait for

  double own_product =
      1e10;  ///< Multiplications of a product of floats from which a library's are quicker than ours by warps

  // Products of floats by warps; of one multiprocessor and a cycle.
  double products = 340 / 3.0;  ///< Multiplications of floats, each made of three
  double instructions = 4;
  double cached_bytes = 24;     ///< From the cache that all multiprocessors share
  double product_block = 3000;  ///< Cycles before a block's first and behind its last multiplication
  double product_pass = 5000;   ///< Cycles of the launch that adds up the parts of a split K
  double added_bytes = 1500;    ///< That it adds in a cycle
  double busy_warps = 8;        ///< That keep tensor cores busy

  // Products of floats by warpgroups.
  double group_products = 0.65 * 1024 / 3;  ///< Of a cycle: two thirds of the data sheet's
  double group_block = 4000;                ///< Cycles of a block around its work
  double group_rows = 700;                  ///< Cycles around the rows of a tile
  double group_alone = 600;                 ///< Cycles of a warpgroup between its products
  double group_transposed = 350;            ///< More, where A lies transposed
  double group_split = 7;                   ///< Cycles to split a step's column
  double group_bytes = 2200;                ///< Of memory in a cycle

  // Recurrences of dense cells over clusters, of a step, in nanoseconds.
  double exchange_of_8 = 300, exchange_of_16 = 350;  ///< An all-gather in a cluster, without its bytes
  double received_bytes = 50;                        ///< Of one block, in a nanosecond
  double tensor_tile = 4;                            ///< Two tiles of 16 x 8 on one tensor core
  double shared_bytes = 250;                         ///< Of one multiprocessor, in a nanosecond
  double cluster_warp = 15;                          ///< What each warp of a tensor core does beside
  double uneven_rows = 45;                           ///< Rows that do not come in fours meet in banks of shared memory
  double cluster_overlap = 0.8;                      ///< What the parts of a step take together, of their sum
  double cluster_slot = 200;                         ///< The cell, for one unit and row of each thread

  // Recurrences of dense cells over the whole chip, of a step, in nanoseconds; what they share with clusters is above.
  double chip_exchange = 920;  ///< From a store in one multiprocessor to its sight in another, barriers included
  double chip_poll = 400;      ///< When a thread has more to wait for than it can ask for at once
  double gathered_bytes = 60;  ///< Of one block, in a nanosecond
  double chip_sums = 500;      ///< Sums exchanged among the blocks of a cluster
  double pair_sums = 420;      ///< The same of clusters of two
  double block_sums = 60;      ///< The same in a block alone
  double chip_backward = 250;  ///< More, for a step of a backward pass
  // The same where what is exchanged goes from registers to registers: measured, and fitted within 6 % in the mean.
  double direct_exchange = 1116;     ///< A step with nothing to multiply
  double direct_backward = 640;      ///< More, of a backward pass
  double direct_request = 97;        ///< When a thread has more to wait for than it can ask for at once, each time
  double direct_tile = 2.9;          ///< Two tiles of 16 x 8 on one tensor core
  double direct_shared_bytes = 530;  ///< Of the recurrent matrix from shared memory, in a nanosecond
  double direct_sums_bytes = 100;    ///< Of sums among the warps of a block
  double direct_pair_bytes = 35;     ///< Of sums among the warps of two blocks
  double direct_slot = 475;          ///< The cell, for each unit and row of a thread but the first

  // Recurrences of dense cells by a product and a launch for each step.
  double step_launch = 5000;     ///< From a small kernel's start to the next one's, in nanoseconds
  double step_halves = 400e6;    ///< Multiplications of a product of few rows in a microsecond
  double step_floats = 60e6;     ///< The same of floats
  double step_warps = 4;         ///< Of a block that applies the cell
  double l2_bytes = 4500;        ///< Of the second-level cache, by all multiprocessors in a nanosecond
  double resident_share = 0.75;  ///< Of that cache, up to which a matrix stays there from step to step

  // Recurrences of dense cells in one block, of a step, in nanoseconds.
  double head_step = 130;        ///< Barrier, and the chain from a load of h to a store
  double head_gate = 4;          ///< Each gate
  double head_state = 15;        ///< Each state but the output
  double head_rows = 30;         ///< Each two rows of a block but the first
  double head_product = 4;       ///< One multiplication of 16 x 8 x 16 on one of four tensor cores
  double head_floats = 10;       ///< The same of floats, in multiplications of halves
  double head_training = 1.13;   ///< A step that keeps a tape, of one that does not
  double head_backward = 1.3;    ///< A step of the backward pass, of a forward one
  double head_neighbour = 0.45;  ///< What each further block on a multiprocessor adds, of one

  // Recurrences of dense cells whose matrices are diagonal, of a step of a thread, in nanoseconds.
  double diagonal_step = 95;        ///< What no step can do without
  double diagonal_gate = 20;        ///< Each gate
  double diagonal_backward = 1.55;  ///< A step of the backward pass, of a forward one
  double diagonal_slope = 0.15;     ///< Of a walk with derivatives: what each state adds, of one without
  double diagonal_join = 1000;      ///< From some pieces, whose values are read at once, to the next

  // Layers on top of each other as a wavefront, microseconds.
  double branch_chunk = 16;   ///< A chunk, besides its steps: its launch, the recurrent matrix anew, the next branch
  double branch_launch = 13;  ///< Of the host, for a chunk of a layer

  // What lies between the host and the GPU, microseconds. The first two are assumed.
  double recorded_launch = 1.2;  ///< Of a launch that is part of a recorded graph
  double host_copy = 12;         ///< Of a copy from or to the host that is waited for, without its bytes
  double host_bytes = 10.5e3;    ///< Of such a copy, in a microsecond
  double start = 600e3;          ///< Of a process: the driver, its memory, kernels from the cache

  bool operator==(const GpuCosts&) const = default;
};

/// What work takes on one CPU, as far as plans are chosen by it.
struct CpuCosts {
  double multiply_adds = 25'000;  ///< Of one thread, in a microsecond
  double gates = 400;             ///< Units and rows whose cell one thread applies in a microsecond
  double bytes = 10'000;          ///< Of memory, in a microsecond of one thread
  // Recurrences of dense cells, in multiply-adds that a thread could make meanwhile.
  double weight = 1.1;      ///< Of reading a recurrent weight for the rows of a tile
  double far_weight = 1;    ///< The same on top of it for a matrix that the thread's own cache does not hold
  double near_share = 0.9;  ///< Of the second-level cache: larger parts of a matrix are read from beyond it
  double sharing = 4'000;   ///< Of meeting at the barrier of a step, for each thread there
  double exchanged = 90;    ///< Of each value of a state that another thread has made, which its cache holds
  double waiting = 0.06;    ///< Of a step, by which each thread more makes the last one later

  // Weights that are not packed beforehand, in multiply-adds that a thread could make meanwhile.
  double packing = 18;      ///< Of packing one weight
  double lying_step = 1.6;  ///< Of reading it where the caller has it, in each step, on top of what panels take
  double lying_row = 1.8;   ///< The same of each position

  double chunk_pass = 1.6;          ///< A scan in chunks, of the time of one from first step to last
  double narrow_pass = 2.7;         ///< The same of fewer channels than a cache line holds
  double product_grain = 65'536;    ///< Multiply-adds below which a thread of its own does not pay
  double library_product = 16'384;  ///< Multiply-adds from which a product is a library's
  double product_rows = 4;          ///< Rows up to which it is not: reading the matrix is all there is to it
  double input_share = 0.25;        ///< Of the second-level cache: the input products of the steps that come
  /// A step's input product is made with its recurrent one, not for many steps before it, where at most so many values
  /// of panels are read again for each value of a sum that then need not pass through memory. On a Xeon with AMX
  /// forward passes of LSTM cells took 2 to 13 % less time so at ratios up to 1, as long at 3, and 14 to 41 % more from
  /// 6 on.
  double input_reads = 3;
  double gradient_share = 1;  ///< Of the second-level cache: inputs and gates' gradients of a backward pass
  /// Of these, at most: where a core has more to itself, larger pieces are no quicker. With 2 MB of 2 MB the gradient
  /// of x took a seventh longer.
  double gradient_bytes = 1 << 20;
  double panel_share = 2;     ///< The same: panels of a step that are read as if they lay in it
  double streamed_share = 4;  ///< The same: tapes from here on go past the caches

  // Layers on top of each other as a wavefront.
  double wave_matrix_share = 0.8;    ///< Of the second-level cache: larger recurrent matrices are shared among threads
  double wave_backward_share = 0.6;  ///< The same of a backward pass, which reads more beside them
  double wave_rows = 16;             ///< With so many rows for each thread, sharing them gains as much
  double wave_chunks = 16;  ///< Of a sequence: threads have nothing to do while the first and the last ones run
  double wave_steps = 8;    ///< Of a chunk, at least: each reads all weights of the input anew

  bool operator==(const CpuCosts&) const = default;
};

/// Calls visit(name, value) for each number of costs, in the order in which files have them.
template <class Costs, class Visit>
void visit_gpu_costs(Costs& costs, const Visit& visit);
template <class Costs, class Visit>
void visit_cpu_costs(Costs& costs, const Visit& visit);

/// A cost by its name.
using NamedCost = std::pair<std::string, double>;
/// All of a machine's, in that order.
std::vector<NamedCost> named_costs(const GpuCosts& costs);
std::vector<NamedCost> named_costs(const CpuCosts& costs);
/// Puts numbers in their place, as many and in that order.
void set_costs(GpuCosts& costs, std::span<const double> values);
void set_costs(CpuCosts& costs, std::span<const double> values);

/// A GPU as the planner sees it.
struct GpuModel {
  std::string name;
  int compute_major = 0, compute_minor = 0;
  int multiprocessors = 0;
  int threads = 0;                ///< Resident on one multiprocessor, at most
  int registers = 0;              ///< 32-bit, of one multiprocessor
  std::int64_t shared_bytes = 0;  ///< Of one multiprocessor
  std::int64_t block_bytes = 0;   ///< Shared memory of one block, at most
  std::int64_t l2_bytes = 0;
  std::int64_t memory_bytes = 0;
  int cluster = 16;      ///< Blocks of a cluster, at most, on chips that have clusters
  int clock_mhz = 0;     ///< 0: unknown
  double bandwidth = 0;  ///< Of memory, bytes in a second; 0: unknown
  int driver = 0;        ///< CUDA version of the driver: 12080; 0: there is none
  GpuCosts costs = {};
  std::shared_ptr<const Tuning> tuned = nullptr;  ///< Plans that were measured to be the quickest (tuning.h)

  /// As in sm_90: 90.
  int architecture() const { return compute_major * 10 + compute_minor; }
  bool has_clusters() const { return architecture() >= 90 && cluster > 1; }
  bool operator==(const GpuModel&) const = default;
};

/// A CPU as the planner sees it.
struct CpuModel {
  std::string name;
  std::string isa;  ///< Instruction set in use: "avx512"
  int cores = 1;
  std::int64_t l1_bytes = 32 << 10, l2_bytes = 1 << 20, l3_bytes = 0;  ///< L1 and L2 of one core
  int vector_bytes = 16;
  bool bf16_products = false, bf16_tiles = false;
  CpuCosts costs = {};
  std::shared_ptr<const Tuning> tuned = nullptr;

  bool operator==(const CpuModel&) const = default;
  /// So much of the second-level cache, in values of a size.
  Index cached(double share, std::size_t value_bytes) const {
    return static_cast<Index>(share * static_cast<double>(l2_bytes) / static_cast<double>(value_bytes));
  }
  /// Values of a size that a piece of a backward pass has room for.
  Index cached_gradients(std::size_t value_bytes) const {
    return static_cast<Index>(std::min(costs.gradient_share * static_cast<double>(l2_bytes), costs.gradient_bytes) /
                              static_cast<double>(value_bytes));
  }
};

/// What a program may run on.
struct Machine {
  CpuModel cpu;
  GpuModel gpu;
};

/// The chips that can be planned for without being there.
const std::vector<GpuModel>& known_gpus();
/// By a name such as "h100", "rtx 4090" or "sm_90", in any case. Throws Error(invalid_argument) that lists the names.
GpuModel named_gpu(std::string_view name);
/// Fills in what a driver does not say, costs among it, from the known chip of that name or of that generation.
void fill_in(GpuModel& gpu);

/// A JSON object of all costs. Reading leaves costs that the text does not name as they are, and throws
/// Error(bad_input) that names what is not JSON, unknown, or not a positive number.
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
