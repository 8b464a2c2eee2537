// Adds the last known values, normalised as targets, to outputs [P, horizon, targets].
//
// Constants: Storage (of the outputs), kThreads.

#include "backend/cuda/kernels/pointwise/values.cuh"

#include "backend/cuda/kernels/pointwise/arguments.cuh"

extern "C" __global__ void __launch_bounds__(kThreads) ChangesAdd(const __grid_constant__ ChangesArguments args) {
  WaitForKernelBefore();
  const Index position = (Index)blockIdx.x * kThreads + threadIdx.x;
  if (position >= (Index)args.rows * args.steps || !PlaceOf(position, args.steps, args.lengths).exists()) return;
  for (int i = 0; i < args.shared; ++i) {
    const ChangesColumn column = args.columns[i];
    const double input = (double)args.features[position * args.inputs + column.input];
    const float last = (float)(column.offset + column.factor * input);
    for (int ahead = 0; ahead < args.horizon; ++ahead) {
      const Index at = (position * args.horizon + ahead) * args.targets + column.target;
      StoreOne<Storage>(args.y, at, LoadOne<Storage>(args.y, at) + last);
    }
  }
}
