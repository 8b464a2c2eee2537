// Code of both passes over a cluster of thread blocks: tiles of R in registers and shared memory, words stored into
// another block's shared memory, and places of threads.
//
// kBackward: which pass it is.

#include "backend/cuda/kernels/dense/pass.h"
PENSTOCK_PASS(ClusterPass)

#include "backend/cuda/kernels/dense/cell.cuh"
#include "backend/cuda/kernels/dense/fragments.cuh"
#include "backend/cuda/kernels/dense/resets.cuh"
#include "backend/cuda/kernels/dense/sm90.cuh"
#include "plan/kernels/dense_cluster_shape.h"

constexpr int kHead = kPass.held.head, kAccess = kPass.held.access, kSharedBytes = kPass.held.shared_bytes;
constexpr bool kTraining = kPass.held.training, kEveryState = kPass.held.every_state;
constexpr int kCluster = kPass.cluster, kBlocks = kPass.blocks, kRows = kPass.rows;
constexpr int kGroups = kPass.groups, kParts = kPass.parts, kResident = kPass.resident, kStages = kPass.stages;
constexpr int kGates = Rule::gates, kStates = Rule::states, kSaved = Rule::saved, kBytes = Storage::bytes;
using MeanExchanges = Exchanges<Rule, kBackward>;
constexpr bool kMeans = kTapedMeans > 0;
constexpr ClusterShape kShape = {kGates,
                                 kStates,
                                 DenseCell::split,
                                 kBytes,
                                 kCluster,
                                 kBlocks,
                                 kRows,
                                 kGroups,
                                 kParts,
                                 kResident,
                                 kStages,
                                 kTraining,
                                 MeanExchanges::of.count,
                                 MeanExchanges::pieces_before(MeanExchanges::of.count),
                                 kTapedFloats};
constexpr int kTilesN = kShape.tiles_n(), kPieces = kShape.pieces(), kPieceValues = 16 / kBytes;
/// The 8 lanes of a block move its pieces; else each lane moves the values of its own unit.
constexpr bool kWhole = kAccess == 16 && kHead % 8 == 0;
/// Two halves of a row, which one lane can move. No asynchronous copy takes a single one.
constexpr bool kPairs = kBytes == 2 && kAccess >= 4, kSingles = kBytes == 2 && kAccess == 2;
constexpr int kLaneValues = kPairs ? 2 : 1;
static_assert(!DenseCell::two_phases && (kStages & (kStages - 1)) == 0);
constexpr bool kExchanges = kPass.left_out != 1, kMultiplies = kPass.left_out != 2, kApplies = kPass.left_out != 3;
using One = Vector<Storage, 1>;

/// A number that stays in its register: the compiler would rather find it anew at each use, step after step.
PENSTOCK_DEVICE int Held(int number) {
  asm volatile("" : "+r"(number));
  return number;
}

/// Returns whether a flag that was loaded a step ahead is set. Without Held() the compiler compares where it loads, and
/// each step waits for the second-level cache.
PENSTOCK_DEVICE bool IsSet(int flag) { return kReset && Held(flag) != 0; }

/// Starts to load what the next step needs for resets. Call it before a wait for other blocks, which hides these loads.
/// At the end of a step they would not be hidden: the compiler waits for them where the next step begins. Flags come
/// last, since a load to a register that another load may still have to fill waits for all of them.
template <class Slot, int kSlots>
PENSTOCK_DEVICE void LookAhead(Slot (&slots)[kSlots], const DenseRows& rows, int step, int head) {
  if constexpr (kReset) {
#pragma unroll
    for (int s = 0; s < kSlots; ++s) slots[s].load_restart(rows, step, head);
    const int then = Held(step);
#pragma unroll
    for (int s = 0; s < kSlots; ++s) slots[s].load_flag(rows, then);
  }
}

/// Brings to the second-level cache, ahead of the loads of single threads, the rows of R of a block of units: `units`
/// of each gate from `first` on. By one thread a gate.
PENSTOCK_DEVICE void PrefetchRows(const char* of_head, int first, int units) {
  if constexpr (!kWhole) return;
  const int gate = threadIdx.x, count = min(units, kHead - first);
  if (gate >= kGates || count <= 0) return;
  const char* const from = of_head + ((Index)gate * kHead + first) * kHead * kBytes;
  asm volatile("cp.async.bulk.prefetch.L2.global [%0], %1;" ::"l"(from), "r"(count * kHead * kBytes) : "memory");
}

