#pragma once

#include <algorithm>
#include <functional>
#include <vector>

#include "penstock/stop.h"

namespace penstock::training {

/// Returns the place where a function of a few numbers is least, as far as so many evaluations show (Nelder and Mead,
/// 1965). Values that differ by less than `tolerance` are equal.
inline std::vector<double> minimise(const std::function<double(const std::vector<double>&)>& function,
                                    const std::vector<double>& begin, double step, int evaluations, double tolerance) {
  struct Corner {
    double value;
    std::vector<double> at;
  };
  const std::size_t n = begin.size();
  std::vector<Corner> corners = {{function(begin), begin}};
  for (std::size_t i = 0; i < n; ++i) {
    std::vector<double> at = begin;
    at[i] += step;
    corners.push_back({function(at), at});
  }
  int used = static_cast<int>(n) + 1;
  while (true) {
    stop_if_asked();
    std::ranges::stable_sort(corners, {}, &Corner::value);
    if (used >= evaluations || !(corners[n].value - corners[0].value > tolerance)) return corners[0].at;
    std::vector<double> middle(n, 0.0);
    for (std::size_t c = 0; c < n; ++c) {
      for (std::size_t i = 0; i < n; ++i) middle[i] += corners[c].at[i] / static_cast<double>(n);
    }
    // On the line through the worst corner (1) and the middle of the others (0).
    const auto on_line = [&](double place) {
      std::vector<double> at(n);
      for (std::size_t i = 0; i < n; ++i) at[i] = middle[i] + place * (corners[n].at[i] - middle[i]);
      ++used;
      const double value = function(at);
      return Corner{value, std::move(at)};
    };
    Corner reflected = on_line(-1.0);
    if (reflected.value < corners[0].value) {
      Corner expanded = on_line(-2.0);
      corners[n] = expanded.value < reflected.value ? std::move(expanded) : std::move(reflected);
      continue;
    }
    if (reflected.value < corners[n - (n > 1 ? 1 : 0)].value) {
      corners[n] = std::move(reflected);
      continue;
    }
    Corner contracted = on_line(reflected.value < corners[n].value ? -0.5 : 0.5);
    if (contracted.value < std::min(reflected.value, corners[n].value)) {
      corners[n] = std::move(contracted);
      continue;
    }
    for (std::size_t c = 1; c <= n; ++c) {
      for (std::size_t i = 0; i < n; ++i) corners[c].at[i] = (corners[c].at[i] + corners[0].at[i]) / 2.0;
      corners[c].value = function(corners[c].at);
      ++used;
    }
  }
}

}  // namespace penstock::training
