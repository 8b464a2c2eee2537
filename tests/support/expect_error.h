#pragma once

#include <gmock/gmock.h>

#include <string>

#include "penstock/error.h"

namespace penstock::test {

/// Expects that `statement` throws Error of this code, with a message of one line that contains `text`.
template <class Statement>
void expect_error(ErrorCode code, const std::string& text, Statement statement) {
  SCOPED_TRACE("expecting an error that says: " + text);
  try {
    statement();
    ADD_FAILURE() << "nothing was thrown";
  } catch (const Error& error) {
    EXPECT_EQ(static_cast<int>(error.code()), static_cast<int>(code)) << error.what();
    EXPECT_THAT(error.what(), testing::HasSubstr(text));
    EXPECT_THAT(error.what(), testing::Not(testing::HasSubstr("\n")));
    EXPECT_LT(std::string(error.what()).size(), 1000u);
  } catch (const std::exception& other) {
    ADD_FAILURE() << "not an Error: " << other.what();
  }
}

}  // namespace penstock::test
