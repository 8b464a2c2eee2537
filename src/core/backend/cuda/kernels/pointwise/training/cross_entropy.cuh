// -log softmax(logits)[label] of every row whose label is not -1, and its gradient, (softmax - onehot) *
// gradient_scale, which may replace the logits where they have the same storage.
//
// Constants: Storage (of the gradient), Logits, kGradient (it is wanted); those of rows.cuh.

#include "backend/cuda/kernels/pointwise/rows.cuh"

#include "backend/cuda/kernels/pointwise/arguments.cuh"
#include "backend/cuda/kernels/pointwise/blocks.cuh"

constexpr int kKept = kHeld ? kSteps : 1;

/// Stands for logits beyond the end of a row.
constexpr float kNothing = -3.402823466e38f;

/// The sum of e^(logit - largest) over the thread's part of a row. Where they are held, v becomes the exponentials.
PENSTOCK_DEVICE float Exponentials(const LossArguments& args, Index row, float largest, float (&v)[kKept][kVector]) {
  float sum = 0.0f;
#pragma unroll(kHeld ? kSteps : 1)
  for (int step = 0; step < kSteps; ++step) {
    const int column = ColumnOf(step), kept = kHeld ? step : 0;
    if (!IsColumn(column)) continue;
    if constexpr (!kHeld) Load<Logits>(args.y, row * kWidth + column, v[0]);
    for (int i = 0; i < kVector; ++i) {
      v[kept][i] = Exponential(v[kept][i] - largest);
      sum += v[kept][i];
    }
  }
  return sum;
}

extern "C" __global__ void __launch_bounds__(kThreads, 1) CrossEntropy(const __grid_constant__ LossArguments args) {
  WaitForKernelBefore();
  double loss = 0.0;
  int correct = 0;
  bool broken = false;
  const float scale = args.sums->gradient_scale;
#pragma unroll 1
  for (Index first = (Index)blockIdx.x * kRowsOfBlock; first < args.rows; first += (Index)gridDim.x * kRowsOfBlock) {
    const Index asked = first + threadIdx.x / kGroup, row = min(asked, args.rows - 1);
    const bool exists = asked == row;
    const int label = exists ? args.labels[row] : -1;
    const bool scored = label >= 0 && label < kWidth;
    const float of_label = scored ? LoadOne<Logits>(args.y, row * kWidth + label) : 0.0f;
    float v[kKept][kVector], largest = kNothing;
#pragma unroll(kHeld ? kSteps : 1)
    for (int step = 0; step < kSteps; ++step) {
      const int column = ColumnOf(step), kept = kHeld ? step : 0;
      if (!IsColumn(column)) continue;
      Load<Logits>(args.y, row * kWidth + column, v[kept]);
      for (int i = 0; i < kVector; ++i) {
        largest = fmaxf(largest, v[kept][i]);
        broken |= exists && !Finite(v[kept][i]);
      }
    }
    broken |= label >= kWidth;
    largest = MaxOfGroup(largest);
    const float sum = SumOfGroup(Exponentials(args, row, largest, v));
    if (scored && threadIdx.x % kGroup == 0) {
      loss += log((double)sum) + (double)largest - (double)of_label;
      correct += of_label == largest ? 1 : 0;
    }
    if constexpr (kGradient) {
      const float factor = scored ? __fdiv_rn(scale, sum) : 0.0f;
#pragma unroll(kHeld ? kSteps : 1)
      for (int step = 0; step < kSteps; ++step) {
        const int column = ColumnOf(step), kept = kHeld ? step : 0;
        if (!IsColumn(column)) continue;
        if constexpr (!kHeld) {
          Load<Logits>(args.y, row * kWidth + column, v[0]);
          for (int i = 0; i < kVector; ++i) v[0][i] = Exponential(v[0][i] - largest);
        }
        float d[kVector];
        for (int i = 0; i < kVector; ++i) {
          d[i] = scored ? v[kept][i] * factor - (column + i == label ? scale : 0.0f) : 0.0f;
        }
        if (exists) Store<Storage>(args.gradient, row * kWidth + column, d);
      }
    }
  }
  loss = SumOfBlock(loss);
  correct = SumOfBlock(correct);
  broken = __syncthreads_or(broken);
  if (threadIdx.x == 0) args.partial[blockIdx.x] = {loss, 0.0, 0, correct, broken, 0};
}
