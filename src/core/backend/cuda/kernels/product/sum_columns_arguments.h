// The parameters of the kernel that sums columns, laid out alike by the host's compiler and by NVRTC. Freestanding,
// without include guard: each side includes it once, in a namespace of its own.

struct SumColumnsArguments {
  const char* matrix;  // [rows, columns], rows `stride` bytes apart
  char* sums;          // [columns]
  float* partial;      // [splits, columns]
  unsigned* finished;  // [tiles of columns], zero; every launch leaves them so
  long long rows, stride;
  int columns, splits;
};
