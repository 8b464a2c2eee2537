#include <nanobind/nanobind.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/string_view.h>
#include <nanobind/stl/vector.h>

#include "bindings.h"
#include "dicts.h"
#include "penstock/cell.h"

namespace penstock::python {
namespace {

nb::dict describe(const CellInfo& cell) {
  return dict_of({{"name", cell.name},
                  {"description", cell.description},
                  {"gates", cell.gates},
                  {"states", cell.states},
                  {"scan", cell.scan}});
}

nb::dict describe(const SystemInfo& info) {
  return dict_of({{"version", info.version},
                  {"cpu", info.cpu},
                  {"threads", info.threads},
                  {"isa", info.isa},
                  {"isas", info.isas},
                  {"l1_data_bytes", info.l1_data_bytes},
                  {"l2_bytes", info.l2_bytes},
                  {"l3_bytes", info.l3_bytes},
                  {"gemm", info.gemm}});
}

nb::dict describe(const CudaInfo& info) {
  nb::list gpus;
  for (const GpuInfo& gpu : info.gpus) {
    gpus.append(dict_of({{"name", gpu.name},
                         {"compute_capability", gpu.compute_capability},
                         {"multiprocessors", gpu.multiprocessors},
                         {"memory_bytes", gpu.memory_bytes}}));
  }
  return dict_of({{"missing", info.missing},
                  {"driver", info.driver},
                  {"compiler", info.compiler},
                  {"compiler_at", info.compiler_at},
                  {"products", info.products},
                  {"products_at", info.products_at},
                  {"cache", info.cache},
                  {"gpus", gpus}});
}

/// Calls a function of the library without the GIL and returns what it says as a dictionary.
template <auto ask>
nb::dict asked() {
  const auto info = [] {
    const nb::gil_scoped_release unlocked;
    return ask();
  }();
  return describe(info);
}

}  // namespace

CallExecution::CallExecution(const std::string& mode, const std::string& device, int threads, bool exact,
                             const std::string& precision)
    : automatic(device == "auto") {
  if (threads < 0) refuse("threads must be at least 0 (as many as the machine offers), not " + std::to_string(threads));
  on.threads = threads;
  if (mode != "auto" && mode != "sequential" && mode != "scan") {
    refuse("mode must be 'auto', 'sequential' or 'scan', not '" + mode + "'");
  }
  on.algorithm = parse_algorithm(mode);
  on.exact = exact;
  on.precision = parse_precision(precision);
  if (!automatic) on.device = parse_device(device);
}

void bind_machine(nb::module_& module) {
  nb::class_<CallExecution>(module, "Execution")
      .def(nb::init<const std::string&, const std::string&, int, bool, const std::string&>());
  module.def(
      "system_info", &asked<system_info>,
      "Returns a dictionary with the version, CPU, number of threads, instruction sets (isa: the one in use), sizes of "
      "caches in bytes, and the library of matrix products (gemm).");
  module.def("cuda_info", &asked<cuda_info>);
  module.def(
      "cells",
      [] {
        nb::list all;
        for (const CellInfo& cell : cells()) all.append(describe(cell));
        return all;
      },
      "Returns a list of all cells. Each is a dictionary with the keys name, description, gates, states, and scan "
      "(True for a cell without a recurrent matrix).");
  module.def("define_cell", [](const std::string& json, const std::string& source) {
    return describe(define_cell_json(json, source));
  });
  module.def("cell_json", [](const std::string& name) { return cell_json(name); });
  module.def("find_cell", [](const std::string& name) {
    nb::dict found = describe(find_cell(name));
    found["learnt"] = learnt_vectors(name);
    return found;
  });
  module.def("device_name", [](const std::string& device) { return to_string(parse_device(device)); });
}

}  // namespace penstock::python
