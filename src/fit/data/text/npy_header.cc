#include "data/text/npy_header.h"

#include <regex>
#include <string>

#include "base/check.h"
#include "base/quote.h"

namespace penstock::data {
namespace {

using namespace std::string_view_literals;

constexpr std::size_t version_at = 6, length_at = 8;
constexpr std::size_t longest_npy_header = 256;  // of such a header, without blanks at its end

}  // namespace

bool is_npy(std::string_view beginning) { return beginning.starts_with("\x93NUMPY"sv); }

NpyHeader read_npy_header(std::string_view beginning, const std::string& path) {
  const auto byte = [&](std::size_t i) { return i < beginning.size() ? static_cast<unsigned char>(beginning[i]) : 0U; };
  const std::size_t length_bytes = byte(version_at) == 1 ? 2 : 4, begin = length_at + length_bytes;
  std::size_t length = 0;
  for (std::size_t i = length_bytes; i-- > 0;) length = length << 8 | byte(length_at + i);
  if (begin + length > beginning.size()) {
    fail(ErrorCode::bad_input, "{}: the header of the NumPy array is damaged", path);
  }
  std::string header(beginning.substr(begin, length));
  header.resize(header.find_last_not_of(" \n") + 1);
  static const std::regex list(
      R"(\{'descr': '[<|](u1|u2|u4|u8|i4|i8)', 'fortran_order': \w+, 'shape': \((\d{1,15}),\), *\})");
  std::smatch found;
  if (header.size() > longest_npy_header || !std::regex_match(header, found, list)) {
    fail(ErrorCode::bad_input,
         "{}: token ids have to be a list of whole numbers, and the array has the header {}: "
         "numpy.save('ids.npy', array.ravel().astype('uint16'))",
         path, in_quotes(header));
  }
  return {.width = found.str(1)[1] - '0', .count = std::stoll(found.str(2)), .bytes = begin + length};
}

}  // namespace penstock::data
