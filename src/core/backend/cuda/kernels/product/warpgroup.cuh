// Work of warpgroups of Hopper: 128 threads multiply factors in their registers by a matrix in shared memory, and
// signal by barriers in shared memory which parts are there. The host writes Multiply() itself for the number of
// columns (warpgroup_multiply.cc).

#include "backend/cuda/kernels/product/shared_matrix.cuh"

constexpr int kWarpgroup = 128;

/// Registers that this warpgroup's threads have from now on: the sum over a block stays what the launch gave it.
template <int kRegisters, bool kMore>
PENSTOCK_DEVICE void SetRegisters() {
  if constexpr (kMore) {
    asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(kRegisters));
  } else {
    asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(kRegisters));
  }
}

/// A barrier in shared memory that goes from phase to phase whenever `arrivals` threads have arrived.
struct Barrier {
  unsigned long long word;

  __device__ __forceinline__ unsigned address() const { return (unsigned)__cvta_generic_to_shared(&word); }
  __device__ __forceinline__ void init(int arrivals) {
    asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(address()), "r"(arrivals) : "memory");
  }
  __device__ __forceinline__ void arrive() {
    asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(address()) : "memory");
  }
  /// Waits until a phase is over: the first one has parity 0, the next one 1, and so on in turns.
  __device__ __forceinline__ void wait(unsigned parity) const {
    asm volatile(
        "{\n.reg .pred over;\nAGAIN: mbarrier.try_wait.parity.shared::cta.b64 over, [%0], %1;\n@over bra DONE;\nbra "
        "AGAIN;\nDONE:\n}" ::"r"(address()),
        "r"(parity)
        : "memory");
  }
};

/// Makes this thread's stores to shared memory visible to the tensor cores once it arrives at a barrier.
PENSTOCK_DEVICE void ShowTensorCores() { asm volatile("fence.proxy.async.shared::cta;" ::: "memory"); }

/// Orders writes to registers before the first multiplication that reads them.
PENSTOCK_DEVICE void BeginMultiplying() { asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); }
PENSTOCK_DEVICE void CommitMultiplying() { asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory"); }
/// Waits until at most `kPending` of the groups of multiplications committed last are under way.
template <int kPending = 0>
PENSTOCK_DEVICE void WaitForProducts() {
  asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(kPending) : "memory");
}

/// Keeps the compiler from moving reads and writes of a sum past this place: it does not know which multiplications
/// under way use its register.
PENSTOCK_DEVICE void Settle(float& sum) { asm volatile("" : "+f"(sum)::"memory"); }

/// Two warpgroups take turns: each waits for its own and passes the other's on.
PENSTOCK_DEVICE void WaitForTurn(int group) {
  asm volatile("bar.sync %0, %1;" ::"r"(1 + group), "n"(2 * kWarpgroup) : "memory");
}
PENSTOCK_DEVICE void PassTurn(int group) {
  asm volatile("bar.arrive %0, %1;" ::"r"(1 + group), "n"(2 * kWarpgroup) : "memory");
}
