#include "fuzz/damage.h"

namespace penstock::test {
namespace {

TEST(Fuzz, DamagedCsp) {
  feed_damaged({"# a plan\nlet H = 768\nwarps in {1, 2, 4..8}; tile in divisors(H)\n"
                "shared memory fits: tile * H * 2 <= 99 * 1024\n\"2 x 2\": tile % (warps * 8) == 0\n"
                "warps == 1 -> tile <= 48 and not tile == 16\nminimise ceil_div(H, tile) * 10 + warps",
                "a in -9..9 step 2; b in powers_of_two(1..64)\na + b == 3 or a * b != min(a, b, 4) - max(a, 1)\n"
                "all_different(a, b); 1 <= b < 9; a not in {3, 5}\nmaximise if(a > 0, a / 2, -b % 3)",
                "x in 1..4611686018427387903; y in 1..9; x / y >= 12345; x % y == 7"},
               {"0",
                "-1",
                "4611686018427387903",
                "9223372036854775808",
                "(",
                ")",
                "((((",
                "{",
                "}",
                ";",
                "\n",
                ":",
                "..",
                "->",
                "==",
                "=",
                "!",
                "not ",
                " and ",
                " or ",
                " in ",
                "in 0..1",
                "let ",
                "min(",
                "if(",
                "a",
                "x * x",
                "/ 0",
                "% x",
                "\"",
                "#",
                ",",
                "\xff",
                "1000000",
                "minimise "},
               [](const std::string& text, Random&) { return text; });
}

}  // namespace
}  // namespace penstock::test
