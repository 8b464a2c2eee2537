// Work distribution and shared memory layout of the cluster kernels. The host plans with it, and the kernels use it.
// Freestanding, without include guard: each side includes it once, in its own namespace.

#include "plan/kernels/layout.h"

/// The units of a head are split into blocks of 8. CTAs exchange their values in *pieces* of 16 bytes. A CTA of the
/// cluster has `blocks` blocks with all their gates; blocks beyond the head have weights of 0.
///
/// Forward, warps are `groups` x `parts`: a group has some of the CTA's blocks, a part some of the terms of their sums.
/// Backward, all warps share the units of the whole head, and `parts` is 1.
struct ClusterShape {
  int gates, states;  // G, S
  bool split;         // gradients of R h differ from those of W x
  int bytes;          // bytes of a stored value
  int cluster;        // CTAs of a cluster
  int blocks;         // blocks of 8 units of a CTA
  int rows;           // batch rows of a cluster
  int groups, parts;  // warps of a CTA
  int resident;       // k-tiles of a warp's R in registers; the others are in shared memory
  int stages;         // steps that loads run ahead, a power of two
  bool training;      // forward: writes a tape
  // For cells whose units read means over their head:
  int mean_exchanges = 0;  // of means in a step of the pass
  int mean_pieces = 0;     // of all these exchanges, for a part of a row
  int taped = 0;           // floats of the means of a row on the tape of a step

  PENSTOCK_LAYOUT int warps() const { return groups * parts; }
  PENSTOCK_LAYOUT int threads() const { return 32 * warps(); }
  /// Pieces of a block of 8 stored values, and of a block of 8 floats.
  PENSTOCK_LAYOUT int pieces() const { return bytes / 2; }
  static constexpr int float_pieces = 2;
  /// The sums of a block for all rows, [8 units][rows] floats. The strides avoid bank conflicts for writers and
  /// readers.
  PENSTOCK_LAYOUT int unit_floats() const { return rows <= 4 ? 4 : rows <= 8 ? 8 : (rows + 3) / 8 * 8 + 4; }
  PENSTOCK_LAYOUT int block_floats() const { return 8 * unit_floats() + (unit_floats() == 8 ? 4 : 0); }
  PENSTOCK_LAYOUT int place(int unit, int row) const {
    return unit * unit_floats() + row + (unit_floats() == 8 ? unit / 4 * 4 : 0);
  }
  PENSTOCK_LAYOUT int tiles_n() const { return (rows + 7) / 8; }
  static constexpr int tile_bytes = 512;  // 16 rows of 32 bytes
  static constexpr int start = 256;       // after the barriers
  /// Partial sums per tile: with few tiles, several chains hide the latency of dependent products.
  PENSTOCK_LAYOUT static int chains(int tiles) { return tiles >= 4 ? 1 : tiles > 1 ? 2 : 4; }

  // Forward.
  PENSTOCK_LAYOUT int h_pieces() const { return cluster * blocks * pieces(); }
  PENSTOCK_LAYOUT int own_blocks() const { return blocks / groups; }
  PENSTOCK_LAYOUT int own_halves() const { return own_blocks() * gates; }
  PENSTOCK_LAYOUT int tiles_m() const { return (own_halves() + 1) / 2; }
  PENSTOCK_LAYOUT int tiles_k() const { return h_pieces() / 2 / parts; }
  PENSTOCK_LAYOUT int slots() const { return (own_blocks() * rows + 4 * parts - 1) / (4 * parts); }
  PENSTOCK_LAYOUT int h_bytes() const { return h_pieces() * rows * 16; }
  PENSTOCK_LAYOUT int matrix_at() const { return start + 2 * h_bytes(); }
  PENSTOCK_LAYOUT int sums_at() const {
    return matrix_at() + warps() * (tiles_k() - resident) * tiles_m() * tile_bytes;
  }
  PENSTOCK_LAYOUT int ring_at() const { return sums_at() + warps() * own_halves() * block_floats() * 4; }
  PENSTOCK_LAYOUT int ring_bytes() const { return gates * pieces() * 16; }
  PENSTOCK_LAYOUT int tape_at() const { return ring_at() + blocks * rows * stages * ring_bytes(); }
  PENSTOCK_LAYOUT int means_at() const { return tape_at() + (training ? 1 : 0) * warps() * 4 * ring_bytes(); }
  PENSTOCK_LAYOUT int shared_bytes() const { return means_at() + mean_bytes(false); }

