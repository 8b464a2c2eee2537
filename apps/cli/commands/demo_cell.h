#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "penstock/types.h"

namespace penstock::cli {

struct CellDemo {
  std::string cell = "elman";
  Index hidden = 64, steps = 200;
  std::uint64_t seed = 1;
  Execution execution;
  bool json = false;
};

/// Returns numbers in -1 to 1, the same on every machine.
std::vector<double> random_numbers(Index count, std::uint64_t seed);

/// Names of the cells that have a demo.
const std::vector<std::string>& demo_cells();

/// Shows a cell: equations, one step, a sequence, sequential against scan, times, and a picture. Returns the text, or
/// one JSON object. Throws Error(unsupported) without the device.
std::string run_cell_demo(const CellDemo& demo);

}  // namespace penstock::cli
