#pragma once

#include <functional>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

namespace penstock {

/// Things that serve one call at a time, as many as there are calls at once; made when none is idle.
template <class T>
class Pool {
 public:
  explicit Pool(std::function<std::unique_ptr<T>()> make = {}) : make_(std::move(make)) {}

  /// One of them for a call, which goes back when the call is over.
  class Lease {
   public:
    explicit Lease(Pool& pool) : Lease(pool, pool.make_) {}
    /// `make`: instead of the pool's.
    template <class Make>
    Lease(Pool& pool, const Make& make) : pool_(pool), held_(pool.take(make)) {}
    ~Lease() { pool_.give_back(std::move(held_)); }
    Lease(const Lease&) = delete;
    Lease& operator=(const Lease&) = delete;
    T* operator->() const { return held_.get(); }
    T& operator*() const { return *held_; }

   private:
    Pool& pool_;
    std::unique_ptr<T> held_;
  };

 private:
  template <class Make>
  std::unique_ptr<T> take(const Make& make) {
    {
      const std::lock_guard lock(guard_);
      if (!idle_.empty()) {
        std::unique_ptr<T> one = std::move(idle_.back());
        idle_.pop_back();
        return one;
      }
    }
    return make();
  }
  void give_back(std::unique_ptr<T> one) {
    const std::lock_guard lock(guard_);
    idle_.push_back(std::move(one));
  }

  std::function<std::unique_ptr<T>()> make_;
  std::mutex guard_;
  std::vector<std::unique_ptr<T>> idle_;
};

}  // namespace penstock
