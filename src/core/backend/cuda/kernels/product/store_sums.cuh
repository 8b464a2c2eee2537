// Stores the sums of a warpgroup, kGroupColumns columns of 64 rows, to D, kVector columns at a time. Behind
// float_product_arguments.h.

/// A thread's sums, column by column of eight: of row r columns 2t and 2t + 1, then of row r + 8. `kAdd`: to what D
/// holds.
template <bool kAdd>
PENSTOCK_DEVICE void StoreSums(const FloatProductArguments& args, int split, Index row, Index column,
                               const float (&sum)[kSums]) {
  float* const d = args.d + split * args.d_split + row * args.d_stride + column;
  const int columns = (int)min(args.n - column, (Index)kGroupColumns);
#pragma unroll
  for (int n = 0; n < kGroupColumns; n += 8) {
#pragma unroll
    for (int i = 0; i < 2; i += kVector) {
      if (n + i >= columns) break;
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        if (row + 8 * half >= args.m) continue;
        float* to = d + 8 * half * args.d_stride + n + i;
        float value[kVector];
        for (int v = 0; v < kVector; ++v) value[v] = sum[n / 2 + 2 * half + i + v] + (kAdd ? to[v] : 0.0f);
        if constexpr (kVector == 2) {
          *(float2*)to = make_float2(value[0], value[1]);
        } else {
          *to = value[0];
        }
      }
    }
  }
}