/// Waits for values that were loaded before the steps. Loads of single halves are under way all the while, and a step
/// that also has the first use of another load may wait for all of them: the chip counts loads in six places only.
template <int kCount>
PENSTOCK_DEVICE void Arrive(float (&values)[kCount]) {
  if constexpr (kSingles) {
#pragma unroll
    for (int i = 0; i < kCount; ++i) values[i] += 0.0f;  // which no compiler leaves out: it makes -0 to 0
  }
}

PENSTOCK_DEVICE float LoadOne(const char* p) { return One::read(p).get(0); }

/// How a lane moves values of its own unit to shared memory ahead of their step, where there are no whole pieces.
/// Single halves come to registers in one step, and go to shared memory in the next: nobody waits for them.
template <int kCount>
struct ValuesAhead {
  unsigned single[kSingles ? kCount : 1];
  char* place = nullptr;  // of `single` in shared memory

  /// Stores the values that were loaded last; the next ones go to `to`. at(i): bytes to value i; -1: it is not fetched
  /// here.
  template <class At>
  __device__ __forceinline__ void next(char* to, const At& at) {
    if constexpr (kSingles) {
#pragma unroll
      for (int i = 0; i < kCount && place != nullptr; ++i) {
        if (at(i) >= 0) *(unsigned short*)(place + at(i)) = (unsigned short)single[i];
      }
      place = to;
    }
  }
  /// Returns whether this lane moves values: of pairs, even lanes do.
  PENSTOCK_DEVICE bool moves() { return !kPairs || threadIdx.x % 2 == 0; }
  /// Starts to load value i, or takes 0, in a lane that moves values.
  __device__ __forceinline__ void fetch(int i, char* to, const char* from, bool exists) {
    if constexpr (kSingles) {
      single[i] = exists ? *(const unsigned short*)from : 0;
    } else {
      CopyAsync<4>(to, from, exists);
    }
  }
};

/// Stores a value in shared memory.
PENSTOCK_DEVICE void KeepOne(char* p, float value) {
  const float values[1] = {value};
  if constexpr (kBytes == 2) {
    *(unsigned short*)p = (unsigned short)One::of(values).word[0];
  } else {
    *(float*)p = value;
  }
}
PENSTOCK_DEVICE void StoreOne(char* p, float value) {
  const float values[1] = {value};
  One::of(values).store(p);
}
PENSTOCK_DEVICE void StorePiece(char* p, const uint4& v) {
  asm volatile("st.global.cs.v4.u32 [%0], {%1, %2, %3, %4};" ::"l"(p), "r"(v.x), "r"(v.y), "r"(v.z), "r"(v.w)
               : "memory");
}

/// Words of four matrices of 8 rows of 16 bytes; lane l gives the address of row l % 8 of matrix l / 8.
PENSTOCK_DEVICE void LoadFour(unsigned (&word)[4], unsigned address) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(word[0]), "=r"(word[1]), "=r"(word[2]), "=r"(word[3])
               : "r"(address)
               : "memory");
}

/// The same matrices, of halves, transposed.
PENSTOCK_DEVICE void LoadFourTransposed(unsigned (&word)[4], unsigned address) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(word[0]), "=r"(word[1]), "=r"(word[2]), "=r"(word[3])
               : "r"(address)
               : "memory");
}

/// Loads two matrices of 8 x 8 halves; lane l < 16 gives the address of row l % 8 of matrix l / 8.
PENSTOCK_DEVICE void LoadTwo(unsigned (&word)[4], unsigned address) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x2.shared.b16 {%0, %1}, [%2];"
               : "=r"(word[0]), "=r"(word[1])
               : "r"(address)
               : "memory");
}

/// Reads 16 bytes of a row of R, from `first` values behind p on. The row has `left` values from p on; zeros follow. A
/// null p gives zeros. There are no branches: after one, the next load would wait for this one.
PENSTOCK_DEVICE uint4 ReadPiece(const char* p, int first, int left) {
  if constexpr (kWhole) return p != nullptr ? __ldg((const uint4*)(p + first * kBytes)) : make_uint4(0, 0, 0, 0);
  left = p != nullptr ? left - first : 0;
  unsigned word[4];
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    const char* const at = p + first * kBytes + i * 4;
    if constexpr (kSingles) {
      word[i] = (2 * i < left ? LoadBits<Storage>(at) : 0) | (2 * i + 1 < left ? LoadBits<Storage>(at + 2) : 0) << 16;
    } else {
      word[i] = i * (4 / kBytes) < left ? __ldg((const unsigned*)at) : 0;
    }
  }
  return make_uint4(word[0], word[1], word[2], word[3]);
}

