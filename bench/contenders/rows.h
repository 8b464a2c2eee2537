#pragma once

#include <algorithm>
#include <vector>

#include "bench/suite/problem.h"

namespace penstock::bench {

/// [R, T, C]: the compared rows of a sequence [B, T, C], or [T, B, C] with `time_first`.
inline std::vector<float> compared_rows(const Problem& problem, const std::vector<float>& all, Index channels,
                                        bool time_first = false) {
  const Index B = problem.test.shape.rows, T = problem.test.shape.steps;
  std::vector<float> picked;
  picked.reserve(problem.rows.size() * static_cast<std::size_t>(T * channels));
  for (const Index row : problem.rows) {
    for (Index t = 0; t < T; ++t) {
      const auto first = all.begin() + (time_first ? t * B + row : row * T + t) * channels;
      picked.insert(picked.end(), first, first + channels);
    }
  }
  return picked;
}

/// [T, B, C] from [B, T, C].
inline std::vector<float> time_first(const Shape& shape, const std::vector<float>& batch_first, Index channels) {
  std::vector<float> turned(batch_first.size());
  for (Index b = 0; b < shape.rows; ++b) {
    for (Index t = 0; t < shape.steps; ++t) {
      std::copy_n(batch_first.begin() + (b * shape.steps + t) * channels, channels,
                  turned.begin() + (t * shape.rows + b) * channels);
    }
  }
  return turned;
}

}  // namespace penstock::bench
