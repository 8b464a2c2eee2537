#pragma once

#include <nlohmann/json.hpp>
#include <optional>
#include <string>

#include "penstock/data_description.h"
#include "penstock/error.h"
#include "penstock/model.h"

/// The architecture of a model and the description of its data as JSON, and back.
namespace penstock::io {

nlohmann::json to_json(const ModelSpec& spec);
nlohmann::json to_json(const DataDescription& data);

/// The same from JSON that nobody has vetted; `source` names the file in messages. Throws Error(bad_input) naming a
/// field that is missing, of the wrong type, or unknown. Whether the values make a model is for check_spec() to say.
ModelSpec model_spec_from_json(const nlohmann::json& json, const std::string& source);
DataDescription data_description_from_json(const nlohmann::json& json, const std::string& source);

/// Parses text. Throws Error(bad_input) naming `source` and `what` if it is not a JSON object.
nlohmann::json parse_object(const std::string& text, const std::string& source, const std::string& what);
/// Text of a JSON value. Throws Error(bad_input) if a string in it (a column's name, say) is not UTF-8.
std::string to_text(const nlohmann::json& json);

/// The first field in which two values differ, for a message: "model.width is 64 in the checkpoint and 128 in this run"
/// where `name` is "model" and the places are as named. Empty if they are equal.
struct Place {
  const char* name;
  const nlohmann::json& value;
};
std::string difference(const std::string& name, const Place& there, const Place& here);

/// Reads the fields of one JSON object, each exactly once. Throws Error(bad_input) that names source and field.
class ObjectReader {
 public:
  /// `name` is the path of the object, "model" say.
  ObjectReader(const nlohmann::json& object, std::string source, std::string name);

  Index integer(const char* field);
  Index integer(const char* field, Index if_missing);
  double number(const char* field);
  /// For a field that was not always written: `if_missing` is what files from before it mean.
  bool boolean(const char* field, bool if_missing);
  std::string string(const char* field);
  /// A name that `parse` understands, which throws Error(invalid_argument) "<field> must be ..." otherwise.
  template <typename Parse>
  auto parsed(const char* field, const Parse& parse) {
    const std::string name = string(field);
    try {
      return parse(name);
    } catch (const Error& error) {
      refuse(field, std::string(error.what()).substr(std::string_view(field).size() + 1));
    }
  }
  const nlohmann::json& array(const char* field);
  const nlohmann::json& object(const char* field);
  /// Call last: refuses fields that nobody asked for, which a newer version may have added for a reason.
  void finish() const;

  /// Throws Error(bad_input): "<source>: <name>.<field> <problem>".
  [[noreturn]] void refuse(const char* field, const std::string& problem) const;

 private:
  const nlohmann::json& get(const char* field);

  const nlohmann::json& object_;
  std::string source_, name_;
  std::size_t read_ = 0;
};

}  // namespace penstock::io
