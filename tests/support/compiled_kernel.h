#pragma once

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <regex>

#include "backend/cuda/driver/kernel.h"

/// Checks of kernels without a GPU: they compile, and their resources are those that the assembler reports.
namespace penstock::test {

using cuda::compile_kernel;
using cuda::Compiled;
using cuda::find_nvrtc;
using cuda::KernelSource;

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

/// Returns the planner's data of a chip of each generation.
inline plan::GpuModel chip(int architecture) {
  const bool small = architecture == 86 || architecture == 89 || architecture == 120;  // not of a data centre
  const Index shared = (small ? 100 : architecture == 80 ? 164 : 228) << 10;
  return {.name = fmt::format("a chip of sm_{}", architecture),
          .compute_major = architecture / 10,
          .compute_minor = architecture % 10,
          .multiprocessors = small                ? 84
                             : architecture == 80 ? 108
                                                  : 132,
          .threads = small ? 1536 : 2048,
          .registers = 65536,
          .shared_bytes = shared,
          .block_bytes = shared - 1024};
}

/// Skips what cannot compile, unless PENSTOCK_TEST_NVRTC=required says that it must.
inline void need_nvrtc(int architecture) {
  std::string why;
  if (!find_nvrtc().valid()) why = "no NVRTC: " + find_nvrtc().complaint;
  if (why.empty() && !find_nvrtc().knows(architecture)) {
    why = fmt::format("{} does not know sm_{}", find_nvrtc().origin, architecture);
  }
  if (why.empty()) return;
  const char* required = std::getenv("PENSTOCK_TEST_NVRTC");
  ASSERT_FALSE(required != nullptr && std::string_view(required) == "required") << why;
  GTEST_SKIP() << why;
}

/// The generations of chips that kernels are compiled for.
constexpr int kChips[] = {80, 86, 89, 90, 100, 120};

/// Returns whether every kernel is compiled for every chip, which takes half an hour. Otherwise chips besides sm_90
/// have a sample, and so have cells whose text is a part of another's.
inline bool compiles_all() {
  const char* which = std::getenv("PENSTOCK_TEST_KERNELS");
  return which != nullptr && std::string_view(which) == "all";
}

/// Skips what is no part of the sample, unless every kernel is compiled.
inline void need_sample(bool sampled) {
  if (!sampled && !compiles_all()) GTEST_SKIP() << "PENSTOCK_TEST_KERNELS=all compiles it";
}

/// Compiles without spills and warnings.
inline Report expect_no_spills(const KernelSource& source, int architecture, int threads) {
  const Compiled compiled = compile_kernel(source, architecture);
  const Report report = report_of(compiled.log);
  SCOPED_TRACE(source.plan + "\n" + compiled.log);
  EXPECT_EQ(report.stack, 0);
  EXPECT_EQ(report.spills, 0);
  EXPECT_LE(report.registers * threads, 65536);
  EXPECT_THAT(compiled.log, testing::Not(testing::HasSubstr("warning")));
  EXPECT_THAT(compiled.log, testing::Not(testing::HasSubstr("Potential Performance Loss")));
  return report;
}

/// The same, with `shared` bytes of shared memory beside what the launch gives.
inline void expect_sound(const KernelSource& source, int architecture, int threads, int shared = 0) {
  EXPECT_EQ(expect_no_spills(source, architecture, threads).shared, shared) << source.plan;
}

}  // namespace penstock::test