/// A warp's part of R, or of its transpose, as tiles A of 16 rows by 32 bytes: some k-tiles in registers, the others in
/// shared memory in the order of their lanes' words. Lane (g, t) has two words of row g and two of row g + 8; which of
/// a row's words they are is alike for the operand.
template <int kTilesM, int kTilesK, int kHeld>
struct Matrix {
  static constexpr int tiles = kTilesM * kTilesK;
  static constexpr bool few_floats =
      HasParts(Storage()) && kHeld == kTilesK && tiles <= 8 && kShape.threads() <= 128 && kSaved <= 8;
  /// Few floats stay in registers in both parts, which each step would otherwise make anew. A tile then takes 8
  /// registers of a thread. Backward steps, which have more other values, were measured to be shorter with 48 such
  /// registers (GRU of 128 units), and longer with 64 (LSTM of 128).
  static constexpr bool keeps_parts = few_floats && 8 * tiles <= (kBackward ? 48 : 64);
  unsigned held[kHeld > 0 ? kHeld : 1][kTilesM][4];
  const char* others;

  /// Held and others are spread evenly, so that loads of the others hide behind products of both.
  PENSTOCK_DEVICE constexpr int held_before(int k) { return k * kHeld / kTilesK; }
  PENSTOCK_DEVICE constexpr bool is_held(int k) { return held_before(k + 1) > held_before(k); }

  /// word(m, half, k, second): the first or second word of k-tile k that this lane holds of row g (half 0) or g + 8 of
  /// tile m.
  template <class Word>
  __device__ __forceinline__ void load(char* shared, const Word& word) {
    others = shared + threadIdx.x % 32 * 16;
#pragma unroll
    for (int k = 0; k < kTilesK; ++k) {
#pragma unroll
      for (int m = 0; m < kTilesM; ++m) {
        unsigned tile[4];
#pragma unroll
        for (int i = 0; i < 4; ++i) tile[i] = word(m, i % 2, k, i / 2);
        put(shared, k, m, tile);
      }
    }
  }

  /// Loads the tiles of R transposed, and reads rows of R 16 bytes at a time. of(m, half, k, second, t, i, left)
  /// returns the address of eight neighbouring values of a row of R, or null for zeros, and sets `left` to how many
  /// values the row has from there on. Their columns become the rows of a half of tile m, and the row is value i of the
  /// word that lanes (., t) hold. `stage`: shared memory of this warp for `kAtOnce` tiles, which are transposed there.
  template <int kAtOnce, class Of>
  __device__ __forceinline__ void load_transposed(char* shared, char* stage, const Of& of) {
    constexpr int all = kTilesK * kTilesM, tile_bytes = ClusterShape::tile_bytes;
    const int lane = threadIdx.x % 32;
    others = shared + lane * 16;
#pragma unroll
    for (int first = 0; first < all; first += kAtOnce) {
      uint4 piece[kAtOnce];
#pragma unroll
      for (int j = 0; j < kAtOnce && first + j < all; ++j) {
        const int k = (first + j) / kTilesM, m = (first + j) % kTilesM;
        int left = 8;
        const char* const p = kBytes == 2 ? of(m, lane / 8 % 2, k, lane / 16, lane % 8 / 2, lane % 2, left)
                                          : of(m, lane % 4 / 2, k, lane / 16, lane / 4 % 4, 0, left);
        piece[j] = ReadPiece(p, kBytes == 2 ? 0 : lane % 2 * 4, left);
      }
      __syncwarp();  // the tiles before these have been read
#pragma unroll
      for (int j = 0; j < kAtOnce && first + j < all; ++j) *(uint4*)(stage + j * tile_bytes + lane * 16) = piece[j];
      __syncwarp();
#pragma unroll
      for (int j = 0; j < kAtOnce && first + j < all; ++j) {
        const char* const from = stage + j * tile_bytes;
        unsigned tile[4];
        if constexpr (kBytes == 2) {
          LoadFourTransposed(tile, (unsigned)__cvta_generic_to_shared(from + lane * 16));
        } else {
#pragma unroll
          for (int i = 0; i < 4; ++i) {
            tile[i] = *(const unsigned*)(from + (i / 2 * 4 + lane % 4) * 64 + i % 2 * 32 + lane / 4 * 4);
          }
        }
        put(shared, (first + j) / kTilesM, (first + j) % kTilesM, tile);
      }
    }
  }

