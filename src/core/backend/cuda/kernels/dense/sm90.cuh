// Barriers in shared memory, bulk copies and clusters: instructions of sm_90 and later.

/// Barrier that enters the next phase when all arrivals, and all announced bytes, are there.
struct CopyBarrier {
  unsigned long long word;

  __device__ __forceinline__ unsigned address() const { return (unsigned)__cvta_generic_to_shared(&word); }
  /// Initialises the barrier for `arrivals` arrivals. The thread that does may announce bytes at once; all others wait
  /// for their block or cluster first. (racecheck warns of the two accesses, since it attributes the first to the whole
  /// warp.)
  __device__ __forceinline__ void init(int arrivals) {
    asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(address()), "r"(arrivals) : "memory");
  }
  /// Arrives, and says how many bytes of copies the phase waits for besides.
  __device__ __forceinline__ void expect(int bytes) {
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(address()), "r"(bytes) : "memory");
  }
  __device__ __forceinline__ void arrive() {
    asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(address()) : "memory");
  }
  /// Returns whether the phase of this parity is over, after a short wait.
  __device__ __forceinline__ bool passed(unsigned parity) const {
    unsigned over;
    asm volatile(
        "{\n.reg .pred over;\nmbarrier.try_wait.parity.shared::cta.b64 over, [%1], %2;\nselp.u32 %0, 1, 0, over;\n}"
        : "=r"(over)
        : "r"(address()), "r"(parity)
        : "memory");
    return over != 0;
  }
  /// Waits until a phase is over: the first one has parity 0, the next one 1, and so on in turns. Data that other
  /// blocks of the cluster sent to this block's shared memory, which no cache holds, are then visible. A wait that
  /// lasts some ten seconds fails the launch instead of hanging the GPU.
  __device__ __forceinline__ void wait(unsigned parity) const {
    constexpr int kMost = 1 << 24;
#pragma unroll 1
    for (int tries = 0; tries < kMost; ++tries) {
      if (passed(parity)) return;
    }
    asm volatile("trap;");
  }
};

/// Barriers that were initialised are seen by copies and by the other blocks of the cluster.
PENSTOCK_DEVICE void ShowBarriers() { asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory"); }

/// Makes earlier ordinary stores to shared memory visible to bulk copies that start afterwards.
PENSTOCK_DEVICE void ShowCopies() { asm volatile("fence.proxy.async.shared::cta;" ::: "memory"); }

/// Starts a copy of `bytes`, a multiple of 16, whose end the barrier counts.
PENSTOCK_DEVICE void CopyBulk(char* shared, const char* global, int bytes, CopyBarrier& barrier) {
  asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(
                   (unsigned)__cvta_generic_to_shared(shared)),
               "l"(global), "r"(bytes), "r"(barrier.address())
               : "memory");
}

PENSTOCK_DEVICE unsigned ClusterRank() {
  unsigned rank;
  asm volatile("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
  return rank;
}
/// The address of a variable of this block in another block of the cluster.
PENSTOCK_DEVICE unsigned InBlock(unsigned shared_address, unsigned rank) {
  unsigned address;
  asm("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(address) : "r"(shared_address), "r"(rank));
  return address;
}
PENSTOCK_DEVICE void ClusterArrive() { asm volatile("barrier.cluster.arrive.release.aligned;" ::: "memory"); }
PENSTOCK_DEVICE void ClusterWait() { asm volatile("barrier.cluster.wait.acquire.aligned;" ::: "memory"); }
/// Stores 16 bytes in another block's shared memory; that block's barrier (address there) counts them.
PENSTOCK_DEVICE void StoreRemote(unsigned to, const uint4& value, unsigned barrier) {
  asm volatile(
      "st.async.weak.shared::cluster.mbarrier::complete_tx::bytes.v4.b32 [%0], {%1, %2, %3, %4}, [%5];" ::"r"(to),
      "r"(value.x), "r"(value.y), "r"(value.z), "r"(value.w), "r"(barrier)
      : "memory");
}
