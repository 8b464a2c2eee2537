// The exchange of the warpgroup kernels: values that the blocks of a team send each other through the second-level
// cache, and the stages of shared memory that receive them. No block overwrites values that others still read: a step's
// values take the place of those of two steps before, and a block that has all items of the step between knows that all
// blocks have multiplied by them. Included by warpgroup_team.cuh, behind its constants and Team.

/// Memory through which the blocks of a team exchange values.
struct TeamExchange {
  char* first;  // [portion][2][chunk]
  unsigned* counts;

  PENSTOCK_DEVICE TeamExchange of(char* exchange, int team) {
    char* const first = exchange + (Index)team * kShape.exchange_bytes();
    return {first, (unsigned*)(first + kShape.counts_at())};
  }
  /// Returns the place of the values sent as `number`, in chunks of the columns.
  __device__ __forceinline__ char* sent(int portion, int number) const {
    return first + (portion * 2 + (number & 1)) * kShape.portion_bytes();
  }
  __device__ __forceinline__ unsigned* count(int portion, int item) const {
    return counts + (portion * kShape.all_items() + item) * (WarpgroupShape::count_bytes / 4);
  }
  /// What a team agrees on before its first step: the largest gradient, and the number of blocks that have told theirs.
  __device__ __forceinline__ unsigned* entering() const { return count(kPortions, 0); }
  __device__ __forceinline__ bool has(int portion, int item, int number) const {
    unsigned sent;
    asm volatile("ld.acquire.gpu.global.u32 %0, [%1];" : "=r"(sent) : "l"(count(portion, item)) : "memory");
    return sent >= (unsigned)(kShape.blocks_of_item() * (number + 1));
  }
  __device__ __forceinline__ void add(int portion, int item) const {
    asm volatile("red.release.gpu.global.add.u32 [%0], 1;" ::"l"(count(portion, item)) : "memory");
  }
  /// Sums of a group for one of its blocks from another one: [tile][warp][lane].
  __device__ __forceinline__ uint4* sums(int portion, int number, int group, int owner, int source) const {
    const int buffer = portion * 2 + (number & 1);
    const int at = ((buffer * (kUnitsOfTeam / kShape.group_units()) + group) * kShares + owner) * kShares + source;
    return (uint4*)(first + kShape.sums_at() + (Index)at * kShape.shared_sum_bytes());
  }
  /// Returns the items of R that a part of a block streams.
  __device__ __forceinline__ char* streamed(int member, int part) const {
    return first + kShape.streamed_at() + (Index)(member * kParts + part) * (kStreamed * kShape.matrix_item_bytes());
  }
};

/// Orders stores and copies within global memory, in either order.
PENSTOCK_DEVICE void ShowGlobalCopies() { asm volatile("fence.proxy.async.global;" ::: "memory"); }
/// Between what a block sends and the copy that brings it, one side needs this fence. Measured: forward it costs less
/// before the copies, backward before the count, since there are more copies.
constexpr bool kShowBeforeCopies = !kBackward;

/// Stages in shared memory that take turns in receiving copies.
template <int kAt, int kBytesOfStage, int kAll, int kReaders>
struct RingOf {
  char* start;         // of the block's shared memory
  CopyBarrier* full;   // [part][stage]
  CopyBarrier* empty;  // [part][stage]
  static constexpr int stages = kAll;

  PENSTOCK_DEVICE RingOf of(char* start, CopyBarrier* first) { return {start, first, first + stages}; }
  __device__ __forceinline__ void init() const {
    for (int i = 0; i < stages; ++i) full[i].init(1), empty[i].init(kReaders);
  }
  __device__ __forceinline__ char* item(int stage) const { return start + kAt + stage * kBytesOfStage; }
};
/// Rings of the operand, and of the items of R that are streamed. In the latter, each of the four warps of a part reads
/// rows of its own and releases them.
using Ring = RingOf<kShape.ring_at(), kItemBytes, kItemParts * kStages, kWide ? kParts : 1>;
constexpr int kMatrixStages = kStreamed > 0 ? kShape.matrix_stages() : 1;
using MatrixRing = RingOf<kShape.matrix_stages_at(), kShape.matrix_item_bytes(), kParts * kShape.matrix_stages(), 4>;
/// Returns the barriers behind those of both rings.
PENSTOCK_DEVICE CopyBarrier* OtherBarriers(char* start) {
  return (CopyBarrier*)start + 2 * (Ring::stages + MatrixRing::stages);
}

/// Brings what was sent as 0 to `count` - 1: each lane one item at once of a portion, of those from `first` on.
PENSTOCK_DEVICE void Bring(const Ring& ring, const TeamExchange& exchange, int first, int count) {
#pragma unroll 1
  for (int step = 0; step < count; ++step) {
#pragma unroll 1
    for (int piece = 0; piece < kPortions * kPasses; ++piece) {
      const int portion = piece / kPasses, item = piece % kPasses * 32 + threadIdx.x % 32;
      const int part = item % kItemParts, of_part = item / kItemParts;
      const unsigned number = (unsigned)(step * kPortions + portion) * kOwnItems + of_part;
      const unsigned stage = part * kStages + number % kStages, round = number / kStages;
      bool pending = item < kItems, is_sent = false;
      int tries = 0;
#pragma unroll 1
      while (true) {
        const unsigned left = __ballot_sync(0xffffffffu, pending);
        if (left == 0) break;
        if (pending && !is_sent) is_sent = exchange.has(portion, first + item, step);
        // The lane that filled this stage before, within this portion, has started its copy.
        const int before = item % 32 - Ring::stages;
        const bool turn = before < 0 || (left >> before & 1) == 0;
        if (pending && is_sent && turn && ring.empty[stage].passed((round & 1) ^ 1)) {
          pending = false;
          if constexpr (kShowBeforeCopies) ShowGlobalCopies();
          ring.full[stage].expect(kItemBytes);
          CopyBulk(ring.item(stage), exchange.sent(portion, step) + (first + item) * kItemBytes, kItemBytes,
                   ring.full[stage]);
        }
        if (++tries == kMostTries) asm volatile("trap;");
      }
    }
  }
}

/// Reads the streamed items of R for each of `turns`, in a single warp: a lane for each part.
PENSTOCK_DEVICE void Stream(const MatrixRing& ring, const TeamExchange& exchange, int member, int turns) {
  const int part = threadIdx.x % 32;
  if constexpr (kStreamed > 0) {
    const char* const from = part < kParts ? exchange.streamed(member, part) : nullptr;
    unsigned number = 0;
#pragma unroll 1
    for (int turn = 0; turn < turns; ++turn) {
#pragma unroll 1
      for (int i = 0; i < kStreamed; ++i, ++number) {
        const unsigned stage = min(part, kParts - 1) * kMatrixStages + number % kMatrixStages;
        if (part < kParts) {
          ring.empty[stage].wait((number / kMatrixStages & 1) ^ 1);
          ring.full[stage].expect(kShape.matrix_item_bytes());
          CopyBulk(ring.item(stage), from + i * kShape.matrix_item_bytes(), kShape.matrix_item_bytes(),
                   ring.full[stage]);
        }
        __syncwarp();
      }
    }
  }
}
