#pragma once

#include <memory>
#include <string_view>

#include "custom/cell.h"
#include "network/status.h"

namespace penstock::network {

/// Reads the JSON of a custom cell. There are two of this function: that of the full library (library_cell.cc), and the
/// C runtime's, which has neither its reader of JSON nor its exceptions.
Status read_custom_cell(std::string_view json, std::shared_ptr<const custom::DerivedCell>& cell);

/// The gates and states of a Recurrent node's cell.
struct CellSizes {
  Index gates = 0, states = 0;
};
Status find_cell_sizes(std::string_view cell, CellSizes& sizes);

}  // namespace penstock::network
