#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <regex>
#include <string>

#include "backend/cuda/nvrtc.h"

/// What tests ask of kernels that were compiled without a GPU.
namespace penstock::test {

/// The numbers that the assembler reports about a kernel.
struct Report {
  long stack = -1, spills = -1, registers = -1, shared = 0;
};

inline long number_before(const std::string& log, const std::string& words) {
  std::smatch match;
  return std::regex_search(log, match, std::regex("(\\d+) " + words)) ? std::stol(match[1]) : -1;
}

inline Report report_of(const std::string& log) {
  Report report;
  report.stack = number_before(log, "bytes stack frame");
  report.spills = number_before(log, "bytes spill stores") + number_before(log, "bytes spill loads");
  report.registers = number_before(log, "registers");
  report.shared = std::max(0L, number_before(log, "bytes smem"));
  return report;
}

/// Skips what cannot compile, unless PENSTOCK_TEST_NVRTC=required says that it must.
inline void need_nvrtc(int architecture) {
  std::string why;
  if (!cuda::find_nvrtc().valid()) why = "no NVRTC: " + cuda::find_nvrtc().complaint;
  if (why.empty() && !cuda::find_nvrtc().knows(architecture)) {
    why = fmt::format("{} does not know sm_{}", cuda::find_nvrtc().origin, architecture);
  }
  if (why.empty()) return;
  const char* required = std::getenv("PENSTOCK_TEST_NVRTC");
  ASSERT_FALSE(required != nullptr && std::string_view(required) == "required") << why;
  GTEST_SKIP() << why;
}

}  // namespace penstock::test
