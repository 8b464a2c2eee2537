// Work distribution and shared memory layout of the kernels that spread a recurrent matrix over blocks of warpgroups.
// The host plans with it, and the kernels use it. Freestanding, without include guard: each side includes it once, in
// its own namespace.

#include "plan/kernels/layout.h"

/// A *team* of blocks shares R of a head. A warpgroup multiplies 64 rows of the matrix at once by the operands of many
/// batch rows, of which the first axis is cut into *items*. A third warpgroup loads items and inputs, and sends the
/// results. The rows of a team are split into `portions` that take turns: while blocks exchange the results of one
/// portion, they multiply by the operand of another.
///
/// `shares` == 0: a block has 64 rows of the matrix, and its two warpgroups have every other item. Forward: a block has
/// 16 units with all their gates, and multiplies by h. Backward: a pair of blocks has 64 units; each block applies the
/// cell to 32 of them. The pair multiplies the transpose of R by the gate gradients of all units, one block by those of
/// the first half, the other by those of the second. Then the blocks exchange their sums.
///
/// `shares` > 0: each warpgroup of a block has 64 rows of its own: 16 units with all their gates forward, 64 units
/// backward. A *group* of `shares` blocks has the same rows of the matrix, and each of them a part of the summed axis.
/// They exchange their sums through the L2 cache, and each applies the cell to a part of the portion's rows. What of R
/// fits neither registers nor shared memory is `streamed`: it is read from memory in every turn.
///
/// Operands are exchanged through the L2 cache, in *chunks* of 64 columns of all rows of a portion in the layout of the
/// tensor cores (MatrixOfColumns). An item is `depth` chunks of each term, one copy.
///
/// Factors are made of halves, their *terms*. A float is one half, which has the precision of TF32, or the sum of a
/// high and a low one: three products then have the precision of floats. Backward, where gradients have any size, one
/// of two halves is 0; each has a scale and sums of its own. A further scale is that of a team: the largest gradient
/// that enters it from outside.
struct WarpgroupShape {
  bool backward;
  int gates, states;  // G, S
  bool split;         // whether the gradients of W x and of R h differ
  int units;          // units of a head as padded() has them
  int rows;           // rows of a portion, a multiple of 16
  int portions;
  int resident;  // number of a warpgroup's 16-deep steps with R in registers; R of the others is in shared memory
  int depth;
  int stages;  // items that shared memory holds or waits for; of each warpgroup if `shares` == 0
  int shares;
  int kept, streamed;  // items of a warpgroup with R in shared memory, and those whose R is read in every turn
  int bytes;           // of a value in memory
  int terms;           // 16-bit numbers whose sum is a factor

