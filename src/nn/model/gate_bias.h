#pragma once

#include <string_view>

#include "penstock/types.h"

/// Initial biases of gates.
namespace penstock::nn {

/// Adds initial values to a zero bias [G*H] that let a cell remember its state. With a zero bias it would forget half
/// of the state at every step. Cells without an entry keep zeros.
template <class Real>
void add_gate_bias(std::string_view cell, Index hidden_size, Real* bias);

extern template void add_gate_bias<float>(std::string_view, Index, float*);
extern template void add_gate_bias<double>(std::string_view, Index, double*);

}  // namespace penstock::nn
