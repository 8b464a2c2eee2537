#include <zlib.h>

#include "fuzz/damage.h"

namespace penstock::test {
namespace {

std::string compressed(const std::string& text) {
  std::string packed(compressBound(static_cast<uLong>(text.size())) + 64, '\0');
  z_stream stream = {};
  deflateInit2(&stream, Z_BEST_COMPRESSION, Z_DEFLATED, 16 + MAX_WBITS, 8, Z_DEFAULT_STRATEGY);
  stream.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(text.data()));
  stream.avail_in = static_cast<uInt>(text.size());
  stream.next_out = reinterpret_cast<Bytef*>(packed.data());
  stream.avail_out = static_cast<uInt>(packed.size());
  deflate(&stream, Z_FINISH);
  packed.resize(packed.size() - stream.avail_out);
  deflateEnd(&stream);
  return packed;
}

TEST(Fuzz, DamagedGzip) {
  const std::string small = compressed("a,b\n1,2\n3,4\n");
  feed_damaged({small, small + small, compressed(std::string(3 << 20, 'x')), compressed("")},
               {"\x1f\x8b", "\x1f\x8b\x08", "\x1f", std::string_view("\0\0\0\0", 4), "\xff\xff\xff\xff", "\x01"},
               [](const std::string& text, Random&) { return text; });
}

}  // namespace
}  // namespace penstock::test
