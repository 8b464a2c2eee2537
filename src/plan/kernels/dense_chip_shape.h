// Who does what in the kernels that spread a recurrent matrix over many clusters, and where it lies in shared memory:
// what the host plans with and the kernels run by. Freestanding, without include guard: each side includes it once,
// behind dense_cluster_shape.h, in a namespace of its own.

/// `clusters` clusters of `cluster` CTAs, a *team*, share the units of a head. The units of a cluster are those of its
/// CTAs, `blocks` blocks of 8 units each. R is cut in both directions: the rows that belong to the units of a cluster
/// among the clusters, and the axis that is summed among the CTAs of each cluster, which therefore gather only their
/// part of what all others have sent, and add up their sums among themselves.
///
/// Warps are `groups` x `parts`: a group has some of the CTA's rows of R, a part some of the terms of their sums. What
/// is multiplied by R comes from the second-level cache by way of shared memory, where all groups find it; or
/// *directly* to the registers of each group's warps, in *quads* of four pieces: 16 bytes of one row for each thread,
/// two k-tiles.
struct ChipShape : ClusterShape {
  int clusters;
  bool direct;

  PENSTOCK_LAYOUT int blocks_of_cluster() const { return cluster * blocks; }
  PENSTOCK_LAYOUT int blocks_of_team() const { return clusters * cluster * blocks; }
  /// Of what one CTA gathers, for each gate.
  PENSTOCK_LAYOUT int gathered_blocks() const { return clusters * blocks; }
  PENSTOCK_LAYOUT int cell_slots() const { return (blocks * rows + 4 * warps() - 1) / (4 * warps()); }
  PENSTOCK_LAYOUT int sources() const { return cluster * parts; }
  static constexpr int exchanges = 8;  // buffers of what is exchanged, in turns

  /// Values of a unit that are exchanged, and that come of the sums: h and gates; backward gates and h.
  PENSTOCK_LAYOUT int sent_values(bool backward) const { return backward ? gates : 1; }
  PENSTOCK_LAYOUT int summed_values(bool backward) const { return backward ? 1 : gates; }

  /// Of the pieces that a CTA waits for, those that each thread asks for at once on their way to shared memory.
  PENSTOCK_LAYOUT static int polled(int all, int threads) {
    const int each = (all + threads - 1) / threads, rounds = (each + 7) / 8;
    return (each + rounds - 1) / rounds;
  }

  /// Halves of tiles: 8 rows of R, of one block and gate.
  PENSTOCK_LAYOUT int halves(bool backward) const {
    return (blocks_of_cluster() * summed_values(backward) + groups - 1) / groups;
  }
  PENSTOCK_LAYOUT int chip_tiles_m(bool backward) const { return (halves(backward) + 1) / 2; }
  PENSTOCK_LAYOUT int gathered_pieces(bool backward) const {
    return sent_values(backward) * gathered_blocks() * pieces();
  }
  PENSTOCK_LAYOUT int chip_tiles_k(bool backward) const {
    return direct ? 2 * quads(backward) : (gathered_pieces(backward) + 2 * parts - 1) / (2 * parts);
  }
  PENSTOCK_LAYOUT int operand_bytes(bool backward) const {
    return direct ? 0 : 2 * parts * chip_tiles_k(backward) * rows * 16;
  }
  /// Of a part.
  PENSTOCK_LAYOUT int quads(bool backward) const { return (gathered_pieces(backward) + 4 * parts - 1) / (4 * parts); }
  /// Those that a thread asks for at once: all, if they are few; else the next ones are on their way while it
  /// multiplies by the ones before.
  PENSTOCK_LAYOUT bool one_request(bool backward) const { return quads(backward) * tiles_n() <= 8; }
  PENSTOCK_LAYOUT int quads_at_once(bool backward) const {
    return one_request(backward) ? quads(backward) : tiles_n() < 4 ? 4 / tiles_n() : 1;
  }
  PENSTOCK_LAYOUT int requests(bool backward) const {
    return (quads(backward) + quads_at_once(backward) - 1) / quads_at_once(backward);
  }
  /// Of a thread that multiplies: for what it multiplies by, and directly for what it asks for, too.
  PENSTOCK_LAYOUT int operand_registers(bool backward) const {
    if (!direct) return 4 * tiles_n();
    return (one_request(backward) ? 4 : 8) * quads_at_once(backward) * tiles_n();
  }
  PENSTOCK_LAYOUT int sums_floats(bool backward) const {
    return sources() * blocks * summed_values(backward) * block_floats();
  }
  /// Of one of the buffers of a team in the second-level cache.
  PENSTOCK_LAYOUT int exchange_bytes(bool backward) const {
    return sent_values(backward) * blocks_of_team() * pieces() * rows * 16;
  }
  /// Of a block and a row: what a step reads, and what it writes by way of shared memory.
  PENSTOCK_LAYOUT int read_bytes(bool backward) const { return backward ? read_pieces() * 16 : ring_bytes(); }
  PENSTOCK_LAYOUT int own_gates_bytes(bool backward) const {
    return backward ? gates * blocks * pieces() * rows * 16 : 0;
  }
  PENSTOCK_LAYOUT int written_bytes(bool backward) const {
    return backward ? out_pieces() * 16 : training ? ring_bytes() : 0;
  }

  PENSTOCK_LAYOUT int chip_matrix_at(bool backward) const { return start + operand_bytes(backward); }
  PENSTOCK_LAYOUT int chip_sums_at(bool backward) const {
    return chip_matrix_at(backward) +
           warps() * (chip_tiles_k(backward) - resident) * chip_tiles_m(backward) * tile_bytes;
  }
  PENSTOCK_LAYOUT int chip_gates_at(bool backward) const { return chip_sums_at(backward) + 8 * sums_floats(backward); }
  PENSTOCK_LAYOUT int chip_ring_at(bool backward) const { return chip_gates_at(backward) + own_gates_bytes(backward); }
  PENSTOCK_LAYOUT int chip_out_at(bool backward) const {
    return chip_ring_at(backward) + blocks * rows * stages * read_bytes(backward);
  }
  PENSTOCK_LAYOUT int chip_shared_bytes(bool backward) const {
    return chip_out_at(backward) + warps() * 4 * written_bytes(backward);
  }
};
