#pragma once

#include <vector>

#include "network/preparation.h"

namespace penstock::network {

/// An axis of a product of two tensors: how far it moves in each and in the result; 0 where a tensor lacks it.
struct Letter {
  Index extent = 1;
  Index a = 0, b = 0, c = 0;
  bool in_a = false, in_b = false, in_c = false;
};

/// Prepares the product of read 0 and read 1 over the letters that the result lacks, times `scale`. `known`: the
/// elements of the latter, or null. The step's bias may be set afterwards.
void contract(Preparation& p, const std::vector<Letter>& letters, const float* known, float scale = 1);

/// Panels of b [inner, columns], whose elements lie so far apart.
void pack_panels(const float* b, Index inner, Index columns, const StridedLoop& by_row, Index panel, float scale,
                 AlignedVector<float>& packed);

}  // namespace penstock::network
