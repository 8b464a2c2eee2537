// The parameters of the kernel that multiplies matrices of floats, laid out alike by the host's compiler and by NVRTC.
// Freestanding, without include guard: each side includes it once, in a namespace of its own.

struct FloatProductArguments {
  const float* a;                          // [M, K], or [K, M] if it lies transposed
  const float* b;                          // [K, N], or [N, K]
  float* d;                                // [M, N]
  const float* bias;                       // [N] or null
  float* sums;                             // [M], of A over K, or null
  long long a_stride, b_stride, d_stride;  // from row to row as they lie
  long long d_split, sums_split;           // from what one split of K gives to what the next one does
  long long m, n, k;
  long long split_k;     // of K, of a block
  int tiles_m, tiles_n;  // blocks over M and N
  int add;               // to what D holds
  const int* unfit;      // null, or counts: nothing is made unless there are too many (unfit.cuh)
};
