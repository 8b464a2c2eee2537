#pragma once

#include <memory>

#include "ops/memory/memory.h"

namespace penstock::ops {

/// Time at which the work of a queue reached a point: by events on a GPU, by the host's clock on the CPU.
class Moment {
 public:
  explicit Moment(Queue& queue);
  ~Moment();
  Moment(Moment&&) noexcept;
  Moment& operator=(Moment&&) noexcept;

  /// Sets the moment to the end of all work so far.
  void set();
  /// Seconds from an earlier moment of the same queue to this one; the host waits until both have passed.
  double since(const Moment& earlier) const;

 private:
  struct Clock;
  Queue* queue_;
  std::unique_ptr<Clock> clock_;
};

}  // namespace penstock::ops
