// The sum of the weights, and the number of rows with a weight above zero, by block.
//
// Constants: kThreads, kWidth.

#include "backend/cuda/kernels/pointwise/arguments.cuh"
#include "backend/cuda/kernels/pointwise/blocks.cuh"

extern "C" __global__ void __launch_bounds__(kThreads) RegressionWeights(const __grid_constant__ LossArguments args) {
  WaitForKernelBefore();
  double weight = 0.0;
  int scored = 0;
  for (Index row = (Index)blockIdx.x * kThreads + threadIdx.x; row < args.rows; row += (Index)gridDim.x * kThreads) {
    double of_row = 0.0;
    for (int column = 0; column < kWidth; ++column) of_row += (double)args.weights[row * kWidth + column];
    weight += of_row;
    scored += of_row > 0.0 ? 1 : 0;
  }
  weight = SumOfBlock(weight);
  scored = SumOfBlock(scored);
  if (threadIdx.x == 0) args.partial[blockIdx.x] = {0.0, weight, scored, 0, 0, 0};
}
