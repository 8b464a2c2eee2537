// The values of all units and rows of a thread as one value, for cells that read means over their head: the thread then
// applies the cell to all of them at once, and threads compute means together.
//
// Constants: kValues, units and rows of a thread.

struct Values {
  Real of[kValues];
  Values() = default;
  PENSTOCK_CELL explicit Values(float value) {
#pragma unroll
    for (int i = 0; i < kValues; ++i) of[i] = Real(value);
  }
};

/// function(i) of each.
template <class Function>
PENSTOCK_CELL Values ForValues(const Function& function) {
  Values y;
#pragma unroll
  for (int i = 0; i < kValues; ++i) y.of[i] = function(i);
  return y;
}

// The functions of cells and of custom_functions.cuh, value by value.
#define PENSTOCK_UNARY(Name)                                \
  PENSTOCK_CELL Values Name(Values x) {                     \
    return ForValues([&](int i) { return Name(x.of[i]); }); \
  }
#define PENSTOCK_BINARY(Name)                                        \
  PENSTOCK_CELL Values Name(Values a, Values b) {                    \
    return ForValues([&](int i) { return Name(a.of[i], b.of[i]); }); \
  }
#define PENSTOCK_TERNARY(Name)                                                \
  PENSTOCK_CELL Values Name(Values a, Values b, Values c) {                   \
    return ForValues([&](int i) { return Name(a.of[i], b.of[i], c.of[i]); }); \
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
PENSTOCK_UNARY(InverseRoot)
PENSTOCK_UNARY(Abs)
#undef PENSTOCK_UNARY
#undef PENSTOCK_BINARY
#undef PENSTOCK_TERNARY

/// The learnt vectors of all units of a thread.
PENSTOCK_DEVICE void PutLearnt(const Learnt (&learnt)[kValues], Values (&values)[Learnt::places]) {
#pragma unroll
  for (int k = 0; k < Learnt::count; ++k) {
    values[k] = ForValues([&](int i) { return Real(learnt[i].of[k]); });
  }
}
