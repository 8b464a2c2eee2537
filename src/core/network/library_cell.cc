// Custom cells in the full library, which has exceptions: this file alone is compiled with them.

#include <exception>

#include "network/cell.h"

namespace penstock::network {

Status read_custom_cell(std::string_view json, std::shared_ptr<const custom::DerivedCell>& cell) {
  try {
    custom::CustomCell read = custom::cell_from_json(json, "its cell");
    cell =
        std::make_shared<const custom::DerivedCell>(custom::derive(std::move(read), "its cell", ErrorCode::bad_input));
  } catch (const std::exception& error) {
    return Status::bad_input(error.what());
  }
  return {};
}

}  // namespace penstock::network
