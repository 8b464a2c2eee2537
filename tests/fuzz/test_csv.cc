#include "fuzz/damage.h"

namespace penstock::test {
namespace {

TEST(Fuzz, DamagedCsv) {
  feed_damaged(
      {"x,y\n1,2\n3,4\n-5.5,6e-3\n", "\xef\xbb\xbfy;note\r\n\"a, b\",\"say \"\"hi\"\"\"\r\n",
       "time, y ,\"x\"\r\n2020-01-01, 1 ,\"2\"\r\n\"two\nlines\",3,+4\r\n\r\n", "x\r1\r2\r"},
      {",",      ",,", "\"", "\"\"", "\n", "\r", "\r\n", "\n\n",         " ",    "\t",    "nan",  "inf", "1e999",
       "1e-999", "-",  "+",  ".",    "NA", "x",  "y",    "\xef\xbb\xbf", "\xff", "1e300", "0x1p3"},
      [](const std::string& text, Random&) { return text; });
}

}  // namespace
}  // namespace penstock::test