  static constexpr int parts = 2;  // multiplying warpgroups
  static constexpr int threads = 384, chunk_units = 64, tile_rows = 64;
  static constexpr int usual_registers = 184;  // registers() beyond which the other threads have fewer
  /// Returns the units of a head, at least `units`, that both warpgroups share evenly; backward, whose summed axis is
  /// that of all gates, also those of an odd number of gates.
  PENSTOCK_LAYOUT static int padded(int units, bool backward, int gates) {
    const int even = parts * chunk_units * (backward && gates % 2 != 0 ? 2 : 1);
    return (units + even - 1) / even * even;
  }
  PENSTOCK_LAYOUT bool wide() const { return shares > 0; }
  /// Warps that load inputs. Another one reads what is streamed of R.
  PENSTOCK_LAYOUT int loaders() const { return streamed > 0 ? 1 : 2; }
  /// Parts of a block's items, each for a warpgroup.
  PENSTOCK_LAYOUT int item_parts() const { return wide() ? 1 : parts; }
  /// Blocks of a cluster.
  PENSTOCK_LAYOUT int cluster() const { return backward && !wide() ? 2 : 1; }
  /// Blocks that share the summed axis, and the units whose sums they share.
  PENSTOCK_LAYOUT int sharing() const { return wide() ? shares : cluster(); }
  PENSTOCK_LAYOUT int group_units() const { return (backward ? tile_rows : 16) * (wide() ? parts : 1); }
  /// Returns the number of units to which a block applies the cell.
  PENSTOCK_LAYOUT int own_units() const { return wide() ? group_units() : group_units() / cluster(); }
  PENSTOCK_LAYOUT int own_rows() const { return wide() ? rows / shares : rows; }
  /// Stages of the inputs. One suffices for backward passes, which multiply more per step.
  PENSTOCK_LAYOUT int input_stages() const { return backward ? 1 : 2; }
  PENSTOCK_LAYOUT int blocks() const { return units / group_units() * sharing(); }
  PENSTOCK_LAYOUT int team_rows() const { return rows * portions; }
  /// Chunks of all exchanged values, and of the operand of one block.
  PENSTOCK_LAYOUT int all_chunks() const { return (backward ? gates : 1) * units / chunk_units; }
  PENSTOCK_LAYOUT int chunks() const { return all_chunks() / sharing(); }
  PENSTOCK_LAYOUT int items() const { return chunks() / depth; }
  PENSTOCK_LAYOUT int all_items() const { return items() * sharing(); }
  PENSTOCK_LAYOUT int own_items() const { return items() / item_parts(); }
  PENSTOCK_LAYOUT int steps_of_item() const { return 4 * depth; }
  PENSTOCK_LAYOUT int own_steps() const { return own_items() * steps_of_item(); }
  PENSTOCK_LAYOUT int resident_items() const { return resident / steps_of_item(); }
  PENSTOCK_LAYOUT int chunk_bytes() const { return rows * 128; }
  PENSTOCK_LAYOUT int term_bytes() const { return depth * chunk_bytes(); }
  PENSTOCK_LAYOUT int item_bytes() const { return terms * term_bytes(); }
  /// Offset of a chunk's first term among the exchanged values of a portion.
  PENSTOCK_LAYOUT int chunk_at(int chunk) const { return chunk / depth * item_bytes() + chunk % depth * chunk_bytes(); }
  PENSTOCK_LAYOUT int bytes_under_way() const { return item_parts() * stages * item_bytes(); }
  PENSTOCK_LAYOUT int portion_bytes() const { return terms * all_chunks() * chunk_bytes(); }
  /// Bytes of the L2 cache for a team: two exchange buffers used in turn, and for each item a count of the blocks that
  /// have sent it.
  static constexpr int count_bytes = 128;
  /// Bytes of the sums that the blocks of a group exchange: of each portion, of each owner those of each source.
  PENSTOCK_LAYOUT int shared_sum_bytes() const { return own_tiles() * parts * 4 * 32 * 16; }
  PENSTOCK_LAYOUT int group_sum_bytes() const { return shares > 1 ? shares * shares * shared_sum_bytes() : 0; }
  /// Two buffers used in turn, as of the exchanged values.
  PENSTOCK_LAYOUT int all_sum_bytes() const { return 2 * portions * (units / group_units()) * group_sum_bytes(); }
  PENSTOCK_LAYOUT int counts_at() const { return portions * 2 * portion_bytes(); }
  /// Behind the counts, where gradients have a scale, are the words by which a team agrees on it.
  PENSTOCK_LAYOUT int sums_at() const {
    return counts_at() + (portions * all_items() + (sums() > 1 ? 1 : 0)) * count_bytes;
  }
  PENSTOCK_LAYOUT int streamed_at() const { return sums_at() + all_sum_bytes(); }
  PENSTOCK_LAYOUT int exchange_bytes() const {
    return streamed_at() + blocks() * parts * streamed * matrix_item_bytes();
  }
  /// Contributions to an item: of each block at most one.
  PENSTOCK_LAYOUT int blocks_of_item() const {
    const int groups = depth * chunk_units / group_units();
    return (groups > 0 ? groups : 1) * (wide() ? shares : cluster());
  }

  /// Terms of a value of R, and sums of a unit and row.
  PENSTOCK_LAYOUT int matrix_terms() const { return backward ? 1 : terms; }
  PENSTOCK_LAYOUT int sums() const { return backward ? terms : 1; }
  /// Tiles of 8 rows to which a thread applies the cell.
  PENSTOCK_LAYOUT int own_tiles() const { return wide() ? rows / 8 / shares : rows / 8 / parts; }
  /// Units and rows of a tile to which a thread applies the cell.
  PENSTOCK_LAYOUT int tile_cells() const { return backward ? (wide() ? 4 : 2) : 1; }
  /// Registers of a multiplying thread, without those that the compiler needs for other values.
  PENSTOCK_LAYOUT int registers() const {
    return 4 * matrix_terms() * resident + rows / 2 * sums() +
           own_tiles() * (tile_cells() * portions * states + (shares > 1 ? 6 : 2));
  }

