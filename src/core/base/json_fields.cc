#include "base/json_fields.h"

#include "base/check.h"
#include "base/plural.h"
#include "base/quote.h"

namespace penstock {

using nlohmann::json;

std::string brief(const json& value) {
  constexpr std::size_t limit = 60;
  const std::string text = value.dump(-1, ' ', true, json::error_handler_t::replace);
  return text.size() > limit ? text.substr(0, limit) + "..." : text;
}

FieldReader::FieldReader(const json& object, std::string source, std::string name)
    : object_(object), source_(std::move(source)), name_(std::move(name)) {
  if (!object_.is_object())
    fail(ErrorCode::bad_input, "{}: {} must be an object, not {}", source_, name_, brief(object_));
}

void FieldReader::refuse(const std::string& field, const std::string& problem) const {
  fail(ErrorCode::bad_input, "{}: {}.{} {}", source_, name_, field, problem);
}

const json& FieldReader::get(const char* field, bool (json::*is)() const noexcept, const char* what) {
  const auto found = object_.find(field);
  if (found == object_.end()) refuse(field, "is missing");
  if (!((*found).*is)()) refuse(field, fmt::format("must be {}, not {}", what, brief(*found)));
  ++read_;
  return *found;
}

Index FieldReader::integer(const char* field) {
  const json& value = get(field, &json::is_number_integer, "an integer");
  const bool too_large = value.is_number_unsigned() && value.get<std::uint64_t>() > std::numeric_limits<Index>::max();
  if (too_large) refuse(field, "must be an integer, not " + brief(value));
  return value.get<Index>();
}

Index FieldReader::integer(const char* field, Index least, Index most) {
  const Index value = integer(field);
  if (value < least || value > most) refuse(field, fmt::format("must be {} to {}, not {}", least, most, value));
  return value;
}

void FieldReader::field(const char* name, char& value) {
  const std::string text = string(name);
  if (text.size() != 1) refuse(name, "must be one character, not " + in_quotes(text));
  value = text[0];
}

void FieldReader::finish() const {
  if (read_ != object_.size()) {
    fail(ErrorCode::bad_input, "{}: {} has {}, of which this version knows {}", source_, name_,
         counted(object_.size(), "field"), read_);
  }
}

}  // namespace penstock
