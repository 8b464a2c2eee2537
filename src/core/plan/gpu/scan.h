#pragma once

#include <string>
#include <string_view>

#include "penstock/types.h"
#include "plan/machine.h"

namespace penstock::plan {

/// Type of sequences in GPU memory. Arithmetic and states are float32 for all types.
enum class Storage { f32, bf16, f16 };

constexpr int size_of(Storage storage) { return storage == Storage::f32 ? 4 : 2; }
std::string_view to_string(Storage storage);

/// How the recurrence of a layer or a scan runs over T.
enum class ScanAlgorithm {
  automatic,  ///< The planner chooses.
  direct,     ///< A thread runs all steps of its channels, without exchange between threads. For short T.
  epilogue,   ///< Layers, forward: the recurrence is the epilogue of a product by warpgroups. For large layers.
  fused,      ///< Layers, forward: product, gates and recurrence in one launch, without intermediate results in memory.
  scan,       ///< Blocks compute chunks of T in parallel and pass the state from chunk to chunk.
};

std::string_view to_string(ScanAlgorithm algorithm);
/// Returns the algorithm with this name. Throws Error(invalid_argument), which lists the names.
ScanAlgorithm parse_scan_algorithm(std::string_view text);

/// Bytes of shared memory that the system reserves for each block.
constexpr Index kReservedBytes = 1024;

/// One linear recurrence h_t = a_t h_{t-1} + b_t over [B, T, C] on a GPU. a and b are read, or computed from gates.
struct GpuScanProblem {
  /// Rows, steps and channels, rounded up to a chunk or a tile, must fit 32-bit integers on the GPU.
  static constexpr Index max_size = (Index{1} << 31) - (Index{1} << 20) - 1;

  Storage storage = Storage::f32;
  Index rows = 1;      // B
  Index steps = 1;     // T
  Index channels = 1;  // C
  bool backward = false;
  int gates = 2;            ///< Values per step that give a and b: read, and written as gradients in the backward pass.
  int read_back = 1;        ///< Number of these values that the backward pass reads.
  bool computed = false;    ///< a and b are computed from the gates instead of being given.
  int learnt = 0;           ///< Learnt vectors [C] from which a and b are computed too.
  bool logarithms = false;  ///< a and b are given as logarithms: each step needs an exponential and its remainder.
  /// Largest power of two, up to 16 bytes, that divides all addresses and strides in bytes.
  int alignment = 16;
  bool lengths = false;
  bool reset = false;
  bool restarts = false;  ///< With reset: rows start again at given states.
  ScanAlgorithm algorithm = ScanAlgorithm::automatic;
  bool operator==(const GpuScanProblem&) const = default;
};

/// A plan for a linear recurrence.
///
/// ScanAlgorithm::scan: T is split into chunks; a tile is one chunk of some channels of one row. A block has `lanes`
/// threads along the channels and `groups` of them along time. It computes tile after tile, chunk by chunk over all
/// rows and channels, while the values of its next tiles are copied to shared memory. Blocks pass the state through
/// memory (decoupled look-back): everything is read and written once. ScanAlgorithm::direct: groups take different rows
/// and tiles of channels; a thread runs from the first step to the last. ScanAlgorithm::fused (plan/gpu/scan_layer.h):
/// the groups share a chunk, and a block runs over the chunks of its row. ScanAlgorithm::epilogue
/// (plan/gpu/scan_layer.h): like ScanAlgorithm::scan, but warpgroups compute the values of a tile by a product.
struct GpuScanPlan {
  ScanAlgorithm algorithm = ScanAlgorithm::scan;
  int vector = 1;           ///< Neighbouring channels of one thread.
  int lanes = 32;           ///< Threads along the channels.
  int groups = 8;           ///< Groups of `lanes` threads.
  int steps = 16;           ///< Steps of one thread.
  int piece = 4;            ///< Bytes of one copy to shared memory.
  bool keep = false;        ///< A block keeps a and b of its tile as floats instead of computing them twice.
  int window = 16;          ///< Chunks that a block looks back over at once.
  int stage_inputs = 0;     ///< ScanAlgorithm::epilogue: inputs per stage of the product.
  int depth = 0;            ///< ScanAlgorithm::epilogue: number of stages in shared memory.
  int blocks = 1;           ///< Blocks per multiprocessor.
  Index shared = 0;         ///< Bytes of shared memory of a block.
  Index tiles = 0;          ///< Tiles of the whole problem.
  Index grid = 0;           ///< Blocks of the launch.
  double microseconds = 0;  ///< Estimated time, for layers including the product; 0: not estimated.
  std::string why;

  int threads() const { return lanes * groups; }
  int tile_channels() const { return lanes * vector; }
  Index chunk() const { return algorithm == ScanAlgorithm::direct ? steps : static_cast<Index>(groups) * steps; }
  Index channel_tiles(Index channels) const { return (channels + tile_channels() - 1) / tile_channels(); }
  Index chunks(Index T) const { return (T + chunk() - 1) / chunk(); }
  /// Returns the bytes of memory through which blocks pass the state.
  Index workspace_bytes() const;
  std::string explain() const;
  bool operator==(const GpuScanPlan&) const = default;
};

/// Returns the plan for a scan. Throws Error: invalid_argument for sizes below one or too large for one launch,
/// unsupported for ScanAlgorithm::fused, which exists only for layers.
GpuScanPlan plan_gpu_scan(const GpuScanProblem& problem, const GpuModel& gpu);

/// Computes the members that follow from the shape of a block (the first members of a plan): pieces, shared memory,
/// tiles, grid.
GpuScanPlan complete(GpuScanPlan shape, const GpuScanProblem& problem, const GpuModel& gpu);

/// Returns the estimated time of the recurrence alone, including its launch and its memory accesses.
double scan_microseconds(const GpuScanPlan& plan, const GpuScanProblem& problem, const GpuModel& gpu);

/// Returns the widest vector, up to `wished`, that all addresses and the number of channels allow.
int fitting_vector(const GpuScanProblem& problem, int wished);

}  // namespace penstock::plan
