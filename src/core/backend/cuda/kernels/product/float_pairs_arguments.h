// The parameters of the kernels that multiply matrices of pairs, and of the one that repairs their product. Laid out
// alike by the host's compiler and by NVRTC. Behind float_product_arguments.h and paired_matrix.h, without include
// guard.

struct FloatPairsArguments {
  FloatProductArguments product;  // its `unfit` has the counts of A and B
  PairedMatrix a, b;
  int blocks, split_blocks;  // of K, and of a split
  int splits;
};