  __device__ __forceinline__ void put(char* shared, int k, int m, unsigned (&tile)[4]) {
    for (int i = 0; i < 4; ++i) tile[i] = AsFactor(tile[i], Storage());
    if (is_held(k)) {
      for (int i = 0; i < 4; ++i) held[is_held(k) ? held_before(k) : 0][m][i] = tile[i];
    } else {
      *(uint4*)(shared + threadIdx.x % 32 * 16 + ((k - held_before(k)) * kTilesM + m) * ClusterShape::tile_bytes) =
          make_uint4(tile[0], tile[1], tile[2], tile[3]);
    }
  }

  __device__ __forceinline__ void get(int k, int m, unsigned (&tile)[4]) const {
    if (is_held(k)) {
      for (int i = 0; i < 4; ++i) tile[i] = held[is_held(k) ? held_before(k) : 0][m][i];
    } else {
      const uint4 four = *(const uint4*)(others + ((k - held_before(k)) * kTilesM + m) * ClusterShape::tile_bytes);
      tile[0] = four.x, tile[1] = four.y, tile[2] = four.z, tile[3] = four.w;
    }
    if constexpr (kBytes == 4 && !keeps_parts) {
      for (int i = 0; i < 4; ++i) tile[i] = Anew(tile[i]);
    }
  }
};

/// Tiles of a warp that a block's shared memory of so many bytes has room for, as load_transposed() takes them. More
/// than eight would need registers that R has.
PENSTOCK_DEVICE constexpr int TilesAtOnce(int bytes, int warps) {
  const int tiles = bytes / (warps * ClusterShape::tile_bytes);
  return tiles < 8 ? tiles : 8;
}

/// Addresses at which a lane reads 16-byte pieces [piece][row] in shared memory; rows beyond the last repeat it.
struct Pieces {
  int at[kTilesN];

  PENSTOCK_DEVICE Pieces from(unsigned shared, int lane) {
    Pieces p;
#pragma unroll
    for (int n = 0; n < kTilesN; ++n) {
      p.at[n] = Held((int)shared + (lane / 8 * kRows + min(8 * n + lane % 8, kRows - 1)) * 16);
    }
    return p;
  }
};

/// A warp's sums. Several chains of them where there are few, since a product waits long for the one before.
template <int kTilesM>
struct Sums {
  static constexpr int chains = ClusterShape::chains(kTilesM * kTilesN), count = kTilesM * kTilesN * 4;
  float sum[chains][kTilesM][kTilesN][4];

  __device__ __forceinline__ void clear() {
#pragma unroll
    for (int i = 0; i < chains * count; ++i) (&sum[0][0][0][0])[i] = 0.0f;
  }
  /// Adds up the chains.
  __device__ __forceinline__ void finish() {
    float* const all = &sum[0][0][0][0];
#pragma unroll
    for (int i = count; i < chains * count; ++i) all[i % count] += all[i];
  }
  /// Adds the products of k-tile k; word(tile, 0 or 1): this lane's words of the operand.
  template <int kTilesK, int kHeld, class Word>
  __device__ __forceinline__ void add(const Matrix<kTilesM, kTilesK, kHeld>& matrix, int k, const Word& word) {
#pragma unroll
    for (int m = 0; m < kTilesM; ++m) {
      unsigned a[4];
      matrix.get(k, m, a);
#pragma unroll
      for (int n = 0; n < kTilesN; ++n) {
        if constexpr (Matrix<kTilesM, kTilesK, kHeld>::keeps_parts) {
          MultiplyFloats(sum[k % chains][m][n], a[0], a[1], a[2], a[3], word(n, 0), word(n, 1));
        } else {
          MultiplyHalves(sum[k % chains][m][n], a[0], a[1], a[2], a[3], word(n, 0), word(n, 1), Storage());
        }
      }
    }
  }

