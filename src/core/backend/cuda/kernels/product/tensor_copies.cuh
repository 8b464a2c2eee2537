// Copies of boxes of tensors between global and shared memory by Hopper's copy engine. Behind warpgroup.cuh.

/// Description of a tensor in global memory for the copy engine: CUtensorMap.
struct alignas(64) TensorMap {
  unsigned long long content[16];
};

/// Barriers that were made are there for copies, too.
PENSTOCK_DEVICE void ShowCopies() { asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory"); }

/// Arrives, and says how many bytes will arrive by copies before the phase is over.
PENSTOCK_DEVICE void ArriveExpecting(Barrier& barrier, int bytes) {
  asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(barrier.address()), "r"(bytes)
               : "memory");
}

/// Starts a copy of the box of a tensor of three axes that begins at a place; what lies outside becomes zero.
PENSTOCK_DEVICE void CopyBox(char* to, const TensorMap& tensor, int inner, int middle, int outer, Barrier& barrier) {
  asm volatile(
      "cp.async.bulk.tensor.3d.shared::cluster.global.tile.mbarrier::complete_tx::bytes [%0], [%1, {%2, %3, %4}], "
      "[%5];" ::"r"((unsigned)__cvta_generic_to_shared(to)),
      "l"(&tensor), "r"(inner), "r"(middle), "r"(outer), "r"(barrier.address())
      : "memory");
}

/// Starts a copy to a tensor of four axes; what lies outside is not written.
PENSTOCK_DEVICE void StoreBox(const TensorMap& tensor, int c0, int c1, int c2, int c3, const char* from) {
  asm volatile(
      "cp.async.bulk.tensor.4d.global.shared::cta.tile.bulk_group [%0, {%1, %2, %3, %4}], [%5];" ::"l"(&tensor),
      "r"(c0), "r"(c1), "r"(c2), "r"(c3), "r"((unsigned)__cvta_generic_to_shared(from))
      : "memory");
}
PENSTOCK_DEVICE void CommitStores() { asm volatile("cp.async.bulk.commit_group;" ::: "memory"); }
/// Waits until this thread's bulk stores have read their sources.
PENSTOCK_DEVICE void WaitForReads() { asm volatile("cp.async.bulk.wait_group.read 0;" ::: "memory"); }
