// The parameters of the kernel that adds up what splits of K gave, laid out alike by the host's compiler and by NVRTC.
// Freestanding, without include guard: each side includes it once, in a namespace of its own.

struct SumSplitsArguments {
  const float* partial;  // [splits, M * N + sums]
  float* d;              // [M, N]
  float* sums;           // [M] or null
  long long d_stride, m, n;
  int splits;
  int add;           // to what D holds
  const int* unfit;  // null, or counts: D stays as it is if there are too many (unfit.cuh)
};
