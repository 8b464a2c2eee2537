#pragma once

#include <memory>
#include <string>

#include "custom/cell.h"
#include "runtime/failure.h"

namespace penstock::runtime {

/// Reads a custom cell's equations and compiles them for steps. `name` receives the cell's name.
bool read_custom_cell(JsonReader& json, std::string& name, std::shared_ptr<const custom::DerivedCell>& cell,
                      Failure& failure);

}  // namespace penstock::runtime
