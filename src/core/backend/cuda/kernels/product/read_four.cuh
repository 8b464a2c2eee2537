// Reads of neighbouring floats of a row that may end.

/// The first `exist` of four neighbouring factors of a row, and zeros.
template <int kPiece>
PENSTOCK_DEVICE void ReadFour(const float* from, int exist, float* four) {
  if constexpr (kPiece == 16) {
    const float4 all = exist > 0 ? __ldg((const float4*)from) : make_float4(0.0f, 0.0f, 0.0f, 0.0f);
    four[0] = all.x, four[1] = all.y, four[2] = all.z, four[3] = all.w;
  } else if constexpr (kPiece == 8) {
#pragma unroll
    for (int i = 0; i < 4; i += 2) {
      const float2 two = i < exist ? __ldg((const float2*)(from + i)) : make_float2(0.0f, 0.0f);
      four[i] = two.x, four[i + 1] = two.y;
    }
  } else {
#pragma unroll
    for (int i = 0; i < 4; ++i) four[i] = i < exist ? __ldg(from + i) : 0.0f;
  }
}
