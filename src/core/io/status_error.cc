#include "io/status_error.h"

#include "base/check.h"

namespace penstock::io {

void require_ok(const network::Status& status, const std::string& place) {
  using Code = network::Status::Code;
  switch (status.code) {
    case Code::ok:
      return;
    case Code::invalid_argument:
      fail(ErrorCode::invalid_argument, "{}{}", place, status.text);
    case Code::bad_input:
      fail(ErrorCode::bad_input, "{}{}", place, status.text);
    case Code::unsupported:
      fail(ErrorCode::unsupported, "{}{}", place, status.text);
    case Code::out_of_memory:
      break;
  }
  fail(ErrorCode::out_of_memory, "{}{}", place, status.text);
}

}  // namespace penstock::io
