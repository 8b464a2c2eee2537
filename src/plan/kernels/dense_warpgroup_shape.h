// Who does what in the kernels that spread a recurrent matrix over blocks of warpgroups, and where it lies in shared
// memory: what the host plans with and the kernels run by. Freestanding, without include guard: each side includes it
// once, in a namespace of its own.

#ifndef PENSTOCK_LAYOUT
#ifdef __CUDACC__
#define PENSTOCK_LAYOUT __device__ constexpr
#else
#define PENSTOCK_LAYOUT constexpr
#endif
#endif

/// A *team* of blocks shares R of a head, 64 rows of a matrix a block, which a warpgroup multiplies at once by what the
/// steps of many rows of the batch have. Two warpgroups share the sums, each has every other *item* of what is summed
/// over; a third one brings that and inputs, and sends what the two have made. The rows of a team are cut into
/// `portions` that take turns: while blocks exchange what one has made, they multiply by that of another.
///
/// Forwards a block has 16 units with all their gates, and multiplies by h. Backwards a pair of blocks has 64 units, of
/// which each applies the cell to 32. It multiplies the transpose of R by the gradients of the gates of all units: one
/// block by those of the first half, one by those of the second, and each tells the other its sums.
///
/// What is multiplied by is exchanged through the second-level cache, in *slices* of 64 columns of all rows of a
/// portion as the tensor cores read them (MatrixOfColumns); an item is `depth` slices, one copy.
struct WarpgroupShape {
  bool backward;
  int gates, states;  // G, S
  bool split;         // whether the gradients of W x and of R h differ
  int units;          // of a head
  int rows;           // of a portion, a multiple of 16
  int portions;
  int resident;  // of the 16-deep steps of a warpgroup, those whose R is in registers; the others' is in shared memory
  int depth;
  int stages;  // items of each warpgroup that shared memory holds or awaits

  static constexpr int parts = 2, loaders = 2;  // warpgroups that multiply; warps that bring inputs
  static constexpr int threads = 384, slice_units = 64, tile_rows = 64;
  /// Blocks that share 64 units, and their columns.
  PENSTOCK_LAYOUT int cluster() const { return backward ? 2 : 1; }
  PENSTOCK_LAYOUT int own_units() const { return backward ? tile_rows / cluster() : 16; }
  /// Of what is brought beside: one is enough where much is multiplied between.
  PENSTOCK_LAYOUT int input_stages() const { return backward ? 1 : 2; }
  PENSTOCK_LAYOUT int blocks() const { return units / own_units(); }
  PENSTOCK_LAYOUT int team_rows() const { return rows * portions; }
  /// Of all that is exchanged, and of what a block multiplies by.
  PENSTOCK_LAYOUT int all_slices() const { return (backward ? gates : 1) * units / slice_units; }
  PENSTOCK_LAYOUT int slices() const { return all_slices() / cluster(); }
  PENSTOCK_LAYOUT int items() const { return slices() / depth; }
  PENSTOCK_LAYOUT int all_items() const { return items() * cluster(); }
  PENSTOCK_LAYOUT int own_items() const { return items() / parts; }
  PENSTOCK_LAYOUT int steps_of_item() const { return 4 * depth; }
  PENSTOCK_LAYOUT int own_steps() const { return own_items() * steps_of_item(); }
  PENSTOCK_LAYOUT int resident_items() const { return resident / steps_of_item(); }
  PENSTOCK_LAYOUT int slice_bytes() const { return rows * 128; }
  PENSTOCK_LAYOUT int item_bytes() const { return depth * slice_bytes(); }
  PENSTOCK_LAYOUT int portion_bytes() const { return all_slices() * slice_bytes(); }
  /// What a team needs of the second-level cache: what is exchanged twice, in turns, and a count of the blocks that
  /// have sent an item.
  static constexpr int count_bytes = 128;
  PENSTOCK_LAYOUT int exchange_bytes() const { return portions * (2 * portion_bytes() + all_items() * count_bytes); }
  /// Shares of blocks that make an item.
  PENSTOCK_LAYOUT int blocks_of_item() const { return depth * slice_units / own_units(); }