  /// Times 16-byte pieces `offset` bytes on.
  template <int kTilesK, int kHeld>
  __device__ __forceinline__ void multiply(const Matrix<kTilesM, kTilesK, kHeld>& matrix, const Pieces& pieces,
                                           int offset) {
    clear();
#pragma unroll
    for (int k = 0; k < kTilesK; k += 2) {
      unsigned b[kTilesN][4];
#pragma unroll
      for (int n = 0; n < kTilesN; ++n) {
        const unsigned from = pieces.at[n] + offset + 2 * k * kRows * 16;
        if (k + 1 < kTilesK) {
          LoadFour(b[n], from);
        } else {
          LoadTwo(b[n], from);
        }
      }
#pragma unroll
      for (int j = 0; j < 2 && k + j < kTilesK; ++j) {
        add(matrix, k + j, [&](int n, int i) { return b[n][2 * j + i]; });
      }
    }
    finish();
  }

  /// visit(tile, half, row, sums of rows `row` and `row` + 1 of this lane's unit) for the rows of the cluster.
  template <class Visit>
  __device__ __forceinline__ void for_each(int lane, const Visit& visit) const {
#pragma unroll
    for (int m = 0; m < kTilesM; ++m) {
#pragma unroll
      for (int half = 0; half < 2; ++half) {
#pragma unroll
        for (int n = 0; n < kTilesN; ++n) {
          const int row = 8 * n + lane % 4 * 2;
          if (row < kRows) visit(m, half, row, sum[0][m][n][2 * half], sum[0][m][n][2 * half + 1]);
        }
      }
    }
  }
};

PENSTOCK_DEVICE uint4 Bits(float a, float b, float c, float d) {
  return make_uint4(__float_as_uint(a), __float_as_uint(b), __float_as_uint(c), __float_as_uint(d));
}

/// Four rows of one unit, so that one store sends them: even lanes get units of a tile's upper half, odd ones of its
/// lower half.
PENSTOCK_DEVICE uint4 FourRows(const float (&sum)[4], int lane) {
  const bool lower = lane % 2 != 0;
  const float first = __shfl_xor_sync(0xffffffffu, lower ? sum[0] : sum[2], 1);
  const float second = __shfl_xor_sync(0xffffffffu, lower ? sum[1] : sum[3], 1);
  return lower ? Bits(first, second, sum[2], sum[3]) : Bits(sum[0], sum[1], first, second);
}

/// Place of 8 lanes, one for each unit of a block of units, which compute that block for one row.
struct Place {
  Row row;
  int slot;     // of the cluster
  int block;    // of the head
  int unit;     // of the head: this lane's
  bool exists;  // the row, the block and the unit do

  PENSTOCK_DEVICE Place of(const DenseRows& rows, int slice, int slot, int block, bool valid) {
    Place p;
    p.row = Row::of_slot(rows, valid ? slice * kRows + slot : rows.rows, kDescending);
    p.slot = slot, p.block = block;
    p.unit = block * 8 + threadIdx.x % 8;
    p.exists = p.row.number >= 0 && p.unit < kHead;
    if (!p.exists) p.row = Row{-1, 0, 0, 0, 0};
    return p;
  }
  /// Returns the first channel that this lane moves, counted over all heads.
  __device__ __forceinline__ int channel(int head) const { return head * kHead + (kWhole ? block * 8 : unit); }
};

/// Longest of the cluster's rows.
PENSTOCK_DEVICE int LongestRow(const DenseRows& rows, int slice) {
  int steps = 0;
  for (int slot = 0; slot < kRows; ++slot)
    steps = max(steps, Row::of_slot(rows, slice * kRows + slot, kDescending).length);
  return steps;
}

/// One value of a state [S, B, H], or 0.
PENSTOCK_DEVICE float ReadState(const float* states, int i, const Place& p, int rows, int hidden, int head) {
  if (states == nullptr || !p.exists) return 0.0f;
  return states[((Index)i * rows + p.row.number) * hidden + head * kHead + p.unit];
}

/// Writes zeros to `values` tensors of storage, `value_stride` bytes apart, where the row has memory but no step.
PENSTOCK_DEVICE void ClearPadding(const DenseTensor& tensor, const Place& p, int head, int values, Index value_stride) {
  const int lane = threadIdx.x % 8;
  for (int step = p.row.length; p.exists && step < p.row.padded; ++step) {
    char* const at = p.row.at(tensor, step, kDescending) + (Index)p.channel(head) * kBytes;
    if constexpr (kWhole) {
      for (int i = lane; i < values * kPieces; i += 8) {
        StorePiece(at + i / kPieces * value_stride + i % kPieces * 16, make_uint4(0, 0, 0, 0));
      }
    } else {
      for (int v = 0; v < values; ++v) StoreOne(at + v * value_stride, 0.0f);
    }
  }
}
