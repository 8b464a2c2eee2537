// A matrix of floats as pairs of float16, as split_pairs.cuh makes it. Laid out alike by the host's compiler and by
// NVRTC. Freestanding, without include guard: each side includes it once, in a namespace of its own.

struct PairedMatrix {
  static constexpr int block = 64;          // of K, of one scale
  static constexpr int line = 2 * block;    // bytes of the high or low parts of a row's block
  static constexpr int most_repaired = 32;  // rows that repair_product.cuh makes; with more, FloatProduct makes all

  char* high;      // [K / block, rows, block] float16; a row's pieces of 16 bytes in the order of MatrixOfColumns
  char* low;       // likewise, times 2^11
  float* scale;    // [K / block, rows]: a float is (high + low 2^-11) scale
  float* sums;     // [K / block, rows], of the floats; or null
  int* unfit;      // [rows]: not 0 for a row with a float that a pair cannot keep; 0 before
  int* count;      // how many rows are unfit; 0 before
  int* list;       // the first most_repaired of them, in any order
  long long rows;  // as they lie: whole tiles
};

struct SplitPairsArguments {
  const float* matrix;  // [rows, K], or [K, rows] if it lies transposed
  long long stride, rows, k;
  PairedMatrix pairs;
};
