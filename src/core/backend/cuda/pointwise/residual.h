#pragma once

#include <cstdint>

#include "backend/cuda/pointwise/launch.h"

namespace penstock::cuda {

/// Zeroes values with this probability and divides the others by 1 - probability. The mask is a function of the seed of
/// the call, the site and the index of a value in its tensor (base/counter_random.h): nothing is kept, and the backward
/// pass draws the same one.
struct DropoutSite {
  double probability = 0.0;
  std::uint64_t site = 0;
  bool active() const { return probability > 0.0; }
};

/// y = x + dropout(branch); without x the dropout alone, which is what the backward pass makes of a gradient.
struct Residual {
  Index size = 1;
  plan::Storage storage = plan::Storage::bf16;
  bool add = true;  ///< There is an x.
  DropoutSite dropout = {};
  int alignment = kAlignment;
};

struct ResidualCall {
  DeviceAddress x = 0;       ///< [size], or 0 without
  DeviceAddress branch = 0;  ///< [size]
  DeviceAddress y = 0;       ///< [size]; may be x or branch
  DeviceAddress seed = 0;    ///< uint64 in device memory, such as StepState::dropout_seed; 0 without dropout
};

class ResidualExecutable {
 public:
  ResidualExecutable(Device& device, const Residual& spec);
  void run(const ResidualCall& call, StreamHandle stream) const;

 private:
  Residual spec_;
  int vector_;
  const Kernel* kernel_;
};

KernelSource residual_source(const Residual& spec);

/// Throws Error(invalid_argument) for a probability outside [0, 1), or a seed that is there without need or not there.
void require_dropout(const DropoutSite& dropout);
void require_seed(const DropoutSite& dropout, DeviceAddress seed);

}  // namespace penstock::cuda
