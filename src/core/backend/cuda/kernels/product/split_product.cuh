// Fp32 GEMMs on tensor cores, which multiply numbers of 11 bits: a float is the sum of two such, high + low and
// a rest below 2^-22 of it, and the product of two floats the sum of high x high, high x low and low x high. What is
// left out is below 2^-22 of |a b|, what low loses to 11 bits twice 2^-21; the sum of 16 products is added to the
// others in plain float arithmetic. All in all a sum of K products is within (2^-18 + K 2^-28) of the sum of their
// sizes; one multiplication and addition after the other would be within K 2^-24. Infinities become NaN.

constexpr int kWarp = 32;
constexpr int kRows = 16, kColumns = 8;  // of a tile of sums
constexpr int kInner = 16;               // products that are summed at once; a thread holds four of them of a row

/// Four neighbouring factors of a thread.
struct Split {
  unsigned high[4], low[4];

  __device__ __forceinline__ void set(int i, float x) {
    const unsigned rounded = __float_as_uint(x) + 0x1000u;  // whose last 13 bits tensor cores do not read
    high[i] = rounded;
    low[i] = __float_as_uint(x - __uint_as_float(rounded & 0xffffe000u));
  }
  __device__ __forceinline__ void set(const Vector<F32, 4>& four) {
    for (int i = 0; i < 4; ++i) set(i, four.get(i));
  }
};

/// Adds 8 products to each sum of a tile of 16 x 8. `a` is a thread's part of rows lane / 4 and 8 + lane / 4, `b` of
/// column lane / 4; both hold factors 2 (lane % 4) and 2 (lane % 4) + 1, as all threads count them alike.
PENSTOCK_DEVICE void MultiplyTile(float (&sum)[4], const unsigned (&a)[2][4], const unsigned (&b)[4], int first) {
  asm("mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
      "{%0, %1, %2, %3};"
      : "+f"(sum[0]), "+f"(sum[1]), "+f"(sum[2]), "+f"(sum[3])
      : "r"(a[0][first]), "r"(a[1][first]), "r"(a[0][first + 1]), "r"(a[1][first + 1]), "r"(b[first]),
        "r"(b[first + 1]));
}

/// A thread's part of 16 rows: of row lane / 4 and of row 8 + lane / 4.
struct SplitRows {
  unsigned high[2][4], low[2][4];

  __device__ __forceinline__ void set(int half, const Vector<F32, 4>& four) {
    Split row;
    row.set(four);
    for (int i = 0; i < 4; ++i) high[half][i] = row.high[i], low[half][i] = row.low[i];
  }
};

/// Adds products of high or low factors, two times 8 of each sum. As one multiplication waits for the one before it on
/// the same tile, all tiles take turns.
template <bool kLowA, bool kLowB, int kM, int kN>
PENSTOCK_DEVICE void MultiplyTiles(float (&sum)[kM][kN][4], const SplitRows (&a)[kM], const Split (&b)[kN]) {
#pragma unroll
  for (int first = 0; first < 4; first += 2) {
#pragma unroll
    for (int n = 0; n < kN; ++n) {
#pragma unroll
      for (int m = 0; m < kM; ++m) {
        MultiplyTile(sum[m][n], kLowA ? a[m].low : a[m].high, kLowB ? b[n].low : b[n].high, first);
      }
    }
  }
}

/// Adds the products of 16 factors to tiles of kM x kN sums, which sum_of(m, n) names; small products first.
template <int kM, int kN, class SumOf>
PENSTOCK_DEVICE void MultiplySplit(const SplitRows (&a)[kM], const Split (&b)[kN], const SumOf& sum_of) {
  float part[kM][kN][4] = {};
  MultiplyTiles<true, false>(part, a, b);
  MultiplyTiles<false, true>(part, a, b);
  MultiplyTiles<false, false>(part, a, b);
#pragma unroll
  for (int n = 0; n < kN; ++n) {
#pragma unroll
    for (int m = 0; m < kM; ++m) {
      for (int i = 0; i < 4; ++i) sum_of(m, n)[i] += part[m][n][i];
    }
  }
}
