#pragma once

#include <memory>

#include "ops/memory.h"

namespace penstock::ops {

/// When the work of a queue came to a point: by events on a GPU, by the host's clock on the CPU.
class Moment {
 public:
  explicit Moment(Queue& queue);
  ~Moment();
  Moment(Moment&&) noexcept;
  Moment& operator=(Moment&&) noexcept;

  /// It is when all work so far is done.
  void set();
  /// Seconds from an earlier moment of the same queue to this one; the host waits until both have passed.
  double since(const Moment& earlier) const;

 private:
  struct Clock;
  Queue* queue_;
  std::unique_ptr<Clock> clock_;
};

/// What there is on a queue's device, measured now, in a fraction of a second.
struct Limits {
  double copied = 0.0;    ///< Bytes read and written in a second by a copy that no cache holds.
  double products = 0.0;  ///< Floating-point operations in a second of one large product of matrices.
};

/// `target`: its device, type, precision and threads count.
struct Target;
Limits measure_limits(Queue& queue, const Target& target);

}  // namespace penstock::ops
