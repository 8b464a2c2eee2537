#pragma once

#include <nanobind/nanobind.h>

#include <string>
#include <utility>
#include <vector>

#include "penstock/data.h"

namespace penstock::python {

/// Names and CSV texts of tables in memory.
using TableTexts = std::vector<std::pair<std::string, nanobind::bytes>>;

std::vector<Table> tables_from(const TableTexts& texts);

}  // namespace penstock::python
