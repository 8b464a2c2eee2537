// Positions sorted by token, equal tokens in the order of positions: a radix sort of kBits a pass. Padding, and tokens
// outside of the vocabulary, count as a token after the last.
//
// Constants: kFirst (of the passes: from the tokens themselves), kBits, kThreads (of a block, and positions of a
// chunk).

#include "backend/cuda/kernels/pointwise/values.cuh"

#include "backend/cuda/kernels/pointwise/arguments.cuh"

constexpr int kBins = 1 << kBits;

/// Returns the item at an index.
PENSTOCK_DEVICE TokenPosition ItemAt(const SortArguments& args, Index at) {
  if constexpr (!kFirst) {
    return args.from[at];
  } else {
    int token = args.vocabulary;
    if (PlaceOf(at, args.steps, args.lengths).exists()) token = args.tokens[at];
    if (token < 0 || token > args.vocabulary) token = args.vocabulary;
    return {token, (int)at};
  }
}

PENSTOCK_DEVICE int DigitOf(const SortArguments& args, int token) { return (token >> args.shift) & (kBins - 1); }
