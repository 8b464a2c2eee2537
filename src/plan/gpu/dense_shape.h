#pragma once

#include <algorithm>

#include "plan/gpu/dense.h"

namespace penstock::plan {

/// Registers of a thread that do not hold tiles of R: what the compiler was seen to use, and some more.
struct OtherRegisters {
  int thread;            ///< Whatever its work
  int slot;              ///< Of each unit and row whose cell it applies
  int gate, split_gate;  ///< Of each gate of those; of cells whose gradients of R h differ from those of W x
  int tile_m;            ///< Of each tile of its sums
};

/// Of a forward pass or a backward pass, as the candidate is of one.
template <class Candidate>
int other_registers(const Candidate& c, const OtherRegisters& of, bool reset) {
  const auto& shape = c.shape;
  constexpr int of_float_parts = 24, of_reset = 14;
  const int tiles = c.tiles_m() * shape.tiles_n();
  const int products = tiles * 4 * shape.chains(tiles) + c.operand_registers();
  const int sums = std::max(products, c.polled_registers()) + of.tile_m * c.tiles_m();
  int slot = of.slot + (shape.split ? of.split_gate : of.gate) * shape.gates + shape.states + (reset ? of_reset : 0);
  if (c.backward) slot += shape.states + 4 * ((shape.read_pieces() + 7) / 8);
  return of.thread + sums + (shape.bytes == 4 ? of_float_parts : 0) + slot * c.slots();
}

/// The k-tiles of R for which a thread has registers, of those of a multiprocessor; -1 where `other` are too many.
template <class Candidate>
int resident_tiles(const Candidate& c, int other, int registers) {
  constexpr int most_registers = 255, of_tile = 4;
  const int all = std::min(most_registers, registers / c.shape.threads() / 8 * 8);
  const int left = all - other;
  return left < 0 ? -1 : std::min(left / (of_tile * c.tiles_m()), c.tiles_k());
}

/// What a plan says of the blocks of a cluster, alike for the algorithms whose blocks share the units of a head.
/// Forward candidates are compared with the memory of a tape; the plan's is with one or without, as the problem says.
template <class Candidate>
GpuDensePlan plan_of_blocks(DenseAlgorithm algorithm, const Candidate& candidate, bool training) {
  Candidate actual = candidate;
  actual.shape.training = training;
  GpuDensePlan plan;
  plan.algorithm = algorithm;
  plan.slots = candidate.shape.rows;
  plan.warps = candidate.shape.warps();
  plan.resident = candidate.shape.resident, plan.chunks = candidate.tiles_k();
  plan.stages = candidate.shape.stages;
  plan.shared = actual.shared();
  plan.slices = candidate.slices;
  plan.cluster = candidate.shape.cluster, plan.octets = candidate.shape.blocks;
  plan.groups = candidate.shape.groups, plan.parts = candidate.shape.parts;
  return plan;
}

}  // namespace penstock::plan
