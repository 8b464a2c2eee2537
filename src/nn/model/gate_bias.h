#pragma once

#include <string_view>

#include "penstock/types.h"

namespace penstock::nn {

/// Adds to a fresh bias [G*H] what lets a cell remember from the first step on, instead of forgetting half its state
/// at every step as a zero bias would have it. A cell without an entry keeps its zeros.
template <class Real>
void add_gate_bias(std::string_view cell, Index hidden_size, Real* bias);

extern template void add_gate_bias<float>(std::string_view, Index, float*);
extern template void add_gate_bias<double>(std::string_view, Index, double*);

}  // namespace penstock::nn