  /// Bytes of a chunk of the tile of R.
  static constexpr int matrix_chunk_bytes = tile_rows * 128;
  PENSTOCK_LAYOUT int matrix_term_bytes() const { return depth * matrix_chunk_bytes; }
  PENSTOCK_LAYOUT int matrix_item_bytes() const { return matrix_terms() * matrix_term_bytes(); }
  /// Places among a warpgroup's items of those that registers hold, that shared memory keeps, and that are streamed:
  /// the latter take turns with the others, so that memory is read all the time.
  PENSTOCK_LAYOUT int held_place(int i) const { return i + (i < streamed ? i : streamed); }
  PENSTOCK_LAYOUT int streamed_with_held() const { return streamed < resident_items() ? streamed : resident_items(); }
  PENSTOCK_LAYOUT int kept_place(int i) const {
    const int left = streamed - streamed_with_held();
    return resident_items() + streamed_with_held() + i + (i < left ? i : left);
  }
  PENSTOCK_LAYOUT int streamed_place(int i) const {
    if (i < resident_items()) return 2 * i + 1;
    const int later = i - resident_items();
    return 2 * resident_items() + later + (later + 1 < kept ? later + 1 : kept);
  }
  /// Items of R that shared memory holds or waits for, of each warpgroup.
  PENSTOCK_LAYOUT int matrix_stages() const {
    const int most = depth > 1 ? 3 : 5;
    return streamed < most ? streamed : most;
  }
  PENSTOCK_LAYOUT int matrix_stages_at() const { return matrix_at() + parts * kept * matrix_item_bytes(); }
  /// Backward: offsets of the inputs of a step: saved gates, W x, states, dy and h, in this order.
  PENSTOCK_LAYOUT int input_wx_at() const { return gates * own_units() * bytes; }
  PENSTOCK_LAYOUT int input_states_at() const { return (split ? 2 : 1) * input_wx_at(); }
  PENSTOCK_LAYOUT int input_dy_at() const { return input_states_at() + (states - 1) * own_units() * 4; }
  PENSTOCK_LAYOUT int input_h_at() const { return input_dy_at() + own_units() * bytes; }
  PENSTOCK_LAYOUT int input_pitch() const {
    return (backward ? input_h_at() + own_units() * bytes : gates * own_units() * bytes) + 16;
  }
  PENSTOCK_LAYOUT int input_bytes() const { return own_rows() * input_pitch(); }
  /// Bytes from row to row of sent values (h, or the gradients of a gate). They place rows in different banks.
  PENSTOCK_LAYOUT int sent_pitch() const { return own_units() * bytes + (backward || bytes == 4 ? 16 : 0); }
  PENSTOCK_LAYOUT int sent_gate_bytes() const { return own_rows() * sent_pitch(); }
  /// Bytes of the sent values. Backward: the gradients of R h, and those of W x if they differ.
  PENSTOCK_LAYOUT int sent_bytes() const { return sent_gate_bytes() * (backward ? gates * (split ? 2 : 1) : 1); }
  /// Buffers of sent values, used in turn: the gradients of a step are read and written while those of the next turn
  /// are computed.
  PENSTOCK_LAYOUT int sent_buffers() const { return backward && (wide() || portions == 1) ? 2 : portions; }
  /// Sums that a thread receives from one other warpgroup.
  PENSTOCK_LAYOUT int passed_values() const { return own_tiles() * (backward && !wide() ? 2 : 4); }
  PENSTOCK_LAYOUT int passed_bytes() const {
    return (wide() ? (bytes == 4 ? 4 : 0) : passed_values()) * 4 * threads / 3;
  }
  /// Bytes of sums received from the other warpgroup (forward), or from the three others of the pair for each portion
  /// (backward).
  PENSTOCK_LAYOUT int all_passed_bytes() const { return parts * passed_bytes() * (backward ? 3 * portions : 1); }
  static constexpr int row_bytes = 20;

  PENSTOCK_LAYOUT int ring_at() const { return 1024; }
  PENSTOCK_LAYOUT int matrix_at() const { return ring_at() + item_parts() * stages * item_bytes(); }
  PENSTOCK_LAYOUT int passed_at() const { return matrix_stages_at() + parts * matrix_stages() * matrix_item_bytes(); }
  PENSTOCK_LAYOUT int input_at() const { return passed_at() + all_passed_bytes(); }
  PENSTOCK_LAYOUT int sent_at() const { return input_at() + input_stages() * input_bytes(); }
  PENSTOCK_LAYOUT int reset_at() const { return sent_at() + sent_buffers() * sent_bytes(); }
  PENSTOCK_LAYOUT int rows_at() const { return reset_at() + input_stages() * own_rows(); }
  PENSTOCK_LAYOUT int shared_bytes() const { return rows_at() + team_rows() * row_bytes; }
  PENSTOCK_LAYOUT int barriers() const {
    return 2 * (item_parts() * stages + parts * matrix_stages()) + input_stages() + portions +
           (backward && !wide() ? portions * parts : 0);
  }
};
