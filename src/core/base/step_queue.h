#pragma once

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <memory>
#include <semaphore>
#include <vector>

#include "penstock/types.h"

namespace penstock {

/// A bounded queue of steps of sessions, from any number of threads to one.
///
/// A ring of cells, each with a turn that says whether it is empty or full. A producer claims the next cell by one
/// atomic exchange, and no thread waits for another. Only a consumer that sleeps costs its waker a system call.
class StepQueue {
 public:
  using Clock = std::chrono::steady_clock;

  StepQueue(Index cells, std::size_t step_bytes);

  Index capacity() const { return static_cast<Index>(cells_.size()); }
  /// Steps in the queue; a moment later there may be others. For any thread.
  Index size() const { return waiting_.load(std::memory_order_relaxed); }
  /// Adds a step. Returns false if the queue is full. For any thread.
  bool push(std::uint64_t session, std::uint64_t tag, const void* step);

  // The consumer's, in order from 0; a step that it drops leaves its place, and those behind it move up.

  /// A step in the queue.
  struct View {
    std::uint64_t session;
    std::uint64_t tag;
    const void* step;
  };
  /// Looks for steps that have arrived since. Returns how many there are.
  std::size_t look();
  View at(std::size_t place) const;
  /// Drops the steps for which `drop` is true; `drop` has a flag for each of the first places.
  void drop(const std::vector<char>& drop);
  /// Sleeps until `count` steps are there, or until `end`. Returns how many there are.
  std::size_t wait(std::size_t count, Clock::time_point end);
  /// When the first step arrived.
  Clock::time_point since() const;

 private:
  struct Cell {
    std::atomic<std::uint64_t> turn;
    std::uint64_t session;
    std::uint64_t tag;
    Clock::time_point since;
  };
  static constexpr std::uint64_t kAwake = std::numeric_limits<std::uint64_t>::max();

  std::size_t place_of(std::uint64_t position) const { return position % cells_.size(); }

  std::vector<Cell> cells_;
  std::size_t step_bytes_;
  std::vector<std::byte> steps_;                            // [cells, step_bytes]
  alignas(64) std::atomic<std::uint64_t> next_{0};          // position of the next step
  alignas(64) std::atomic<std::uint64_t> wake_at_{kAwake};  // the step at which a sleeping consumer is woken
  alignas(64) std::atomic<Index> waiting_{0};
  std::binary_semaphore wake_{0};
  std::uint64_t looked_ = 0;            // the consumer's: positions below were seen
  std::vector<std::uint64_t> arrived_;  // positions of steps that wait, in order
};

}  // namespace penstock
