#include "runtime/failure.h"

#include <algorithm>
#include <cstdarg>
#include <cstdio>

namespace penstock::runtime {

bool Failure::set(penstock_status status, const char* format, ...) {
  error_.status = status;
  va_list arguments;
  va_start(arguments, format);
  std::vsnprintf(error_.text, sizeof(error_.text), format, arguments);
  va_end(arguments);
  return false;
}

bool Failure::in_file(penstock_status status, const char* format, ...) {
  error_.status = status;
  const int prefix = std::snprintf(error_.text, sizeof(error_.text) / 2, "%s: ", source_);
  const auto used =
      std::min<std::size_t>(prefix > 0 ? static_cast<std::size_t>(prefix) : 0, sizeof(error_.text) / 2 - 1);
  va_list arguments;
  va_start(arguments, format);
  std::vsnprintf(error_.text + used, sizeof(error_.text) - used, format, arguments);
  va_end(arguments);
  return false;
}

bool Failure::in_json(const JsonReader& json) {
  return error_.status == PENSTOCK_OK && in_file(PENSTOCK_BAD_INPUT, "%s", json.problem().c_str());
}

penstock_status Failure::report(penstock_error* error) const {
  if (error != nullptr && error_.status != PENSTOCK_OK) *error = error_;
  return error_.status;
}

}  // namespace penstock::runtime
