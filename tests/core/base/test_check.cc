#include "base/check.h"

#include <gtest/gtest.h>

#include <string>

namespace penstock {
namespace {

/// Returns the error that a call throws.
Error thrown(const auto& call) {
  try {
    call();
  } catch (const Error& error) {
    return error;
  }
  ADD_FAILURE() << "nothing was thrown";
  return {ErrorCode::interrupted, ""};
}

std::string in_options(const std::string& setting, const std::string& value) {
  if (setting == "unknown") return "";
  return "--" + setting + (value.empty() ? "" : " " + value);
}

TEST(Check, ArgumentOutOfRangeIsDataAndASentence) {
  require_argument(true, "heads", 3, "1 to {}", 2);
  const Error error = thrown([] { require_argument(false, "heads", 3, "1 to {}", 2); });
  EXPECT_EQ(error.code(), ErrorCode::invalid_argument);
  EXPECT_EQ(error.fields().argument, "heads");
  EXPECT_EQ(error.fields().value, "3");
  EXPECT_EQ(error.fields().allowed, "1 to 2");
  EXPECT_TRUE(error.fields().remedy.empty());
  EXPECT_STREQ(error.what(), "heads must be 1 to 2, not 3");
  EXPECT_EQ(error.message().text(in_options), "--heads must be 1 to 2, not 3");
}

TEST(Check, TextsAsValuesAreQuoted) {
  const Error error = thrown([] { require_argument(false, "cell", std::string("a\nb"), "one of gru, lstm"); });
  EXPECT_STREQ(error.what(), "cell must be one of gru, lstm, not \"a\\nb\"");
}

TEST(Check, RemedyMentionsSettingsInTheWordsOfTheCaller) {
  const Error error = thrown([] {
    fail_with(ErrorCode::bad_input, {the_option("missing", "mask"), " or ", the_option("unknown")},
              "t.csv:3: no value");
  });
  EXPECT_EQ(error.fields().argument, "");
  EXPECT_STREQ(error.what(), "t.csv:3: no value; the option 'missing=mask' or the option 'unknown'");
  EXPECT_EQ(error.message().text(in_options), "t.csv:3: no value; --missing mask or the option 'unknown'");
  EXPECT_EQ(error.fields().remedy.text(in_options), "--missing mask or the option 'unknown'");
}

TEST(Check, TextThatLooksLikeAMentionIsLeftAlone) {
  const Error error = thrown([] { fail(ErrorCode::bad_input, "column {}", "the option 'missing'"); });
  EXPECT_EQ(error.message().text(in_options), "column the option 'missing'");
}

TEST(Check, PlaceInFrontKeepsTheFields) {
  const Error error = thrown([] { require_about(false, "undated", ": {} has no dates", "t.csv"); }).within("step 3: ");
  EXPECT_STREQ(error.what(), "step 3: undated: t.csv has no dates");
  EXPECT_EQ(error.fields().argument, "undated");
  EXPECT_EQ(error.message().text(in_options), "step 3: --undated: t.csv has no dates");
}

}  // namespace
}  // namespace penstock
