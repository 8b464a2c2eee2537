// Which products by pairs of float16 are made again by plain floats. Behind paired_matrix.h.

/// Returns whether so many rows are unfit, of A or of B, that FloatProduct makes the whole product. `counts`: of both.
PENSTOCK_DEVICE bool TooManyUnfit(const int* counts) {
  return max(__ldcg(counts), __ldcg(counts + 1)) > PairedMatrix::most_repaired;
}
