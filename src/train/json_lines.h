#pragma once

#include <string>
#include <string_view>

#include "penstock/types.h"

namespace penstock::data {

/// By its name, decompressed: ".jsonl" or ".ndjson".
bool is_json_lines(const std::string& path);

/// Turns a file with a JSON object in each line into a CSV whose columns are the keys of all objects, in the order in
/// which they come. Numbers stay as they are written, true and false are words, null and keys that a line lacks are
/// empty fields, and line breaks in texts become blanks. Throws Error(bad_input) with the line of what is no object, or
/// holds an array or another object.
std::string table_of_json_lines(std::string_view content, const std::string& source);

/// Lines of such a table in front of its first row, which is the file's first line.
constexpr Index json_lines_header = 2;

}  // namespace penstock::data
