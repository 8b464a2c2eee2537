#pragma once

#include "ops/op.h"

namespace penstock::ops {

class Queue;

/// How fast a queue's device copies and multiplies at most, measured now, in a fraction of a second.
struct MachineSpeed {
  double copied = 0.0;    ///< Bytes read and written in a second by a copy that no cache holds.
  double products = 0.0;  ///< Floating-point operations in a second of one large product of matrices.
};

/// `target`: its device, type, precision and threads count.
MachineSpeed measure_machine_speed(Queue& queue, const Target& target);

}  // namespace penstock::ops