  /// Tiles of 8 rows whose cells a thread applies.
  PENSTOCK_LAYOUT int own_tiles() const { return rows / 8 / parts; }
  /// Of a thread that multiplies, beside what the compiler needs around.
  PENSTOCK_LAYOUT int registers() const {
    return 4 * resident + rows / 2 + own_tiles() * ((backward ? 2 : 1) * portions * states + 2);
  }

  /// Of a slice of the tile of R.
  static constexpr int matrix_slice_bytes = tile_rows * 128;
  PENSTOCK_LAYOUT int matrix_slices() const { return slices() - parts * resident / 4; }
  /// Backwards: what a step reads of a unit of the tape's gates, of W x, of the states, of dy and of h, in this order.
  PENSTOCK_LAYOUT int input_wx_at() const { return gates * own_units() * 2; }
  PENSTOCK_LAYOUT int input_states_at() const { return (split ? 2 : 1) * input_wx_at(); }
  PENSTOCK_LAYOUT int input_dy_at() const { return input_states_at() + (states - 1) * own_units() * 4; }
  PENSTOCK_LAYOUT int input_h_at() const { return input_dy_at() + own_units() * 2; }
  PENSTOCK_LAYOUT int input_pitch() const {
    return (backward ? input_h_at() + own_units() * 2 : gates * own_units() * 2) + 16;
  }
  PENSTOCK_LAYOUT int input_bytes() const { return rows * input_pitch(); }
  /// Bytes from row to row of what is sent: of h, or of a gate's gradients, so that four rows lie in other banks.
  PENSTOCK_LAYOUT int sent_pitch() const { return own_units() * 2 + (backward ? 16 : 0); }
  PENSTOCK_LAYOUT int sent_gate_bytes() const { return rows * sent_pitch(); }
  /// Backwards the gradients of R h, and those of W x where they differ.
  PENSTOCK_LAYOUT int sent_bytes() const { return sent_gate_bytes() * (backward ? gates * (split ? 2 : 1) : 1); }
  /// Of what is sent, those in turns: whoever writes a step's gradients reads them while the next turn's are made.
  PENSTOCK_LAYOUT int sent_buffers() const { return backward && portions == 1 ? 2 : portions; }
  /// Sums that a thread of a warpgroup gets of one of the others that have some for it.
  PENSTOCK_LAYOUT int passed_values() const { return own_tiles() * (backward ? 2 : 4); }
  PENSTOCK_LAYOUT int passed_bytes() const { return passed_values() * 4 * threads / 3; }
  /// Forwards of the other warpgroup; backwards of the three others of the pair, of each portion.
  PENSTOCK_LAYOUT int all_passed_bytes() const { return parts * passed_bytes() * (backward ? 3 * portions : 1); }
  static constexpr int row_bytes = 20;

  PENSTOCK_LAYOUT int ring_at() const { return 1024; }
  PENSTOCK_LAYOUT int matrix_at() const { return ring_at() + parts * stages * item_bytes(); }
  PENSTOCK_LAYOUT int passed_at() const { return matrix_at() + matrix_slices() * matrix_slice_bytes; }
  PENSTOCK_LAYOUT int input_at() const { return passed_at() + all_passed_bytes(); }
  PENSTOCK_LAYOUT int sent_at() const { return input_at() + input_stages() * input_bytes(); }
  PENSTOCK_LAYOUT int reset_at() const { return sent_at() + sent_buffers() * sent_bytes(); }
  PENSTOCK_LAYOUT int rows_at() const { return reset_at() + input_stages() * rows; }
  PENSTOCK_LAYOUT int shared_bytes() const { return rows_at() + team_rows() * row_bytes; }
  PENSTOCK_LAYOUT int barriers() const {
    return 2 * parts * stages + input_stages() + portions + (backward ? portions * parts : 0);
  }
};
