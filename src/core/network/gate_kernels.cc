// The gates of dense cells for every instruction set, from sums that are there.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "network/gate_kernels.cc"

#include "network/kernels.h"

#include "backend/cpu/every_target.inl"

#include <hwy/contrib/math/math-inl.h>

HWY_BEFORE_NAMESPACE();
namespace penstock::network::HWY_NAMESPACE {
namespace {

#include "backend/cpu/target.inl"

template <class Cell>
void RunGates(Index hidden, const float* wx, const float* rh, float* const* state, float* y) {
  using V = Simd;
  using L = Lanes<float>;
  for (Index unit = 0; unit < hidden; unit += V::lanes) {
    const Index count = std::min<Index>(V::lanes, hidden - unit);
    V of_x[Cell::gates], of_h[Cell::gates], before[Cell::states], after[Cell::states], saved[Cell::saved];
    for (int g = 0; g < Cell::gates; ++g) {
      of_x[g] = L::load(wx + g * hidden + unit, count);
      of_h[g] = L::load(rh + g * hidden + unit, count);
    }
    for (int k = 0; k < Cell::states; ++k) before[k] = L::load(state[k] + unit, count);
    Cell::forward(of_x, of_h, before, after, saved);
    L::store(after[0], y + unit, count);
    for (int k = 0; k < Cell::states; ++k) L::store(after[k], state[k] + unit, count);
  }
}

template <class Cell>
void TakeIf(std::string_view name, Kernels::Gates& gates) {
  if constexpr (Cell::phases == 1) {
    if (name == Cell::name) gates = &RunGates<Cell>;
  }
}

Kernels::Gates GatesOf(std::string_view name) {
  Kernels::Gates gates = nullptr;
#define PENSTOCK_CALL(Cell) TakeIf<Cell>(name, gates);
  PENSTOCK_DENSE_CELLS(PENSTOCK_CALL)
#undef PENSTOCK_CALL
  return gates;
}

}  // namespace

void FillGateKernels(Kernels& kernels) { kernels.gates = &GatesOf; }

}  // namespace penstock::network::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace penstock::network {

HWY_EXPORT(FillGateKernels);

void FillGates(Kernels& kernels) { HWY_DYNAMIC_DISPATCH(FillGateKernels)(kernels); }

}  // namespace penstock::network
#endif  // HWY_ONCE
