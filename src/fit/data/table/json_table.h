#pragma once

#include <string>
#include <string_view>

#include "penstock/types.h"

namespace penstock::data {

/// Returns whether a file is a JSON table by its name, decompressed: ".jsonl", ".ndjson" or ".json".
bool is_json_table(const std::string& path);

/// Turns a file with a JSON object in each line, or with one array of objects, into a CSV whose columns are the keys of
/// all objects, in the order in which they come. Numbers stay as they are written, true and false are words, null and
/// keys that an object lacks are empty fields, and line breaks in texts become blanks. Throws Error(bad_input) with the
/// line, or the number in the array, of what is no object, or holds an array or another object. Of a file that is
/// `cut`, an unfinished last object is left out.
std::string table_of_json(std::string_view content, const std::string& source, bool cut = false);

/// Lines of such a table in front of its first row, which is the file's first line.
constexpr Index json_table_header = 2;

}  // namespace penstock::data
