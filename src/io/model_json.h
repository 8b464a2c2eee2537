#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "penstock/data_description.h"
#include "penstock/error.h"
#include "penstock/model.h"

/// JSON of model specs and data descriptions, written and read.
namespace penstock::io {

nlohmann::json to_json(const ModelSpec& spec);
nlohmann::json to_json(const DataDescription& data);

/// Read untrusted JSON. `source` names the file in messages. Throw Error(bad_input) that names a field that is missing,
/// of the wrong type, or unknown. check_spec() must check the values.
ModelSpec model_spec_from_json(const nlohmann::json& json, const std::string& source);
DataDescription data_description_from_json(const nlohmann::json& json, const std::string& source);

/// Parses text. Throws Error(bad_input) that names `source` and `what` if it is not a JSON object.
nlohmann::json parse_object(const std::string& text, const std::string& source, const std::string& what);
/// Returns a JSON value as text. Throws Error(bad_input) if a string in it, such as a column name, is not UTF-8.
std::string to_text(const nlohmann::json& json);

/// One of two values to compare, and where it comes from.
struct Place {
  const char* name;
  const nlohmann::json& value;
};
/// Returns a message about the first field in which two values differ: "model.width is 64 in the checkpoint and 128 in
/// this run", with `name` "model". Empty if they are equal.
std::string difference(const std::string& name, const Place& there, const Place& here);

/// Reads the fields of one JSON object, each exactly once. Throws Error(bad_input) that names source and field.
class ObjectReader {
 public:
  /// `name` is the path of the object in messages, such as "model".
  ObjectReader(const nlohmann::json& object, std::string source, std::string name);

  Index integer(const char* field);
  Index integer(const char* field, Index if_missing);
  double number(const char* field);
  /// Reads a field that older files lack; `if_missing` is its value for them.
  bool boolean(const char* field, bool if_missing);
  std::string string(const char* field);
  void read(const char* field, Index& value) { value = integer(field); }
  void read(const char* field, double& value) { value = number(field); }
  void read(const char* field, bool& value) { value = boolean(field, value); }
  /// Reads a name with `parse`, which must throw Error(invalid_argument) "<field> must be ..." for unknown names.
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
  /// Reads a list of `count` numbers; of any number of them if that is below 0.
  std::vector<double> numbers(const char* field, Index count = -1);
  const nlohmann::json& object(const char* field);
  /// Call last. Throws for fields that were not read, which a later version may have added for a reason.
  void finish() const;

  /// Throws Error(bad_input): "<source>: <name>.<field> <problem>".
  [[noreturn]] void refuse(const char* field, const std::string& problem) const;

 private:
  const nlohmann::json& get(const char* field);

  const nlohmann::json& object_;
  std::string source_, name_;
  std::size_t read_ = 0;
};

/// Writes a cell's name as "cell" and, for a cell that a program defined, its equations as "cell_equations".
void add_cell(const std::string& cell, nlohmann::json& object);
/// Reads both. Equations make their cell known to this process.
std::string read_cell(ObjectReader& reader, const nlohmann::json& object, const std::string& source);

}  // namespace penstock::io
