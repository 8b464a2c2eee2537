#pragma once

#include <algorithm>
#include <optional>
#include <utility>

#include "plan/cell_table.h"
#include "plan/gpu/dense.h"

namespace penstock::plan {

/// Values of a variable of a plan: what a problem asks for, unless that is 0.
inline csp::Domain asked_or(int asked, csp::Domain otherwise) {
  return asked != 0 ? csp::Domain({csp::Integer{asked}}) : std::move(otherwise);
}

/// Registers of a thread that do not hold tiles of R: the observed use of the compiler plus a margin.
struct OtherRegisters {
  int thread;            ///< Fixed part
  int slot;              ///< Per unit and row to which the thread applies the cell
  int gate, split_gate;  ///< Per gate of these; split_gate if gradients of R h and W x differ
  int tile_m;            ///< Per tile of its sums
};

/// Values of a unit that the cells of the list, and so the numbers of OtherRegisters, have at the same time, with the
/// margin that custom cells were observed to leave.
constexpr int kCoveredValues = 36;

/// Returns the registers that resets take per unit and row: what the compiler was observed to use beyond those without
/// resets. Forward passes load all given states of a reset ahead; backward passes load h and add up the gradients of
/// all. `crowded`: what a pass reads besides needs many registers, too.
inline int reset_registers(const GpuDenseProblem& problem, int states, bool crowded) {
  if (!problem.reset) return 0;
  if (crowded) return 14 + (problem.restarts ? 12 + 2 * states : 0);
  return 5 + (problem.restarts ? problem.backward ? 2 * std::max(2, states) : 1 + 3 * states : 0);
}

/// Returns the number of other registers of a candidate, for its forward or backward pass. `more`: further registers
/// per unit and row. `further`: registers of each unit and row beyond the first, if fewer than of that.
template <class Candidate>
int other_registers(const Candidate& c, const OtherRegisters& of, const GpuDenseProblem& problem, int more,
                    std::optional<int> further = std::nullopt) {
  const auto& shape = c.shape;
  constexpr int of_float_parts = 24;
  const int tiles = c.tiles_m() * shape.tiles_n();
  const int products = tiles * 4 * shape.chains(tiles) + c.operand_registers();
  const int sums = std::max(products, c.polled_registers()) + of.tile_m * c.tiles_m();
  const int resets = reset_registers(problem, shape.states, problem.ragged || problem.every_state);
  // Single halves wait for a step in registers, with a pointer.
  const int values = c.backward ? shape.gates * (shape.split ? 2 : 1) + 2 : shape.gates;
  const int ahead = problem.alignment == 2 ? values + 2 : 0;
  int slot = more + ahead + of.slot + (shape.split ? of.split_gate : of.gate) * shape.gates + shape.states + resets;
  if (c.backward) slot += shape.states + 4 * ((shape.read_pieces() + 7) / 8);
  return of.thread + sums + (shape.bytes == 4 ? of_float_parts : 0) + slot +
         (further ? *further + resets + ahead : slot) * (c.slots() - 1);
}

/// Returns the number of k-tiles of R that fit the registers of a thread; -1 if `other` are too many. `registers` is
/// the number of a multiprocessor.
template <class Candidate>
int resident_tiles(const Candidate& c, int other, int registers) {
  constexpr int most_registers = 255, of_tile = 4;
  const int all = std::min(most_registers, registers / c.shape.threads() / 8 * 8);
  const int left = all - other;
  return left < 0 ? -1 : std::min(left / (of_tile * c.tiles_m()), c.tiles_k());
}

/// Fills in what a pass of a cell with means over a head exchanges besides its states.
template <class Shape>
void add_means(const CellTraits& cell, bool backward, Shape& shape) {
  constexpr int of_piece = 4;
  for (const int means : cell.means(backward)) {
    ++shape.mean_exchanges, shape.mean_pieces += (means + of_piece - 1) / of_piece;
  }
  shape.taped = taped_floats(cell);
}

/// Returns a plan with the members about blocks of a cluster, for the algorithms with blocks that share the units of a
/// head. Forward candidates are compared with the shared memory of a training pass; the plan has that of its problem.
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
