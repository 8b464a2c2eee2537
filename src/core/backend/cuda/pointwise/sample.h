#pragma once

#include "backend/cuda/pointwise/launch.h"

namespace penstock::cuda {

/// Draws a token for each of many streams, as penstock::sample() does; the random number is that of the stream's key
/// and counter (base/counter_random.h). A sort in shared memory for up to 2,048 classes, else in the workspace.
struct Sample {
  Index streams = 1, classes = 256;
  plan::Storage logits = plan::Storage::f32;
  double temperature = 0.8;  ///< 0: always the likeliest
  Index top_k = 0;           ///< Only the k likeliest; 0: all
  double top_p = 0.95;       ///< Only the smallest set of this total probability; (0, 1]
};

struct SampleCall {
  DeviceAddress logits = 0;    ///< [streams, classes]
  Index logits_stride = 0;     ///< Elements from row to row
  DeviceAddress keys = 0;      ///< uint64 [streams]: counter_random::key_of(seed, stream)
  DeviceAddress counters = 0;  ///< uint64 [streams]: draws so far, counted up
  DeviceAddress tokens = 0;    ///< int32 [streams], written; -1 where a logit is not finite
  DeviceAddress history = 0;   ///< int32 [streams, history_length], or 0: the token of draw n at n % history_length
  Index history_length = 0;
};

class SampleExecutable {
 public:
  SampleExecutable(Device& device, const Sample& spec);
  std::size_t workspace_bytes() const;
  void run(const SampleCall& call, DeviceAddress workspace, StreamHandle stream) const;

 private:
  Sample spec_;
  const Kernel* kernel_;
};

KernelSource sample_source(const Sample& spec);

}  // namespace penstock::cuda
