#include "runtime/handles.h"

#include <atomic>
#include <cstddef>
#include <cstdlib>
#include <new>

namespace penstock::runtime {

namespace {

// A handle is a slot's number and how often that has been used. Few bits of the latter on machines of 32 bits: a handle
// is taken for another after 4096 uses of its slot.
constexpr unsigned kSlotBits = sizeof(void*) == 8 ? 32 : 20;
constexpr std::uint32_t kUses = sizeof(void*) == 8 ? 0xffffffffu : 0xfffu;
constexpr std::size_t kBlockSize = 256, kBlocks = 4096;
static_assert(kBlockSize * kBlocks <= std::size_t{1} << 20);

struct Slot {
  std::atomic<std::uint32_t> use{0};  // grows when it is opened and when it is closed: odd while it is open
  HandleKind kind{};
  void* object = nullptr;
  std::uint32_t next_free = 0;
};

/// Slots are never freed, so that a look at one needs no lock.
class Table {
 public:
  void* open(HandleKind kind, void* object) {
    const Lock lock(guard_);
    if (first_free_ == 0 && !grow()) return nullptr;
    const std::uint32_t number = first_free_;
    Slot& slot = *at(number);
    first_free_ = slot.next_free;
    slot.kind = kind;
    slot.object = object;
    const std::uint32_t use = (slot.use.load(std::memory_order_relaxed) + 1) & kUses;
    slot.use.store(use, std::memory_order_release);
    const std::size_t handle = (static_cast<std::size_t>(use) << kSlotBits) | number;
    return reinterpret_cast<void*>(handle);  // NOLINT(performance-no-int-to-ptr): nobody follows it
  }

  /// Inlined: single samples look for their session.
  [[gnu::always_inline]] Slot* find(HandleKind kind, const void* handle) {
    const auto value = reinterpret_cast<std::size_t>(handle);
    const std::size_t number = value & ((std::size_t{1} << kSlotBits) - 1);
    if (number == 0 || number >= kBlockSize * kBlocks) return nullptr;
    Slot* const slot = at(static_cast<std::uint32_t>(number));
    const auto use = static_cast<std::uint32_t>(value >> kSlotBits);
    const bool is_open = slot != nullptr && use % 2 == 1 && slot->use.load(std::memory_order_acquire) == use;
    return is_open && slot->kind == kind ? slot : nullptr;
  }

  void* close(HandleKind kind, const void* handle) {
    const Lock lock(guard_);
    Slot* const slot = find(kind, handle);
    if (slot == nullptr) return nullptr;
    slot->use.store((slot->use.load(std::memory_order_relaxed) + 1) & kUses, std::memory_order_release);
    slot->next_free = first_free_;
    first_free_ =
        static_cast<std::uint32_t>(reinterpret_cast<std::size_t>(handle) & ((std::size_t{1} << kSlotBits) - 1));
    return slot->object;
  }

 private:
  /// Handles are opened and closed rarely and quickly, so waiting may spin.
  struct Lock {
    explicit Lock(std::atomic_flag& of) : flag(of) {
      while (flag.test_and_set(std::memory_order_acquire)) {
      }
    }
    ~Lock() { flag.clear(std::memory_order_release); }
    Lock(const Lock&) = delete;
    Lock& operator=(const Lock&) = delete;
    std::atomic_flag& flag;
  };

  /// Null where no slot has been yet.
  [[gnu::always_inline]] Slot* at(std::uint32_t number) {
    Slot* const block = blocks_[number / kBlockSize].load(std::memory_order_acquire);
    return block == nullptr ? nullptr : block + number % kBlockSize;
  }

  bool grow() {
    if (count_ == kBlocks) return false;
    auto* const block = static_cast<Slot*>(std::malloc(kBlockSize * sizeof(Slot)));
    if (block == nullptr) return false;
    for (std::size_t i = kBlockSize; i-- > 0;) {
      new (block + i) Slot();
      const auto number = static_cast<std::uint32_t>(count_ * kBlockSize + i);
      if (number == 0) continue;  // of no handle
      block[i].next_free = first_free_;
      first_free_ = number;
    }
    blocks_[count_++].store(block, std::memory_order_release);
    return true;
  }

  std::atomic_flag guard_ = ATOMIC_FLAG_INIT;
  std::atomic<Slot*> blocks_[kBlocks] = {};
  std::size_t count_ = 0;
  std::uint32_t first_free_ = 0;  // 0: none
};

constinit Table table;

}  // namespace

void* open_handle(HandleKind kind, void* object) { return table.open(kind, object); }

void* find_object(HandleKind kind, const void* handle) {
  const Slot* const slot = table.find(kind, handle);
  return slot == nullptr ? nullptr : slot->object;
}

void* close_handle(HandleKind kind, const void* handle) { return table.close(kind, handle); }

}  // namespace penstock::runtime
