// Code of the kernels whose threads have one unit of one row each.

#include "backend/cuda/kernels/dense/cell.cuh"
#include "backend/cuda/kernels/dense/resets.cuh"

constexpr int kGates = Rule::gates, kStates = Rule::states, kSaved = Rule::saved, kBytes = Storage::bytes;
using One = Vector<Storage, 1>;

PENSTOCK_DEVICE float LoadOne(const char* p) { return One::read(p).get(0); }
PENSTOCK_DEVICE void StoreOne(char* p, float value) {
  const float values[1] = {value};
  One::of(values).store(p);
}

PENSTOCK_DEVICE float BiasAt(const float* bias, int gate, int hidden, int channel) {
  return bias != nullptr ? bias[(Index)gate * hidden + channel] : 0.0f;
}
