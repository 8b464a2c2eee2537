#pragma once

#include <span>
#include <string>

#include "penstock/data.h"

/// How values and rows are written.
namespace penstock::cli {

/// A forecast of a column with as many digits as the float carries that it was made of; the rest would be noise.
std::string number_text(double value, const Column& column);

/// A row of a table in CSV, with its line end; fields stand in quotes where they need them.
std::string csv_row(std::span<const std::string> fields, char delimiter);

}  // namespace penstock::cli
