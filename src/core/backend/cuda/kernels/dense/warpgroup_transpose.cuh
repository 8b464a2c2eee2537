// How the backward pass by warpgroups reads R, whose transpose it multiplies. Included by warpgroup_backward.cuh.

/// Transposes 8 x 8 halves. Before and after, lane 4 i + j has values 2 j and 2 j + 1 of row i.
PENSTOCK_DEVICE unsigned Transposed(unsigned word) {
  unsigned transposed;
  asm volatile("movmatrix.sync.aligned.m8n8.trans.b16 %0, %1;" : "=r"(transposed) : "r"(word));
  return transposed;
}

/// Returns a word of R, or 0 where there is none. There is no branch: after one, the next load would wait for this one.
PENSTOCK_DEVICE unsigned ReadIf(bool exists, const char* from) {
  unsigned word;
  asm volatile(
      "{\n.reg .pred exists;\nsetp.ne.u32 exists, %2, 0;\nmov.u32 %0, 0;\n@exists ld.global.nc.u32 %0, [%1];\n}"
      : "=r"(word)
      : "l"(from), "r"((unsigned)exists));
  return word;
}

/// A block's part of the transpose of R. Its columns are rows of R. Of halves, a warp reads 8 x 8 values at a time
/// along these rows, and transposes them. It reads many of them before it waits for the first.
struct Transpose {
  const DenseBackwardArguments& args;
  const Team& team;

  /// A warp has 16 rows of a part's tile. Returns the number in the group of the first unit of the upper or lower 8.
  PENSTOCK_DEVICE int first_unit(int part, int warp, int half) {
    return kWide ? part * WarpgroupShape::tile_rows + 16 * warp + half * 8 : half * kUnits + 8 * warp;
  }

  /// Returns a float of R: that of row `row` of a warp's 16, in a column of the block.
  __device__ __forceinline__ float value(int part, int warp, int row, int column) const {
    const int unit = team.group() * kShape.group_units() + first_unit(part, warp, row / 8) + row % 8;
    int of_all = team.share() * (kShape.chunks() * WarpgroupShape::chunk_units) + column;
    // Found anew for each value: the places of all would take registers that R needs.
    asm volatile("" : "+r"(of_all));
    const int row_of_gate = of_all % kUnitsOfTeam, row_of_r = of_all / kUnitsOfTeam * kHead + row_of_gate;
    if (!IsOfHead(unit) || !IsOfHead(row_of_gate)) return 0.0f;
    return ((const float*)args.recurrent)[((Index)team.head * kGates * kHead + row_of_r) * kHead + unit];
  }
  /// Returns the floats of a column and of the next one, times `scale`, as two halves.
  __device__ __forceinline__ unsigned word(int part, int warp, int row, int column, float scale) const {
    return MatrixTerm(value(part, warp, row, column) * scale, value(part, warp, row, column + 1) * scale, 0);
  }

  /// Reads this lane's two halves of an 8 x 8 piece of R: of the group's units from `first_unit` on, and of the block's
  /// columns from `column` + `further` on. `further` is a constant. Values beyond the head are 0.
  __device__ __forceinline__ unsigned read(int first_unit, int column, int further) const {
    const int lane = threadIdx.x % 32, unit = team.group() * kShape.group_units() + first_unit + lane % 4 * 2;
    const int first_row = team.head * kGates * kHead;
    int of_all = team.share() * (kShape.chunks() * WarpgroupShape::chunk_units) + column + (kPads ? further : 0);
    // Found anew for each word: the places of all would take registers that R needs.
    if constexpr (kPads) asm volatile("" : "+r"(of_all));
    // A gate's columns begin at a multiple of 8.
    const int of_gate = of_all % kUnitsOfTeam + lane / 4;
    const int row = first_row + (kPads ? of_all / kUnitsOfTeam * kHead + of_gate : of_all + lane / 4);
    const char* const at =
        args.recurrent + ((Index)row * kHead + unit) * kBytes + (kPads ? 0 : (Index)further * kHead * kBytes);
    return ReadIf(IsOfHead(of_gate) && IsOfHead(unit), at);
  }

  /// Lays `kCount` items of each part where the tensor cores, or copies for them, read them. place_of(i) is the place
  /// of item i among the part's.
  template <int kCount, class PlaceOf>
  __device__ __forceinline__ void lay(char* memory, const PlaceOf& place_of) const {
    constexpr int of_chunk = WarpgroupShape::tile_rows, of_part = kCount * kDepth, warps = kThreads / 32;
    constexpr int all = kParts * of_part * of_chunk, at_once = 16;
    if constexpr (kCount > 0) {
#pragma unroll 1
      for (int first = threadIdx.x / 32; first < all; first += at_once * warps) {
        unsigned two[at_once];
        // Which chunk 8 x 8 values lie in, and in which eighth of its rows and of its columns.
        const auto chunk = [&](int i) { return (first + i * warps) / of_chunk; };
        const auto rows = [&](int i) { return (first + i * warps) % 8; };
        const auto columns = [&](int i) { return (first + i * warps) / 8 % 8; };
#pragma unroll
        for (int i = 0; i < at_once; ++i) {
          if (first + i * warps >= all) break;
          const int part = chunk(i) / of_part, item = place_of(chunk(i) % of_part / kDepth);
          const int column = Product::column_of(part, item) + chunk(i) % kDepth * WarpgroupShape::chunk_units;
          two[i] = read(first_unit(part, rows(i) / 2, rows(i) % 2), column + columns(i) * 8, 0);
        }
#pragma unroll
        for (int i = 0; i < at_once; ++i) {
          if (first + i * warps >= all) break;
          char* const to = memory + chunk(i) * WarpgroupShape::matrix_chunk_bytes;
          const int lane = threadIdx.x % 32, place = MatrixOfColumns::place(rows(i) * 8 + lane / 4, columns(i));
          *(unsigned*)(to + place + lane % 4 * 4) = Transposed(two[i]);
        }
      }
    }
  }
};
