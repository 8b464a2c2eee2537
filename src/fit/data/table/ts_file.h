#pragma once

#include <string>
#include <string_view>

namespace penstock::data {

/// Turns a .ts file of the UCR and UEA archive (a header of @ lines, then a line a series, with its dimensions between
/// colons and its class behind the last one) into a CSV of the columns `sequence`, `label` and `dim0`, `dim1`, ...
/// Missing values, "?", stay as they are. Throws Error(bad_input) with the place of what cannot be read: series with
/// time stamps, without classes, or whose dimensions differ in length or number.
std::string table_of_ts(std::string_view content, const std::string& source);

}  // namespace penstock::data