  // Backward.
  PENSTOCK_LAYOUT int back_tiles_m() const { return (cluster * blocks / 2 + warps() - 1) / warps(); }
  /// Pieces of the gate gradients, an even number.
  PENSTOCK_LAYOUT int gate_pieces() const { return (gates * blocks * pieces() + 1) / 2 * 2; }
  PENSTOCK_LAYOUT int back_tiles_k() const { return gate_pieces() / 2; }
  PENSTOCK_LAYOUT int back_slots() const { return (blocks * rows + 4 * warps() - 1) / (4 * warps()); }
  PENSTOCK_LAYOUT int gate_bytes() const { return gate_pieces() * rows * 16; }
  PENSTOCK_LAYOUT int received_bytes() const { return cluster * blocks * block_floats() * 4; }
  PENSTOCK_LAYOUT int received_at() const { return start + 2 * gate_bytes(); }
  PENSTOCK_LAYOUT int back_matrix_at() const { return received_at() + 2 * received_bytes(); }
  PENSTOCK_LAYOUT int back_ring_at() const {
    return back_matrix_at() + warps() * (back_tiles_k() - resident) * back_tiles_m() * tile_bytes;
  }
  /// Pieces per block and row that a backward step reads: sums, W x of split cells, states, dy, the previous h, means.
  PENSTOCK_LAYOUT int read_pieces() const {
    return (gates * (split ? 2 : 1) + 2) * pieces() + (states - 1) * float_pieces + taped / 4;
  }
  PENSTOCK_LAYOUT int back_out_at() const { return back_ring_at() + blocks * rows * stages * read_pieces() * 16; }
  /// Pieces that a backward step writes in addition to those that it sends: gradients of W x of split cells.
  PENSTOCK_LAYOUT int out_pieces() const { return split ? gates * pieces() : 0; }
  PENSTOCK_LAYOUT int back_means_at() const { return back_out_at() + warps() * 4 * out_pieces() * 16; }
  PENSTOCK_LAYOUT int back_shared_bytes() const { return back_means_at() + mean_bytes(true); }

  // Means over a head: 8 lanes have `slots` units and rows one after the other, blocks of a row first. Those of one row
  // are a *part* of it. Every CTA receives the sums of all parts or, if a CTA has several parts of a row, which it
  // joins, of all CTAs.
  PENSTOCK_LAYOUT static int common_divisor(int a, int b) {
    while (b != 0) {
      const int rest = a % b;
      a = b, b = rest;
    }
    return a;
  }
  PENSTOCK_LAYOUT int part_slots(bool backward) const {
    return common_divisor(backward ? back_slots() : slots(), backward ? blocks : own_blocks());
  }
  /// Parts of a row that a CTA has, and those of them that it joins before it sends: with few, all CTAs join all parts.
  PENSTOCK_LAYOUT int own_parts_of_row(bool backward) const { return blocks / part_slots(backward); }
  PENSTOCK_LAYOUT int joined_parts(bool backward) const {
    constexpr int least = 4;
    return own_parts_of_row(backward) < least ? 1 : own_parts_of_row(backward);
  }
  /// Parts of a row that a CTA receives.
  PENSTOCK_LAYOUT int parts_of_row(bool backward) const {
    return cluster * own_parts_of_row(backward) / joined_parts(backward);
  }
  /// Pieces from row to row in an exchange of `of_part` pieces each: an odd number avoids bank conflicts.
  PENSTOCK_LAYOUT int mean_pitch(bool backward, int of_part) const { return parts_of_row(backward) * of_part | 1; }
  /// Parts of the CTA itself, which it joins.
  PENSTOCK_LAYOUT int joined_bytes(bool backward) const {
    const int own = joined_parts(backward);
    return own == 1 ? 0 : rows * own * mean_pieces * 16;
  }
  PENSTOCK_LAYOUT int mean_bytes(bool backward) const {
    if (mean_exchanges == 0) return 0;
    return rows * (parts_of_row(backward) * mean_pieces + mean_exchanges) * 16 + joined_bytes(backward);
  }
};
