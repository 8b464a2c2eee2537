// The parameters of products of few rows, laid out alike by the host's compiler and by NVRTC. Freestanding, without
// include guard: each side includes it once, in a namespace of its own.

struct FewRowsArguments {
  const char* a;     // [kRows, k], rows `a_stride` elements apart
  const char* b;     // [n, k]
  const char* bias;  // [n] or null
  char* d;           // [kRows, n]
  long long a_stride, b_stride, d_stride;
  int n, k;
};
