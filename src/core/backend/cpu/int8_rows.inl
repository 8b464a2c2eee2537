// Products with rows of int8 as a file has them, without panels. Operands are those of panels (dense/panel_int8.inl),
// and so are the bits. Include behind dense/panel_int8.inl.

/// Sum of `count` products.
HWY_INLINE std::int32_t RowSum(const std::int8_t* w, const std::int8_t* x, Index count) {
  std::int32_t total = 0;
  Index k = 0;
#if HWY_TARGET != HWY_SCALAR
  const hn::Repartition<std::int16_t, Simd::Tag> d;
  const hn::Rebind<std::int8_t, decltype(d)> bytes;
  const hn::RebindToSigned<Simd::Tag> di;
  constexpr Index lanes = 2 * Simd::lanes;
  Sums32 sum = hn::Zero(di), rest = hn::Zero(di);
  for (; k + lanes <= count; k += lanes) {
    const auto weights = hn::PromoteTo(d, hn::LoadU(bytes, w + k)), inputs = hn::PromoteTo(d, hn::LoadU(bytes, x + k));
    sum = hn::ReorderWidenMulAccumulate(di, weights, inputs, sum, rest);
  }
  total = hn::GetLane(hn::SumOfLanes(di, hn::Add(sum, rest)));
#endif
  for (; k < count; ++k) total += w[k] * x[k];
  return total;
}

/// y [rows] = bias + matrix [rows, columns] times an operand of RoundRow(). `bias` may be null.
HWY_INLINE void Int8RowsTimesOperand(const Int8Matrix& matrix, Index rows, Index columns, const std::int8_t* operand,
                                     const float* bias, float* y) {
  const hn::RebindToSigned<Simd::Tag> di;
  RowScale tail = LoadRowScale(operand, columns);
  tail.correction = 0;  // rows have no offset
  for (Index r = 0; r < rows; r += Simd::lanes) {
    const Index count = std::min<Index>(Simd::lanes, rows - r);
    std::int32_t sums[Simd::lanes] = {};
    float scales[Simd::lanes] = {};
    for (Index i = 0; i < count; ++i) sums[i] = RowSum(matrix.values + (r + i) * columns, operand, columns);
    std::copy_n(matrix.scales + r, count, scales);
    const Simd from = bias == nullptr ? Simd(0) : Lanes<float>::load(bias + r, count);
    Lanes<float>::store(AddScaled(from, hn::LoadU(di, sums), tail, scales), y + r, count);
  }
}
