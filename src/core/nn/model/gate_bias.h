#pragma once

#include <string_view>

#include "penstock/types.h"

/// Initial biases of gates.
namespace penstock::nn {

/// Sets the learnt vectors [K*H] of a custom cell, which stand behind the gates of its bias, to their initial values.
template <class Real>
void set_learnt_vectors(std::string_view cell, Index hidden_size, Real* bias);

/// Adds initial values to a zero bias [G*H] that let a cell remember its state. With a zero bias it would forget half
/// of the state at every step. Cells without an entry keep zeros. Sets learnt vectors too.
template <class Real>
void add_gate_bias(std::string_view cell, Index hidden_size, Real* bias);

extern template void set_learnt_vectors<float>(std::string_view, Index, float*);
extern template void set_learnt_vectors<double>(std::string_view, Index, double*);
extern template void add_gate_bias<float>(std::string_view, Index, float*);
extern template void add_gate_bias<double>(std::string_view, Index, double*);

}  // namespace penstock::nn
