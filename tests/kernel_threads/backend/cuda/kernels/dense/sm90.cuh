// Barriers in shared memory and bulk copies, on threads of the CPU.

/// Arrivals that the phase waits for in bits 0 to 15, those of every phase in bits 16 to 31, missing bytes in bits 32
/// to 62, and the number of the phase in bit 63.
struct CopyBarrier {
  unsigned long long word;

  void init(int arrivals) { word = (unsigned long long)arrivals * 0x10001; }
  void expect(int bytes) { change(((unsigned long long)bytes << 32) - 1); }
  void arrive() { change(-1ull); }
  void complete(int bytes) { change(-((unsigned long long)bytes << 32)); }
  void wait(unsigned parity) const {
    const std::atomic_ref<unsigned long long> all(const_cast<unsigned long long&>(word));
    for (unsigned long long now = all.load(); now >> 63 == parity; now = all.load()) all.wait(now);
  }

 private:
  void change(unsigned long long by) {
    const std::atomic_ref<unsigned long long> all(word);
    unsigned long long now = all.load(), next = 0;
    do {
      next = now + by;
      const bool over = (next & 0xffff) == 0 && (next << 1 >> 33) == 0;
      if (over) next = (next ^ 1ull << 63) | (next >> 16 & 0xffff);
    } while (!all.compare_exchange_weak(now, next));
    all.notify_all();
  }
};

PENSTOCK_DEVICE void ShowBarriers() {}

PENSTOCK_DEVICE void CopyBulk(char* shared, const char* global, int bytes, CopyBarrier& barrier) {
  std::memcpy(shared, global, (std::size_t)bytes);
  barrier.complete(bytes);
}
