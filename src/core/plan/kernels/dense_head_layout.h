// Shared memory layout of the kernels in which a block holds the recurrent matrix of a head, for the planner and the
// kernels. Freestanding, without include guard: each side includes it once, in its own namespace.

#include "plan/kernels/layout.h"

/// The values that determine the layout of a block.
struct HeadShape {
  int gates, states;  // G, S
  int phases;
  bool split;    // gradients of R h differ from those of W x
  int head;      // D
  int bytes;     // bytes of a stored value
  int slots;     // rows of a block: 4 or 8
  int resident;  // chunks of the summed axis in registers
  int stages;    // steps of inputs in shared memory
  bool training;
  int taped = 0;  // floats of the means of a row on the tape of a step
};

inline constexpr int kHeadUnits = 16;  // units of a warp
inline constexpr int kHeadRowBytes = 32;

/// Bytes from row to row of a tile: a multiple of 128 plus 32, to place accesses of four rows in different banks.
PENSTOCK_LAYOUT int HeadPitch(int bytes) { return (bytes + 127) / 128 * 128 + 32; }

/// Offsets of the parts in bytes from the start.
struct HeadLayout {
  int padded;  // D in whole warps
  int chunks;  // of 64 bytes of the summed axis
  // Bytes from row to row.
  int operand_pitch, gates_pitch, states_pitch, output_pitch;
  // Parts. Several tiles of one kind follow each other with a distance of `*_tile` bytes.
  int rows, operand, second_operand, kept_gates, kept_states, stage, matrix, total;
  int operand_tile, gates_tile, states_tile, output_tile, stage_tile;
};

/// Forward: operand tiles have h, two of them used in turn; the output is written from them, too. A stage is W x.
PENSTOCK_LAYOUT HeadLayout HeadForwardLayout(const HeadShape& shape) {
  HeadLayout l{};
  l.padded = (shape.head + kHeadUnits - 1) / kHeadUnits * kHeadUnits;
  l.chunks = (shape.head * shape.bytes + 63) / 64;
  l.operand_pitch = HeadPitch(l.chunks * 64);
  l.gates_pitch = HeadPitch(shape.gates * l.padded * shape.bytes);
  l.states_pitch = HeadPitch((shape.states - 1) * l.padded * 4);
  l.operand_tile = shape.slots * l.operand_pitch;
  l.gates_tile = l.stage_tile = shape.slots * l.gates_pitch;
  l.states_tile = shape.states > 1 ? shape.slots * l.states_pitch : 0;
  l.rows = 0;
  l.operand = shape.slots * kHeadRowBytes;
  l.second_operand = l.operand + 2 * l.operand_tile;
  l.kept_gates = l.second_operand + (shape.phases == 2 ? l.operand_tile : 0);
  l.kept_states = l.kept_gates + (shape.training ? 2 * l.gates_tile : 0);
  l.stage = l.kept_states + (shape.training ? 2 * l.states_tile : 0);
  l.matrix = l.stage + shape.stages * l.stage_tile;
  l.total = l.matrix + (l.chunks - shape.resident) * shape.gates * (l.padded / kHeadUnits) * 1024;
  return l;
}

/// Backward: operand tiles have the gradients of R h, two of them used in turn; these are written from them, too. A
/// stage has, in this order, the saved gates, W x of split cells, the saved states, dy, y of the previous step, and
/// means.
PENSTOCK_LAYOUT HeadLayout HeadBackwardLayout(const HeadShape& shape) {
  HeadLayout l{};
  l.padded = (shape.head + kHeadUnits - 1) / kHeadUnits * kHeadUnits;
  l.chunks = (shape.gates * l.padded * shape.bytes + 63) / 64;
  l.operand_pitch = HeadPitch(l.chunks * 64);
  l.gates_pitch = HeadPitch(shape.gates * l.padded * shape.bytes);
  l.states_pitch = HeadPitch((shape.states - 1) * l.padded * 4);
  l.output_pitch = HeadPitch(l.padded * shape.bytes);
  l.operand_tile = shape.slots * l.operand_pitch;
  l.gates_tile = shape.slots * l.gates_pitch;
  l.states_tile = shape.states > 1 ? shape.slots * l.states_pitch : 0;
  l.output_tile = shape.slots * l.output_pitch;
  l.stage_tile =
      (shape.split ? 2 : 1) * l.gates_tile + l.states_tile + 2 * l.output_tile + shape.slots * shape.taped * 4;
  l.rows = 0;
  l.operand = shape.slots * kHeadRowBytes;
  l.second_operand = l.operand + 2 * l.operand_tile;
  // Values that are written but not multiplied: gradients of W x where they differ, and operands of a second phase.
  l.kept_gates = l.second_operand + (shape.phases == 2 ? l.operand_tile : 0);
  l.kept_states = l.kept_gates + (shape.split || shape.phases == 2 ? 2 * l.gates_tile : 0);
  l.stage = l.kept_states + (shape.phases == 2 ? 2 * l.output_tile : 0);
  l.matrix = l.stage + shape.stages * l.stage_tile;
  l.total = l.matrix + (l.chunks - shape.resident) * (l.padded / kHeadUnits) * 1024;
  return l;
}
