#include <gtest/gtest.h>

#include <string>

#include "data/text_encoding.h"
#include "support/expect_error.h"

namespace penstock::io {
namespace {

using test::expect_error;

TEST(TextEncoding, Utf8IsToldFromWhatIsNot) {
  for (const char* text : {"", "plain", "K\xc3\xb6ln", "\xe2\x82\xac", "\xf0\x9f\x8e\x88", "\xf4\x8f\xbf\xbf"}) {
    EXPECT_TRUE(is_utf8(text)) << text;
  }
  // A byte of Latin-1, ends within characters, forms that are too long, half characters of UTF-16, beyond Unicode.
  for (const char* text : {"K\xf6ln", "\xc3", "\xe2\x82", "\xf0\x9f\x8e", "\x80", "\xc0\x80", "\xe0\x80\x80",
                           "\xf0\x80\x80\x80", "\xed\xa0\x80", "\xf4\x90\x80\x80", "\xff", "\xe2\x28\xa1"}) {
    EXPECT_FALSE(is_utf8(text)) << text;
  }
}

std::string utf16(std::initializer_list<char16_t> units, bool big) {
  std::string content;
  for (const char16_t unit : units) {
    const char high = static_cast<char>(unit >> 8), low = static_cast<char>(unit & 0xff);
    content += big ? high : low;
    content += big ? low : high;
  }
  return content;
}

TEST(TextEncoding, Utf16InEitherOrderOfBytes) {
  for (const bool big : {false, true}) {
    const std::string content = utf16({0xfeff, 'a', 0xf6, 0x20ac, 0xd83c, 0xdf88, '\n'}, big);
    ASSERT_TRUE(is_utf16(content));
    EXPECT_EQ(utf16_to_utf8(content, "f"), "a\xc3\xb6\xe2\x82\xac\xf0\x9f\x8e\x88\n");
    EXPECT_EQ(as_utf8(content, "f"), utf16_to_utf8(content, "f"));
    EXPECT_EQ(utf16_to_utf8(utf16({0xfeff}, big), "f"), "");
    EXPECT_EQ(whole_utf16(content).size(), content.size());
    EXPECT_EQ(whole_utf16(content.substr(0, 11)), content.substr(0, 8));  // within the balloon
    EXPECT_EQ(whole_utf16(content.substr(0, 10)), content.substr(0, 8));
    EXPECT_EQ(whole_utf16(content.substr(0, 3)), content.substr(0, 2));
    expect_error(ErrorCode::bad_input, "f: text in UTF-16 that ends within a character",
                 [&] { utf16_to_utf8(content.substr(0, 5), "f"); });
    expect_error(ErrorCode::bad_input, "f: text in UTF-16 that ends within a character",
                 [&] { utf16_to_utf8(content.substr(0, 10), "f"); });
    expect_error(ErrorCode::bad_input, "f: damaged text in UTF-16: half a character at byte 5", [&] {
      utf16_to_utf8(utf16({0xfeff, 'a', 0xd83c, 'b'}, big), "f");
    });
    expect_error(ErrorCode::bad_input, "f: damaged text in UTF-16: half a character at byte 3", [&] {
      utf16_to_utf8(utf16({0xfeff, 0xdf88}, big), "f");
    });
  }
  EXPECT_FALSE(is_utf16("a"));
  EXPECT_EQ(as_utf8("K\xc3\xb6ln", "f"), "K\xc3\xb6ln");
}

TEST(TextEncoding, Windows1252) {
  EXPECT_EQ(windows_1252_to_utf8("K\xf6ln, 5 \x80 \x96 \x9f"), "K\xc3\xb6ln, 5 \xe2\x82\xac \xe2\x80\x93 \xc5\xb8");
  std::string all;
  for (int byte = 1; byte < 256; ++byte) all += static_cast<char>(byte);
  EXPECT_TRUE(is_utf8(windows_1252_to_utf8(all)));
}

}  // namespace
}  // namespace penstock::io
