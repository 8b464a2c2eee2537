#pragma once

#include <string>

#include "penstock/system.h"

namespace penstock::bench {

/// Facts about the machine that a reader needs to judge a number, or to repeat it.
struct Machine {
  SystemInfo system;
  std::string kernel;    ///< "Linux 6.1.0"
  std::string compiler;  ///< That built this program.
  std::string governor;  ///< Governor of the first core's clock; empty if unknown.
  double memory_bytes = 0.0;
  double load = 0.0;  ///< Processes that wanted to run in the last minute, when the benchmark began.
  CudaInfo gpu;       ///< The GPU of runs on device cuda.
  std::string date;   ///< UTC, "2025-01-31 12:00"
};

Machine describe_machine();

}  // namespace penstock::bench
