// What the tape of a dense cell has besides the sums of its gates. The host and the kernels use it. Freestanding,
// without include guard: each side includes it once, in its own namespace.

#include "plan/kernels/layout.h"

/// Exchanges of means in a step, at most.
inline constexpr int kMostExchanges = 32;

/// Floats of the tape that the means of a row and head take at a step, which follow the states of all units: whole
/// pieces of 16 bytes, so that the states of the next step are as aligned as those before.
PENSTOCK_LAYOUT int TapedFloats(int means) { return (means + 3) / 4 * 4; }
