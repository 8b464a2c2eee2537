// Shared memory of backward passes by warpgroups (warpgroup_backward.cuh), and the warps that bring the inputs of steps
// there and write the gradients of W x.

#include "backend/cuda/kernels/dense/warpgroup_team.cuh"

constexpr int kPassed = kShape.passed_values();
/// Bytes of one gate, and of one float state, of all units of a block.
constexpr int kGateBytes = kUnits * kBytes, kStateBytes = kUnits * 4;
static_assert(kUnitsOfTeam % kShape.group_units() == 0 && kOwnItems * kItemParts * kDepth == kShape.chunks());
static_assert(kPassed == 2 || kPassed % 4 == 0);

/// Shared memory.
struct Shared {
  Ring ring;
  MatrixRing matrix;
  char* start;
  CopyBarrier* inputs;  // [input stage]: what a step reads is there
  CopyBarrier* made;    // [portion]: the gradients of a step are there to be sent
  CopyBarrier* sums;    // [portion][part]: what the others have summed is there
  Row* rows;            // [portion][row]

  PENSTOCK_DEVICE Shared of(char* start) {
    auto* const own = (CopyBarrier*)start;
    CopyBarrier *const first = OtherBarriers(start), *const made = first + kInputStages;
    return {Ring::of(start, own),
            MatrixRing::of(start, own + 2 * Ring::stages),
            start,
            first,
            made,
            made + kPortions,
            (Row*)(start + kShape.rows_at())};
  }
  __device__ __forceinline__ void init() const {
    ring.init(), matrix.init();
    for (int i = 0; i < kInputStages; ++i) inputs[i].init(2 * 32 * kLoaders + (kWide ? 1 : 0));
    for (int i = 0; i < kPortions; ++i) made[i].init(kParts * 4 + kLoaders);
    for (int i = 0; i < (kWide ? 0 : kPortions * kParts); ++i) sums[i].init(1 + 4);
  }
  __device__ __forceinline__ char* input(int stage) const {
    return start + kShape.input_at() + stage * kShape.input_bytes();
  }
  /// Bit 0: a row is reset before the step; bit 1: before the one that follows it.
  __device__ __forceinline__ unsigned char* reset(int stage) const {
    return (unsigned char*)start + kShape.reset_at() + stage * kOwnRows;
  }
  /// Returns the place of the block's gradients of R h of gate `gate` that a turn has made; from gate G on, those of W
  /// x.
  __device__ __forceinline__ char* sent(int turn, int gate) const {
    return start + kShape.sent_at() + turn % kShape.sent_buffers() * kShape.sent_bytes() +
           gate * kShape.sent_gate_bytes();
  }
  /// Returns the place of the sums that threads of `part` get from a source: 0 this block, 1 and 2 the other one of the
  /// pair.
  __device__ __forceinline__ char* passed(int portion, int source, int part) const {
    return start + kShape.passed_at() + ((portion * 3 + source) * kParts + part) * kShape.passed_bytes();
  }
};

/// Brings what steps read, and writes the gradients of W x, as the first or a later thread of the warps that do: some
/// threads a row, so that they find out where it lies once a step.
struct TapeLoader {
  static constexpr int of_row = 32 * kLoaders / kOwnRows;  // threads
  static_assert(of_row > 0 && kGateBytes % (of_row * 16) == 0);
  const Shared& shared;
  const Team& team;
  const DenseBackwardArguments& args;
  int steps, thread;

  __device__ __forceinline__ int row_number() const { return thread / of_row; }
  __device__ __forceinline__ const Row& row_of(int portion) const {
    return shared.rows[portion * kRows + team.own_row() + row_number()];
  }
  /// Returns the byte offset of this thread's piece among every `of_row` pieces of 16 bytes.
  __device__ __forceinline__ int own() const { return thread % of_row * 16; }

  /// Narrow accesses are so many that code for each of them would take registers for their addresses.
  static constexpr int unrolled = kAccess == 16 ? 16 : 1;

