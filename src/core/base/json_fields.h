#pragma once

#include <fmt/format.h>

#include <cmath>
#include <cstdint>
#include <functional>
#include <limits>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/quote.h"
#include "penstock/error.h"
#include "penstock/types.h"

/// Fields of JSON objects: one description of a struct, as a function of a FieldReader or a FieldWriter, reads and
/// writes it.
namespace penstock {

/// Returns a value as JSON of at most 60 characters, for messages.
std::string brief(const nlohmann::json& value);

/// Reads the fields of one untrusted JSON object, each exactly once. Throws Error(bad_input) that names source and
/// field.
class FieldReader {
 public:
  using Json = nlohmann::json;

  /// `name` is the path of the object in messages, such as "model".
  FieldReader(const Json& object, std::string source, std::string name);

  /// Returns whether the object has a field. (A FieldWriter: whether it is to be written.)
  bool has(const char* field, bool /*written*/ = true) const { return object_.contains(field); }

  Index integer(const char* field);
  Index integer(const char* field, Index least, Index most);
  double number(const char* field) { return get(field, &Json::is_number, "a number").get<double>(); }
  bool boolean(const char* field) { return get(field, &Json::is_boolean, "true or false").get<bool>(); }
  std::string string(const char* field) { return get(field, &Json::is_string, "a string").get<std::string>(); }
  const Json& array(const char* field) { return get(field, &Json::is_array, "an array"); }
  const Json& object(const char* field) { return get(field, &Json::is_object, "an object"); }
  /// Reads a name with `parse`, which must call fail_choice() for unknown names.
  template <class Parse>
  auto parsed(const char* field, const Parse& parse) {
    const std::string name = string(field);
    try {
      return parse(name);
    } catch (const Error& error) {
      refuse(field, fmt::format("must be {}, not {}", error.fields().allowed, in_quotes(name)));
    }
  }

  void field(const char* name, Index& value) { value = integer(name); }
  void field(const char* name, double& value) { value = number(name); }
  void field(const char* name, std::string& value) { value = string(name); }
  void field(const char* name, bool& value) { value = boolean(name); }
  void field(const char* name, char& value);
  void field(const char* name, std::vector<std::string>& values) { list(name, "strings", values, &Json::is_string); }
  void field(const char* name, std::vector<double>& values) { list(name, "numbers", values, &Json::is_number); }
  void field(const char* name, std::vector<float>& values) {
    constexpr double most = std::numeric_limits<float>::max();
    list(name, "floats", values,
         [](const Json& item) { return item.is_number() && std::abs(item.get<double>()) <= most; });
  }
  void field(const char* name, std::vector<std::uint8_t>& values) {
    list(name, "0 and 1", values,
         [](const Json& item) { return item.is_number_integer() && item.get<std::uint64_t>() <= 1; });
  }
  /// Reads a list of `items`, a noun; fits(json) returns whether a value is one.
  template <class T>
  void list(const char* name, const char* items, std::vector<T>& values, const auto& fits) {
    values.clear();
    for (const Json& item : array(name)) {
      if (!std::invoke(fits, item)) refuse(name, fmt::format("must hold {}, not {}", items, brief(item)));
      values.push_back(item.get<T>());
    }
  }
  void count(const char* name, Index& value, Index most) { value = integer(name, 0, most); }
  /// Reads a name with `parse`, as parsed() does.
  template <class Enum, class Parse>
  void named(const char* name, Enum& value, const Parse& parse) {
    value = parsed(name, parse);
  }
  /// Reads an object, or a list of objects, whose fields `fields` describes.
  template <class T, class Fields>
  void object(const char* name, T& value, const Fields& fields) {
    read(object(name), name_ + "." + name, value, fields);
  }
  template <class T, class Fields>
  void objects(const char* name, std::vector<T>& values, const Fields& fields) {
    values.clear();
    for (const Json& item : array(name)) {
      const std::string place = fmt::format("{}.{}[{}]", name_, name, values.size());
      read(item, place, values.emplace_back(), fields);
    }
  }
  /// Reads a field that some files lack; the value then stays as it is.
  void optional(const char* name, auto& value, bool /*written*/ = true) {
    if (has(name)) field(name, value);
  }
  template <class T>
  void optional(const char* name, std::optional<T>& value) {
    if (has(name)) field(name, value.emplace());
  }

  /// Call last. Throws for fields that were not read, which a later version may have added for a reason.
  void finish() const;

  /// Throws Error(bad_input): "<source>: <name>.<field> <problem>".
  [[noreturn]] void refuse(const std::string& field, const std::string& problem) const;

 private:
  const Json& get(const char* field, bool (Json::*is)() const noexcept, const char* what);
  template <class T, class Fields>
  void read(const Json& object, const std::string& name, T& value, const Fields& fields) const {
    FieldReader reader(object, source_, name);
    fields(reader, value);
    reader.finish();
  }

  const Json& object_;
  std::string source_, name_;
  std::size_t read_ = 0;
};

/// Writes the fields that a FieldReader reads.
class FieldWriter {
 public:
  bool has(const char* /*field*/, bool is_written = true) const { return is_written; }
  void field(const char* name, const auto& value) { object_[name] = value; }
  void field(const char* name, char value) { object_[name] = std::string(1, value); }
  void count(const char* name, Index value, Index /*most*/) { field(name, value); }
  void list(const char* name, const char* /*items*/, const auto& values, const auto& /*fits*/) { field(name, values); }
  void named(const char* name, const auto& value, const auto& /*parse*/) { object_[name] = to_string(value); }
  void object(const char* name, const auto& value, const auto& fields) { object_[name] = written(value, fields); }
  void objects(const char* name, const auto& values, const auto& fields) {
    object_[name] = nlohmann::json::array();
    for (const auto& value : values) object_[name].push_back(written(value, fields));
  }
  void optional(const char* name, const auto& value, bool is_written = true) {
    if (is_written) field(name, value);
  }
  template <class T>
  void optional(const char* name, const std::optional<T>& value) {
    if (value) field(name, *value);
  }

  /// Returns the object with all fields so far.
  const nlohmann::json& written() const { return object_; }
  /// Returns a struct as an object.
  static nlohmann::json written(const auto& value, const auto& fields) {
    FieldWriter writer;
    fields(writer, value);
    return std::move(writer.object_);
  }

 private:
  nlohmann::json object_ = nlohmann::json::object();
};

}  // namespace penstock
