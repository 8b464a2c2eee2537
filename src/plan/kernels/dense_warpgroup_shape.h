// Who does what in the kernel that spreads a recurrent matrix over blocks of warpgroups, and where it lies in shared
// memory: what the host plans with and the kernel runs by. Freestanding, without include guard: each side includes it
// once, in a namespace of its own.

#ifndef PENSTOCK_LAYOUT
#ifdef __CUDACC__
#define PENSTOCK_LAYOUT __device__ constexpr
#else
#define PENSTOCK_LAYOUT constexpr
#endif
#endif

/// A *team* of blocks shares the units of a head, 16 of them a block with all their gates: 64 rows of R, which a
/// warpgroup multiplies at once by the h of many rows of the batch. Two warpgroups share the sums over h, each has
/// every other *item* of it; a third one brings h and inputs, and sends what the two have made. The rows of a team are
/// cut into `portions` that take turns: while blocks exchange the h of one, they multiply by that of another.
///
/// h is exchanged through the second-level cache, in *slices* of 64 units of all rows of a portion as the tensor cores
/// read them (MatrixOfColumns); an item is `depth` slices, one copy.
struct WarpgroupShape {
  int gates, states;  // G, S
  int units;          // of a head, a multiple of 128
  int rows;           // of a portion, a multiple of 16
  int portions;
  int resident;  // of the 16-deep steps of a warpgroup, those whose R is in registers; the others' is in shared memory
  int depth;
  int stages;  // items of each warpgroup that shared memory holds or awaits

  static constexpr int parts = 2, loaders = 2;  // warpgroups that multiply; warps that bring inputs
  static constexpr int threads = 384, own_units = 16, slice_units = 64, tile_rows = 64;
  static constexpr int input_stages = 2;
  PENSTOCK_LAYOUT int blocks() const { return units / own_units; }
  PENSTOCK_LAYOUT int team_rows() const { return rows * portions; }
  PENSTOCK_LAYOUT int slices() const { return units / slice_units; }
  PENSTOCK_LAYOUT int items() const { return slices() / depth; }
  PENSTOCK_LAYOUT int own_items() const { return items() / parts; }
  PENSTOCK_LAYOUT int steps_of_item() const { return 4 * depth; }
  PENSTOCK_LAYOUT int own_steps() const { return own_items() * steps_of_item(); }
  PENSTOCK_LAYOUT int resident_items() const { return resident / steps_of_item(); }
  PENSTOCK_LAYOUT int slice_bytes() const { return rows * 128; }
  PENSTOCK_LAYOUT int item_bytes() const { return depth * slice_bytes(); }
  PENSTOCK_LAYOUT int portion_bytes() const { return slices() * slice_bytes(); }
  /// What a team needs of the second-level cache: h twice, in turns, and a count of the blocks that have sent an item.
  static constexpr int count_bytes = 128;
  PENSTOCK_LAYOUT int exchange_bytes() const { return portions * (2 * portion_bytes() + items() * count_bytes); }
  /// Blocks whose units are those of an item.
  PENSTOCK_LAYOUT int blocks_of_item() const { return depth * slice_units / own_units; }

  /// Tiles of 8 rows whose cells a thread applies.
  PENSTOCK_LAYOUT int own_tiles() const { return rows / 8 / parts; }
  /// Of a thread that multiplies, beside what the compiler needs around.
  PENSTOCK_LAYOUT int registers() const { return 4 * resident + rows / 2 + own_tiles() * (portions * states + 2); }

  /// Of a slice of the tile of R.
  static constexpr int matrix_slice_bytes = tile_rows * 128;
  PENSTOCK_LAYOUT int matrix_slices() const { return slices() - parts * resident / 4; }
  PENSTOCK_LAYOUT int input_pitch() const { return gates * own_units * 2 + 16; }
  PENSTOCK_LAYOUT int input_bytes() const { return rows * input_pitch(); }
  PENSTOCK_LAYOUT int sent_bytes() const { return rows * own_units * 2; }
  /// Sums that one warpgroup passes to the other.
  PENSTOCK_LAYOUT int passed_bytes() const { return rows / parts * tile_rows * 4; }
  static constexpr int row_bytes = 20;

  PENSTOCK_LAYOUT int ring_at() const { return 1024; }
  PENSTOCK_LAYOUT int matrix_at() const { return ring_at() + parts * stages * item_bytes(); }
  PENSTOCK_LAYOUT int passed_at() const { return matrix_at() + matrix_slices() * matrix_slice_bytes; }
  PENSTOCK_LAYOUT int input_at() const { return passed_at() + parts * passed_bytes(); }
  PENSTOCK_LAYOUT int sent_at() const { return input_at() + input_stages * input_bytes(); }
  PENSTOCK_LAYOUT int reset_at() const { return sent_at() + portions * sent_bytes(); }
  PENSTOCK_LAYOUT int rows_at() const { return reset_at() + input_stages * rows; }
  PENSTOCK_LAYOUT int shared_bytes() const { return rows_at() + team_rows() * row_bytes; }
  PENSTOCK_LAYOUT int barriers() const { return 2 * parts * stages + input_stages + portions; }
};
