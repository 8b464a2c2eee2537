#include "base/step_queue.h"

#include <algorithm>
#include <cstring>

namespace penstock {

StepQueue::StepQueue(Index cells, std::size_t step_bytes)
    : cells_(static_cast<std::size_t>(cells)), step_bytes_(step_bytes), steps_(cells_.size() * step_bytes) {
  // A cell is empty for the step at position p if its turn is 2 p / cells, and full if it is one more.
  arrived_.reserve(cells_.size());
}

bool StepQueue::push(std::uint64_t session, std::uint64_t tag, const void* step) {
  std::uint64_t position = next_.load(std::memory_order_relaxed);
  while (true) {
    const std::uint64_t turn = cells_[place_of(position)].turn.load(std::memory_order_acquire);
    const std::uint64_t empty = 2 * (position / cells_.size());
    if (turn == empty) {
      if (next_.compare_exchange_weak(position, position + 1, std::memory_order_relaxed)) break;
    } else if (turn < empty) {
      return false;  // the step that had the cell before still waits
    } else {
      position = next_.load(std::memory_order_relaxed);
    }
  }
  const std::size_t place = place_of(position);
  Cell& cell = cells_[place];
  cell.session = session;
  cell.tag = tag;
  cell.since = Clock::now();
  std::memcpy(steps_.data() + place * step_bytes_, step, step_bytes_);
  waiting_.fetch_add(1, std::memory_order_relaxed);
  // Sequentially consistent, as wait() is: either this thread sees that the consumer sleeps, or it sees this step.
  cell.turn.store(2 * (position / cells_.size()) + 1, std::memory_order_seq_cst);
  if (position >= wake_at_.load(std::memory_order_seq_cst) &&
      wake_at_.exchange(kAwake, std::memory_order_seq_cst) != kAwake) {
    wake_.release();
  }
  return true;
}

std::size_t StepQueue::look() {
  while (arrived_.size() < cells_.size()) {
    const std::uint64_t turn = cells_[place_of(looked_)].turn.load(std::memory_order_seq_cst);
    if (turn != 2 * (looked_ / cells_.size()) + 1) break;
    arrived_.push_back(looked_++);
  }
  return arrived_.size();
}

StepQueue::View StepQueue::at(std::size_t place) const {
  const std::size_t cell = place_of(arrived_[place]);
  return {cells_[cell].session, cells_[cell].tag, steps_.data() + cell * step_bytes_};
}

void StepQueue::drop(const std::vector<char>& drop) {
  std::size_t kept = 0, dropped = 0;
  for (std::size_t place = 0; place < arrived_.size(); ++place) {
    const std::uint64_t position = arrived_[place];
    if (place < drop.size() && drop[place] != 0) {
      cells_[place_of(position)].turn.store(2 * (position / cells_.size()) + 2, std::memory_order_release);
      ++dropped;
    } else {
      arrived_[kept++] = position;
    }
  }
  arrived_.resize(kept);
  waiting_.fetch_sub(static_cast<Index>(dropped), std::memory_order_relaxed);
}

std::size_t StepQueue::wait(std::size_t count, Clock::time_point end) {
  std::size_t there = look();
  while (there < count && Clock::now() < end) {
    wake_at_.store(looked_ + (count - there) - 1, std::memory_order_seq_cst);
    there = look();
    const bool in_time = there >= count || wake_.try_acquire_until(end);
    // Unless a producer has woken this thread or is about to, nobody does any more.
    const bool woken = wake_at_.exchange(kAwake, std::memory_order_seq_cst) == kAwake;
    if (woken && (there >= count || !in_time)) wake_.acquire();
    there = look();
  }
  return there;
}

StepQueue::Clock::time_point StepQueue::since() const { return cells_[place_of(arrived_.front())].since; }

}  // namespace penstock
