#pragma once

#include "network/preparation.h"
#include "network/window.h"

namespace penstock::network {

/// Prepares a convolution by a fast Fourier transform, if its filters are, up to rounding, those of a windowed
/// transform: for k from 0, window(n) cos(2 pi k n / N) each, then as many times window(n) sin(2 pi k n / N) or minus
/// that. The result is declared already; `weights` [maps, N]. Returns whether it did. Results differ from those of
/// products by rounding. The C runtime does not have this function.
bool prepare_spectrum(Preparation& p, const Windows& windows, const float* weights);

}  // namespace penstock::network
