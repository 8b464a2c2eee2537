#pragma once

#include "penstock/types.h"

namespace penstock::plan {

/// Returns whether a vector of `lanes` units holds several whole heads. The engines then take all heads as one.
constexpr bool has_narrow_heads(Index hidden, Index heads, Index lanes) {
  const Index head_size = hidden / heads;
  return heads > 1 && head_size < lanes && lanes % head_size == 0;
}

}  // namespace penstock::plan
