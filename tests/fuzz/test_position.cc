#include "fuzz/damage.h"
#include "penstock/data.h"

namespace penstock::test {
namespace {

TEST(Fuzz, DamagedPosition) {
  feed_damaged({open_task("parity")->position()},
               {"0", "-1", "1.5", "1e300", "18446744073709551615", "18446744073709551616", "[", "]", "{", "}", "null",
                "\"", ",", "\"random\":", "\"numbers\":[1,2]", "\xff"},
               [](const std::string& text, Random&) { return text; });
}

}  // namespace
}  // namespace penstock::test
