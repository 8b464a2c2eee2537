// The parameters of the kernel that adds up what slabs of K gave, laid out alike by the host's compiler and by NVRTC.
// Freestanding, without include guard: each side includes it once, in a namespace of its own.

struct SumSlabsArguments {
  const float* partial;  // [slabs, M * N + sums]
  float* d;              // [M, N]
  float* sums;           // [M] or null
  long long d_stride, m, n;
  int slabs;
  int add;  // to what D holds
};
