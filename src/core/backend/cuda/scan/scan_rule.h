#pragma once

#include <array>
#include <string_view>

#include "plan/cell_table.h"

namespace penstock::cuda {

/// Source of the terms a and b of a step of a linear recurrence: a scan cell, or a and b given directly or as
/// logarithms (cells/given.h).
struct ScanRule {
  plan::CellText text;
  int gates = 2;            ///< Values of a step that it reads, each a tensor [B, T, C].
  int read_back = 2;        ///< How many of them, from the first, the gradients depend on.
  bool computed = true;     ///< True if a and b take arithmetic.
  bool logarithms = false;  ///< True if a and b are given as such.
  std::array<std::string_view, 3> names = {"gate 0", "gate 1", "gate 2"};  ///< Names of the values, for messages.
  int learnt = 0;                                                          ///< Learnt vectors [C] that it reads.
};

inline constexpr ScanRule given_terms{{"GivenTerms"}, 2, 1, false, false, {"a", "b", ""}};
inline constexpr ScanRule given_logs{{"GivenLogs"}, 2, 2, true, true, {"log a", "log b", ""}};
inline constexpr ScanRule given_signed_logs{{"GivenSignedLogs"}, 3, 3, true, true, {"log a", "log |b|", "factor"}};

/// Returns the rule of a scan cell by its name, such as "mingru". Throws Error(unsupported) for other cells,
/// invalid_argument for an unknown name.
ScanRule scan_rule(std::string_view cell);

}  // namespace penstock::cuda
