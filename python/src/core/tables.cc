#include "tables.h"

#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include "arrays.h"
#include "bindings.h"
#include "penstock/data/arrow.h"

namespace penstock::python {

namespace {

/// Converts a capsule of the Arrow PyCapsule interface to CSV text. Keeps the GIL, since a producer may need it.
nb::bytes table_text(const nb::capsule& capsule, const std::string& name) {
  auto* const stream = static_cast<ArrowArrayStream*>(PyCapsule_GetPointer(capsule.ptr(), "arrow_array_stream"));
  if (stream == nullptr) throw nb::python_error();
  const Table table = table_of_arrow(*stream, name);
  return nb::bytes(table.text.data(), table.text.size());
}

}  // namespace

std::vector<Table> tables_from(const TableTexts& texts) {
  std::vector<Table> tables;
  for (const auto& [name, text] : texts) tables.push_back({name, std::string(text.c_str(), text.size()), true});
  return tables;
}

void bind_tables(nb::module_& module) { module.def("table_text", &table_text); }

}  // namespace penstock::python