  /// Starts copies of this thread's pieces of a step's values of a row, `apart` bytes from each other in the tensor.
  template <int kValues, int kValueBytes>
  __device__ __forceinline__ void copy(char* to, const DenseTensor& tensor, Index apart, const Row& row,
                                       int step) const {
    if (tensor.data == nullptr) return;
    const char* const from = row.at(tensor, step, kDescending) + (Index)team.channel() * (kValueBytes / kUnits) + own();
#pragma unroll(unrolled)
    for (int at = 0; at < kValues * kValueBytes; at += of_row * 16) {
      constexpr int unit_bytes = kValueBytes / kUnits;
      FetchUnits<unit_bytes>(to + own() + at, from + at / kValueBytes * apart + at % kValueBytes,
                             at % kValueBytes / unit_bytes, team.left() - own() / unit_bytes);
    }
  }

  __device__ __forceinline__ void fetch(int turn) const {
    const int stage = turn % kInputStages, step = steps - 1 - turn / kPortions;
    if (step < 0) return;
    const Row& row = row_of(turn % kPortions);
    if (step < row.length) {
      char* const to = shared.input(stage) + row_number() * kShape.input_pitch();
      const Index gate = (Index)args.hidden * kBytes;
      copy<kGates, kGateBytes>(to, args.sums, gate, row, step);
      if constexpr (DenseCell::split) copy<kGates, kGateBytes>(to + kShape.input_wx_at(), args.wx, gate, row, step);
      if constexpr (kStates > 1) {
        copy<kStates - 1, kStateBytes>(to + kShape.input_states_at(), args.states, (Index)args.hidden * 4, row, step);
      }
      copy<1, kGateBytes>(to + kShape.input_dy_at(), args.dy, 0, row, step);
      // No h of before the first step; the state that entered it is not in storage.
      if (HasOutputBefore(args.rows, step)) {
        copy<1, kGateBytes>(to + kShape.input_h_at(), args.y, 0, row, step - 1);
      }
    }
    if (kReset && thread % of_row == 0) {
      shared.reset(stage)[row_number()] =
          (ResetsAt(args.rows, row, step) ? 1 : 0) | (ResetsAt(args.rows, row, step + 1) ? 2 : 0);
    }
    asm volatile("cp.async.mbarrier.arrive.noinc.shared::cta.b64 [%0];" ::"r"(shared.inputs[stage].address())
                 : "memory");
    shared.inputs[stage].arrive();
  }

  /// Writes this thread's part of a row's gradients, from those that were sent as gate `gate` on.
  __device__ __forceinline__ void store(const DenseTensor& tensor, const Row& row, int turn, int step, int gate) const {
    char* const to = row.at(tensor, step, kDescending) + (Index)team.channel() * kBytes + own();
    const char* const from = shared.sent(turn, gate) + row_number() * kShape.sent_pitch() + own();
#pragma unroll(unrolled)
    for (int g = 0; g < kGates; ++g) {
#pragma unroll
      for (int at = 0; at < kGateBytes; at += of_row * 16) {
        StoreUnits(to + (Index)g * args.hidden * kBytes + at, *(const uint4*)(from + g * kShape.sent_gate_bytes() + at),
                   at / kBytes, team.left() - own() / kBytes);
      }
    }
  }

  __device__ __forceinline__ void run() const {
    for (int turn = 0; turn < kInputStages; ++turn) fetch(turn);
    int turn = 0;
#pragma unroll 1
    for (int number = 0; number < steps; ++number) {
#pragma unroll 1
      for (int portion = 0; portion < kPortions; ++portion, ++turn) {
        // A warp arrives for every step: it sees them all, and none of those that multiply gets two ahead.
        if (thread % 32 == 0) shared.made[portion].arrive();
        shared.made[portion].wait(number & 1);
        // At once, since cells wait for it; what is stored from stays until another turn's inputs have come.
        fetch(turn + kInputStages);
        const int step = steps - 1 - number;
        const Row& row = row_of(portion);
        if (step < row.length) {
          store(args.dwx, row, turn, step, DenseCell::split ? kGates : 0);
          if constexpr (DenseCell::split) store(args.drh, row, turn, step, 0);
        }
        __syncwarp();
      }
    }
    asm volatile("cp.async.wait_all;" ::: "memory");
  }
};
