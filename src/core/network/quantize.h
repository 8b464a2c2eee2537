#pragma once

#include "network/kernels.h"

namespace penstock::network {

/// y [n] = x as eight bits, with the scale and zero point that all of them together have, and back.
void round_to_bytes(const Kernels& kernels, Index n, const float* x, float* y);

}  // namespace penstock::network
