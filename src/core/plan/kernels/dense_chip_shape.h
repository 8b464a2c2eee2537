// Work distribution and shared memory layout of the kernels that spread a recurrent matrix over many clusters. The host
// plans with it, and the kernels use it. Freestanding, without include guard: each side includes it once, after
// dense_cluster_shape.h, in its own namespace.

/// `clusters` clusters of `cluster` CTAs, a *team*, share the units of a head. Each CTA of a cluster has `blocks`
/// blocks of 8 units. R is split along both axes. Its rows are split among the clusters, by their units. The summed
/// axis is split among the CTAs of each cluster: each gathers only its part of the values that all others have sent,
/// and the CTAs of a cluster add up their sums.
///
/// Warps are `groups` x `parts`: a group has some of the CTA's rows of R, a part some of the terms of their sums. The
/// operand of R comes from the L2 cache through shared memory, for all groups. In *direct* mode it goes to the
/// registers of each group's warps, in pairs of k-tiles: four pieces, 16 bytes of one row per thread.
struct ChipShape : ClusterShape {
  int clusters;
  bool direct;

  PENSTOCK_LAYOUT int blocks_of_cluster() const { return cluster * blocks; }
  PENSTOCK_LAYOUT int blocks_of_team() const { return clusters * cluster * blocks; }
  /// Blocks that one CTA gathers per gate.
  PENSTOCK_LAYOUT int gathered_blocks() const { return clusters * blocks; }
  PENSTOCK_LAYOUT int cell_slots() const { return (blocks * rows + 4 * warps() - 1) / (4 * warps()); }
  PENSTOCK_LAYOUT int sources() const { return cluster * parts; }
  /// Returns the number of exchange buffers, used in turn: a power of 2. Steps forward are shorter, and exchange less.
  PENSTOCK_LAYOUT static int exchanges(bool backward) { return backward ? 16 : 64; }
  /// Exchanges from fence to fence.
  PENSTOCK_LAYOUT static int fenced(bool backward) { return exchanges(backward) / 2; }

  /// Values per unit that are exchanged, and that the sums give: forward h and gates, backward gates and h.
  PENSTOCK_LAYOUT int sent_values(bool backward) const { return backward ? gates : 1; }
  PENSTOCK_LAYOUT int summed_values(bool backward) const { return backward ? 1 : gates; }

  /// Number of pieces that each thread polls at once, of those that a CTA copies to shared memory.
  PENSTOCK_LAYOUT static int polled(int all, int threads) {
    const int each = (all + threads - 1) / threads, rounds = (each + 7) / 8;
    return (each + rounds - 1) / rounds;
  }

  /// Halves of tiles: 8 rows of R for one block and gate.
  PENSTOCK_LAYOUT int halves(bool backward) const {
    return (blocks_of_cluster() * summed_values(backward) + groups - 1) / groups;
  }
  PENSTOCK_LAYOUT int chip_tiles_m(bool backward) const { return (halves(backward) + 1) / 2; }
  PENSTOCK_LAYOUT int gathered_pieces(bool backward) const {
    return sent_values(backward) * gathered_blocks() * pieces();
  }
  PENSTOCK_LAYOUT int chip_tiles_k(bool backward) const {
    return direct ? 2 * tile_pairs(backward) : (gathered_pieces(backward) + 2 * parts - 1) / (2 * parts);
  }
  PENSTOCK_LAYOUT int operand_bytes(bool backward) const {
    return direct ? 0 : 2 * parts * chip_tiles_k(backward) * rows * 16;
  }
  /// Pairs of k-tiles of one part.
  PENSTOCK_LAYOUT int tile_pairs(bool backward) const {
    return (gathered_pieces(backward) + 4 * parts - 1) / (4 * parts);
  }
  /// Returns whether a thread loads all its pairs at once. If there are too many, it loads the next ones while it
  /// multiplies by the previous ones.
  PENSTOCK_LAYOUT bool one_request(bool backward) const { return tile_pairs(backward) * tiles_n() <= 8; }
  PENSTOCK_LAYOUT int pairs_at_once(bool backward) const {
    return one_request(backward) ? tile_pairs(backward) : tiles_n() < 4 ? 4 / tiles_n() : 1;
  }
  PENSTOCK_LAYOUT int requests(bool backward) const {
    return (tile_pairs(backward) + pairs_at_once(backward) - 1) / pairs_at_once(backward);
  }
  /// Registers of a multiplying thread for the operand; in direct mode also for the values being loaded.
  PENSTOCK_LAYOUT int operand_registers(bool backward) const {
    if (!direct) return 4 * tiles_n();
    return (one_request(backward) ? 4 : 8) * pairs_at_once(backward) * tiles_n();
  }
  PENSTOCK_LAYOUT int sums_floats(bool backward) const {
    return sources() * blocks * summed_values(backward) * block_floats();
  }
  /// Bytes of one exchange buffer of a team in the L2 cache.
  PENSTOCK_LAYOUT int exchange_bytes(bool backward) const {
    return sent_values(backward) * blocks_of_team() * pieces() * rows * 16 + published_bytes();
  }

  // Means over a head (ClusterShape): every CTA publishes parts of the rows.
  PENSTOCK_LAYOUT int chip_part_slots() const { return common_divisor(cell_slots(), blocks); }
  /// Blocks of a part: of the 8 lanes, or of all lanes of a warp that have blocks of one row.
  PENSTOCK_LAYOUT int part_blocks() const {
    const int slots = chip_part_slots();
    return slots == cell_slots() ? slots * common_divisor(blocks / slots, 4) : slots;
  }
  PENSTOCK_LAYOUT int parts_of_team() const { return blocks_of_team() / part_blocks(); }
  /// Returns whether a CTA joins each row: a second exchange takes less time than reading so many parts everywhere.
  PENSTOCK_LAYOUT bool joins_rows() const {
    constexpr int most = 2048;
    return rows * parts_of_team() > most;
  }
  /// Parts of a row and, if a CTA joins them, the whole.
  PENSTOCK_LAYOUT int published_parts() const { return parts_of_team() + (joins_rows() ? 1 : 0); }
  PENSTOCK_LAYOUT int published_bytes() const { return rows * published_parts() * mean_pieces * 16; }
  /// Bytes per block and row that a step reads, and that it writes through shared memory.
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
