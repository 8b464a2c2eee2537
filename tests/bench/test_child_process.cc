#include "bench/suite/child_process.h"

#include <gtest/gtest.h>

#include <string>

#include "penstock/error.h"
#include "support/expect_error.h"

namespace penstock::bench {
namespace {

TEST(ChildProcess, AnswersWithBytes) {
  EXPECT_EQ(bytes_of("bytes "), "");
  EXPECT_EQ(bytes_of("bytes 00ff50"), std::string("\0\xffP", 3));
}

TEST(ChildProcess, AnswersThatHoldNoBytes) {
  const auto refused = [](const std::string& answer, const std::string& why) {
    test::expect_error(ErrorCode::io_failure, why, [&] { bytes_of(answer); });
  };
  refused("no module named matplotlib", "no module named matplotlib");
  refused("bytes 00f", "byte 1 of an answer is no hexadecimal number");
  refused("bytes 00-1", "byte 1 of an answer is no hexadecimal number");
  refused("bytes 0g", "byte 0 of an answer is no hexadecimal number");
}

}  // namespace
}  // namespace penstock::bench
