#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "penstock/data/rows.h"
#include "terminal/input.h"

/// Messages about the rows of a table, and the lines of a stream of tokens, for models that do not read bytes.
namespace penstock::cli {

/// Returns the message about the first value that was replaced, with the names of options.
std::string first_replaced(const Rows& rows);

/// Says on standard error how many rows were missing, left out or out of order, values replaced and categories unknown.
/// `first_said`: not of what was found once and said then.
void say_findings(const Rows& rows, bool first_said = false);

/// Says on standard error which series training did not see, if any, and how they are scaled.
void say_new_groups(const std::vector<std::string>& names, const std::string& source, Index scaled_by);

/// "0 1 1 0" as tokens below the vocabulary. Throws Error(bad_input) with the place of anything else.
std::vector<std::int32_t> parse_tokens(const std::string& line, Index vocabulary, const std::string& source,
                                       Index line_number);

}  // namespace penstock::cli
