#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <thread>
#include <unordered_map>
#include <utility>

namespace penstock {

/// An object for each thread, such as scratch memory or tables, so that any number of threads may call get(). Made on a
/// thread's first call; later calls cost a comparison. Lives as long as this PerThread.
template <class T>
class PerThread {
 public:
  explicit PerThread(std::function<std::unique_ptr<T>()> make) : make_(std::move(make)) {}
  PerThread(const PerThread&) = delete;
  PerThread& operator=(const PerThread&) = delete;

  T& get() const {
    thread_local Last last;
    if (last.id != id_) last = {id_, &find()};
    return *last.share;
  }

 private:
  T& find() const {
    const std::lock_guard lock(guard_);
    std::unique_ptr<T>& share = shares_[std::this_thread::get_id()];
    if (!share) share = make_();
    return *share;
  }

  /// The share that this thread used last; ids are never used again, so it cannot be taken for another object's.
  struct Last {
    std::uint64_t id = 0;
    T* share = nullptr;
  };

  static std::uint64_t next_id() {
    static std::atomic<std::uint64_t> count{0};
    return ++count;
  }

  const std::uint64_t id_ = next_id();
  std::function<std::unique_ptr<T>()> make_;
  mutable std::mutex guard_;
  mutable std::unordered_map<std::thread::id, std::unique_ptr<T>> shares_;
};

}  // namespace penstock
