#pragma once

#include <gtest/gtest.h>
#include <sys/resource.h>
#include <unistd.h>

#include <cstddef>
#include <fstream>

namespace penstock::test {

/// Limits this process to so many more bytes of addresses while it lives. Start threads before: their stacks count. Not
/// under AddressSanitizer, which ends a program whose allocation fails.
class LimitedMemory {
 public:
  explicit LimitedMemory(std::size_t more) {
    EXPECT_EQ(getrlimit(RLIMIT_AS, &before_), 0);
    std::size_t pages = 0;
    std::ifstream("/proc/self/statm") >> pages;
    EXPECT_GT(pages, 0u);
    rlimit limit = before_;
    limit.rlim_cur = pages * static_cast<std::size_t>(sysconf(_SC_PAGESIZE)) + more;
    EXPECT_EQ(setrlimit(RLIMIT_AS, &limit), 0);
  }
  ~LimitedMemory() { setrlimit(RLIMIT_AS, &before_); }
  LimitedMemory(const LimitedMemory&) = delete;
  LimitedMemory& operator=(const LimitedMemory&) = delete;

 private:
  rlimit before_{};
};

}  // namespace penstock::test
