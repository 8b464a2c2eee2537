#include "io/status_error.h"

#include "base/check.h"

namespace penstock::io {

namespace {

/// A message that may contain names from a file: one line of valid UTF-8, of bounded length.
std::string one_line(const std::string& text) {
  constexpr std::size_t most = 600;
  std::string escaped = fmt::format("{:?}", text.substr(0, most));
  return escaped.substr(1, escaped.size() - 2) + (text.size() > most ? "..." : "");
}

}  // namespace

void require_ok(const network::Status& status, const std::string& place) {
  using Code = network::Status::Code;
  if (status.ok()) return;
  const std::string text = one_line(status.text);
  switch (status.code) {
    case Code::ok:
      return;
    case Code::invalid_argument:
      fail(ErrorCode::invalid_argument, "{}{}", place, text);
    case Code::bad_input:
      fail(ErrorCode::bad_input, "{}{}", place, text);
    case Code::incompatible:
      fail(ErrorCode::incompatible, "{}{}", place, text);
    case Code::unsupported:
      fail(ErrorCode::unsupported, "{}{}", place, text);
    case Code::out_of_memory:
      break;
  }
  fail(ErrorCode::out_of_memory, "{}{}", place, text);
}

}  // namespace penstock::io
