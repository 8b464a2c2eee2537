#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "base/json_fields.h"
#include "penstock/data_description.h"
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

/// Writes a cell's name as "cell" and, for a cell that a program defined, its equations as "cell_equations".
void add_cell(const std::string& cell, nlohmann::json& object);
/// Reads both. Equations make their cell known to this process.
std::string read_cell(FieldReader& reader, const nlohmann::json& object, const std::string& source);

}  // namespace penstock::io
