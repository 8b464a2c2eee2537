#include "fuzz/damage.h"

namespace penstock::test {
namespace {

/// A column of an input: its format and name, 5 rows, no offset, nothing lacking, then values.
std::string column(const std::string& format, const std::string& name, const std::string& values) {
  return format + '\n' + name + '\n' + std::string("\x5\0", 2) + std::string(1, '\1') + values;
}

TEST(Fuzz, DamagedArrowTables) {
  const std::string rows = "\x5";
  std::string numbers(144, '\x3f');
  for (std::size_t i = 0; i < numbers.size(); ++i) numbers[i] = static_cast<char>(numbers[i] + i / 8);
  const std::string offsets("\0\1\1\3\6\x8\x8\x8\x8", 9), words = "onetwo\nlines" + std::string(116, ' ');
  std::string views;
  for (const char size : {'\3', '\x5', '\x14', '\0', '\xc'}) views += std::string(1, size) + std::string("\0\0\1", 3);
  views += std::string(16, '\0');
  const std::string dictionary = "c\nkind\n" + std::string("\x5\0\x21", 3) + std::string(144, '\1');
  feed_damaged({rows + column("g", "level", numbers), rows + column("l", "count", numbers),
                rows + column("b", "on", numbers) + column("f", "x", numbers),
                rows + column("tsn:UTC", "when", numbers), rows + column("tdD", "day", numbers),
                rows + column("d:19,2", "price", numbers), rows + column("u", "word", offsets + words),
                rows + column("U", "word", offsets + words), rows + column("vu", "word", views + words),
                rows + dictionary + column("u", "", offsets + words), rows + column("n", "none", numbers)},
               {"\n", "g", "L", "vu", "tss:", "tdm", "d:5,-3,32", "+s", "\x7f", "\x80", "\xff\xff", "\xc3\xa9",
                "__index_level_0__", std::string_view("\0\0\0\0", 4)},
               [](const std::string& text, Random&) { return text; });
}

}  // namespace
}  // namespace penstock::test
