// The features of each position, those that are targets too bounded by tanh, and then by how much the latter changed
// since the position before. Zeros beyond the lengths.
//
// Constants: Storage (of y), kThreads.

#include "backend/cuda/kernels/pointwise/values.cuh"

#include "backend/cuda/kernels/pointwise/arguments.cuh"

extern "C" __global__ void __launch_bounds__(kThreads) ChangesRead(const __grid_constant__ ChangesArguments args) {
  WaitForKernelBefore();
  const Index position = (Index)blockIdx.x * kThreads + threadIdx.x;
  if (position >= (Index)args.rows * args.steps) return;
  const Place place = PlaceOf(position, args.steps, args.lengths);
  const int width = args.inputs + args.shared;
  const Index out = position * width;
  const float* const x = args.features + position * args.inputs;
  const float* const carried = args.state_in + (Index)place.row * (args.shared + 1);
  float* const next = args.state_out + (Index)place.row * (args.shared + 1);
  if (place.step == 0 && place.length == 0) {
#pragma unroll 1
    for (int i = 0; i <= args.shared; ++i) next[i] = carried[i];
  }
  if (!place.exists()) {
#pragma unroll 1
    for (int i = 0; i < width; ++i) StoreOne<Storage>(args.y, out + i, 0.0f);
    return;
  }
  const bool starts = args.reset != nullptr && args.reset[position] != 0;
  const bool known = !starts && (place.step > 0 || carried[args.shared] != 0.0f);
  const bool last = place.step == place.length - 1;
#pragma unroll 1
  for (int i = 0; i < args.inputs; ++i) StoreOne<Storage>(args.y, out + i, x[i]);
#pragma unroll 1
  for (int i = 0; i < args.shared; ++i) {
    const ChangesColumn column = args.columns[i];
    const float value = x[column.input];
    const float* const before = place.step > 0 ? x - args.inputs + column.input : carried + i;
    const float change = known ? value - *before : 0.0f;
    StoreOne<Storage>(args.y, out + args.inputs + i, column.change_factor * change);
    StoreOne<Storage>(args.y, out + column.input, tanhf(value));
    if (last) next[i] = value;
  }
  if (last) next[args.shared] = 1.0f;
}
