// The outputs that entered each step, what the recurrent matrix was multiplied by, as one matrix [P, H] for the
// gradient of that matrix: y of the step before; before the first step the initial state; what a reset puts in
// its place; zeros beyond lengths.
//
// Constants: Storage, kDescending, kVector (channels of a thread), kThreads.

#include "backend/cuda/kernels/dense/rows.cuh"

using Values = Vector<Storage, kVector>;

extern "C" __global__ void __launch_bounds__(kThreads, 1)
    EnteringStates(const __grid_constant__ EnteringArguments args) {
  const int groups = args.hidden / kVector;
  const int blocks = gridDim.x / args.rows.rows;  // of a row
  const Row row = Row::of_slot(args.rows, blockIdx.x / blocks, kDescending);
  for (Index at = (Index)(blockIdx.x % blocks) * kThreads + threadIdx.x; at < (Index)row.padded * groups;
       at += (Index)blocks * kThreads) {
    const int step = (int)(at / groups), channel = (int)(at % groups) * kVector;
    const Index channel_bytes = (Index)channel * Storage::bytes;
    Values value = Values::zero();
    const bool exists = step < row.length;
    bool reset = false;
    if (exists && args.rows.reset != nullptr) {
      reset = args.rows.reset[row.memory * args.rows.reset_row_stride +
                              row.time(step, kDescending) * args.rows.reset_step_stride] != 0;
    }
    const float* state = nullptr;  // from which h enters, unless it is an output
    if (reset && args.rows.restarts != nullptr) {
      state = args.rows.restarts + row.number * args.rows.restart_row +
              row.time(step, kDescending) * args.rows.restart_step + channel;
    } else if (!reset && step == 0 && args.state_in != nullptr) {
      state = args.state_in + (Index)row.number * args.hidden + channel;
    }
    if (exists && !reset && step > 0) {
      value = Values::read(row.at(args.y, step - 1, kDescending) + channel_bytes);
    } else if (exists && state != nullptr) {
      float first[kVector];
      for (int i = 0; i < kVector; ++i) first[i] = state[i];
      value = Values::of(first);
    }
    value.store(row.at(args.entering, step, kDescending) + channel_bytes);
  }
}
