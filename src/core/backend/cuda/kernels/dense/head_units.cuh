// The units of a thread as one value, for cells that read means over their head: the thread then applies the cell to
// all of its units of a row at once, and all threads of the block compute a mean together.
//
// Needs head.cuh. Constants: kMeans.

struct HeadUnits {
  Real of[kUnits];
  HeadUnits() = default;
  PENSTOCK_CELL explicit HeadUnits(float value) {
#pragma unroll
    for (int i = 0; i < kUnits; ++i) of[i] = Real(value);
  }
};

/// function(i) of each unit.
template <class Function>
PENSTOCK_CELL HeadUnits ForUnits(const Function& function) {
  HeadUnits y;
#pragma unroll
  for (int i = 0; i < kUnits; ++i) y.of[i] = function(i);
  return y;
}

// The functions of cells and of custom_functions.cuh, unit by unit.
#define PENSTOCK_UNARY(Name)                               \
  PENSTOCK_CELL HeadUnits Name(HeadUnits x) {              \
    return ForUnits([&](int i) { return Name(x.of[i]); }); \
  }
#define PENSTOCK_BINARY(Name)                                       \
  PENSTOCK_CELL HeadUnits Name(HeadUnits a, HeadUnits b) {          \
    return ForUnits([&](int i) { return Name(a.of[i], b.of[i]); }); \
  }
#define PENSTOCK_TERNARY(Name)                                               \
  PENSTOCK_CELL HeadUnits Name(HeadUnits a, HeadUnits b, HeadUnits c) {      \
    return ForUnits([&](int i) { return Name(a.of[i], b.of[i], c.of[i]); }); \
  }
PENSTOCK_BINARY(operator+)
PENSTOCK_BINARY(operator-)
PENSTOCK_BINARY(operator*)
PENSTOCK_BINARY(Ratio)
PENSTOCK_BINARY(Max)
PENSTOCK_BINARY(Most)
PENSTOCK_BINARY(Least)
PENSTOCK_BINARY(Less)
PENSTOCK_BINARY(LessEqual)
PENSTOCK_BINARY(Equal)
PENSTOCK_TERNARY(MulAdd)
PENSTOCK_TERNARY(SubtractProduct)
PENSTOCK_TERNARY(Clamp)
PENSTOCK_TERNARY(SelectZero)
PENSTOCK_UNARY(Exp)
PENSTOCK_UNARY(Log)
PENSTOCK_UNARY(Tanh)
PENSTOCK_UNARY(Sigmoid)
PENSTOCK_UNARY(Softplus)
PENSTOCK_UNARY(PreciseTanh)
PENSTOCK_UNARY(PreciseSigmoid)
PENSTOCK_UNARY(PreciseSoftplus)
PENSTOCK_UNARY(ErrorFunction)
PENSTOCK_UNARY(Sine)
PENSTOCK_UNARY(Cosine)
PENSTOCK_UNARY(Root)
PENSTOCK_UNARY(Abs)
#undef PENSTOCK_UNARY
#undef PENSTOCK_BINARY
#undef PENSTOCK_TERNARY

/// The mean over the units of the head, for the row of each thread. All threads of the block call this together; sums
/// have a fixed order.
PENSTOCK_DEVICE HeadUnits Mean(HeadUnits x) {
  const Thread at = Thread::here();
  float sum = 0.0f;
#pragma unroll
  for (int i = 0; i < kUnits; ++i) sum += at.exists(i) ? x.of[i].value : 0.0f;
  // Lanes 4 g + t have the same row for all g; with two slots also those of t and t + 2, whose units differ.
  constexpr int columns = kSlots == 2 ? 2 : 4;
  return HeadUnits(SumOfColumn<kWarps, columns>(sum) * (1.0f / kHead));
}

/// The learnt vectors of all units of a thread.
PENSTOCK_DEVICE void PutLearnt(const Learnt (&learnt)[kUnits], HeadUnits (&values)[Learnt::places]) {
#pragma unroll
  for (int k = 0; k < Learnt::count; ++k) {
    values[k] = ForUnits([&](int i) { return Real(learnt[i].of[k]); });
  }
}
