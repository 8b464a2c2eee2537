#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "penstock/types.h"
#include "plan/machine.h"

namespace penstock::plan {

/// How numbers lie in a GPU's memory. Arithmetic and states are float whatever this is.
enum class Storage { f32, bf16, f16 };

constexpr int size_of(Storage storage) { return storage == Storage::f32 ? 4 : 2; }
std::string_view to_string(Storage storage);

/// How the recurrence of a layer or a scan runs over T.
enum class Regime {
  automatic,  ///< The planner chooses.
  direct,     ///< A thread walks all steps of its channels: nothing passes between threads. For short T.
  epilogue,   ///< Layers, forward: the recurrence is the epilogue of a product by warpgroups. For large layers.
  fused,      ///< Layers, forward: product, gates and recurrence in one launch, without a way through memory.
  scan,       ///< Blocks take chunks of T side by side and hand the state on from chunk to chunk.
};

std::string_view to_string(Regime regime);
/// Throws Error(invalid_argument) that lists the names.
Regime parse_regime(std::string_view text);

/// Of shared memory, which the system keeps for each block.
constexpr Index kReservedBytes = 1024;

/// One linear recurrence h_t = a_t h_{t-1} + b_t over [B, T, C] on a GPU; a and b are read or made of what is read.
struct GpuScanProblem {
  /// Rows, steps and channels are 32-bit numbers on the GPU, and so is what a chunk or a tile beyond them adds.
  static constexpr Index max_size = (Index{1} << 31) - (Index{1} << 20) - 1;

  Storage storage = Storage::f32;
  Index rows = 1;      // B
  Index steps = 1;     // T
  Index channels = 1;  // C
  bool backward = false;
  int gates = 2;            ///< Values of a step that a and b are made of: read, and in the backward pass written.
  int read_back = 1;        ///< How many of them the backward pass reads.
  bool computed = false;    ///< Making a and b takes arithmetic.
  bool logarithms = false;  ///< a and b are given as logarithms, so that each step takes an exponential and its rest.
  /// Greatest power of two, up to 16 bytes, that divides every address and stride in bytes.
  int alignment = 16;
  bool lengths = false;
  bool reset = false;
  Regime regime = Regime::automatic;
  bool operator==(const GpuScanProblem&) const = default;
};

/// How it runs. Regime::scan: T is cut into chunks; a tile is one chunk of some channels of one row. A block of threads
/// takes tile after tile, chunk by chunk over all rows and channels, while the values of its next tiles are on their
/// way to shared memory: `lanes` threads side by side over channels, `groups` of them one after the other over time.
/// Blocks pass the state on through memory (decoupled look-back), so that everything is read and written once.
/// Regime::direct: the groups are other rows and tiles of channels, and a thread walks from the first step to the last.
/// Regime::fused (plan/gpu/layer.h): the groups share a chunk, and a block walks over the chunks of its row.
/// Regime::epilogue (the same): as Regime::scan, but the values of a tile come from warpgroups that multiply.
struct GpuScanPlan {
  Regime regime = Regime::scan;
  int vector = 1;           ///< Neighbouring channels of one thread.
  int lanes = 32;           ///< Threads side by side over channels.
  int groups = 8;           ///< Of such threads.
  int steps = 16;           ///< Steps of one thread.
  int piece = 4;            ///< Bytes of one copy to shared memory.
  bool keep = false;        ///< A block keeps a and b of its tile, as floats, instead of making them twice.
  int window = 16;          ///< Chunks that a block looks back over at once.
  int stage_inputs = 0;     ///< Regime::epilogue: inputs of a stage of the product.
  int depth = 0;            ///< The same: stages that shared memory holds.
  int blocks = 1;           ///< Blocks that one multiprocessor holds.
  Index shared = 0;         ///< Bytes of shared memory of a block.
  Index tiles = 0;          ///< Of the whole problem.
  Index grid = 0;           ///< Blocks of the launch.
  double microseconds = 0;  ///< As estimated, the product before it included in layers; 0: not estimated.
  std::string why;

  int threads() const { return lanes * groups; }
  int tile_channels() const { return lanes * vector; }
  Index chunk() const { return regime == Regime::direct ? steps : static_cast<Index>(groups) * steps; }
  Index channel_tiles(Index channels) const { return (channels + tile_channels() - 1) / tile_channels(); }
  Index chunks(Index T) const { return (T + chunk() - 1) / chunk(); }
  /// What the blocks pass on to each other.
  Index workspace_bytes() const;
  std::string explain() const;
  bool operator==(const GpuScanPlan&) const = default;
};

/// Throws Error: invalid_argument for sizes below one or beyond what one launch can number, unsupported for
/// Regime::fused, which is of layers.
GpuScanPlan plan_gpu_scan(const GpuScanProblem& problem, const GpuModel& gpu);

/// What follows from the shape of a block (the first members of a plan): pieces, shared memory, tiles, grid.
GpuScanPlan complete(GpuScanPlan shape, const GpuScanProblem& problem, const GpuModel& gpu);

/// Of the recurrence by itself, its launch included; with the values that it reads and writes.
double scan_microseconds(const GpuScanPlan& plan, const GpuScanProblem& problem, const GpuModel& gpu);

/// The widest vector up to the wished one that every address and the number of channels allow.
int fitting_vector(const GpuScanProblem& problem, int wished);

}  // namespace penstock::plan
