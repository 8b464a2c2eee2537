#pragma once

#include <gtest/gtest.h>

#include <functional>

#include "support/counted_calls.h"

namespace penstock::test {

/// Expects that `work` returns true, without allocations, releases and locks. With sanitizers, whose own calls those
/// are, they do not count.
inline void expect_no_calls(const std::function<bool()>& work) {
#ifdef PENSTOCK_COUNTS_CALLS
  const long before = counted_calls;
  const bool fine = work();
  EXPECT_EQ(counted_calls, before) << "allocations, releases and locks";
  EXPECT_TRUE(fine);
#else
  EXPECT_TRUE(work());
#endif
}

/// Expects, in addition, that `work` makes no system call: runs it in a process that ends at the first, then here.
inline void expect_real_time(const std::function<bool()>& work) {
#ifdef PENSTOCK_COUNTS_CALLS
  const int status = status_without_calls(work);
  EXPECT_EQ(status, 0) << (WIFSIGNALED(status) ? "a system call" : "a wrong answer");
#endif
  expect_no_calls(work);
}

}  // namespace penstock::test
