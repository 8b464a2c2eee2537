#include <nanobind/nanobind.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include "arrays.h"
#include "bindings.h"
#include "penstock/cell.h"

namespace penstock::python {
namespace {

nb::dict describe(const CellInfo& cell) {
  nb::dict result;
  result["name"] = nb::str(cell.name.data(), cell.name.size());
  result["description"] = nb::str(cell.description.data(), cell.description.size());
  result["gates"] = cell.gates;
  result["states"] = cell.states;
  result["scan"] = cell.scan;
  return result;
}

nb::dict describe(const SystemInfo& info) {
  nb::dict result;
  result["version"] = info.version;
  result["cpu"] = info.cpu;
  result["threads"] = info.threads;
  result["isa"] = info.isa;
  result["isas"] = info.isas;
  result["l1_data_bytes"] = info.l1_data_bytes;
  result["l2_bytes"] = info.l2_bytes;
  result["l3_bytes"] = info.l3_bytes;
  result["gemm"] = info.gemm;
  return result;
}

nb::dict describe(const GpuInfo& gpu) {
  nb::dict result;
  result["name"] = gpu.name;
  result["compute_capability"] = gpu.compute_capability;
  result["multiprocessors"] = gpu.multiprocessors;
  result["memory_bytes"] = gpu.memory_bytes;
  return result;
}

nb::dict describe(const CudaInfo& info) {
  nb::dict result;
  result["missing"] = info.missing;
  result["driver"] = info.driver;
  result["compiler"] = info.compiler;
  result["compiler_at"] = info.compiler_at;
  result["products"] = info.products;
  result["products_at"] = info.products_at;
  result["cache"] = info.cache;
  nb::list gpus;
  for (const GpuInfo& gpu : info.gpus) gpus.append(describe(gpu));
  result["gpus"] = gpus;
  return result;
}

}  // namespace

Execution execution_from(int threads, const std::string& mode, bool exact, const std::string& precision,
                         const std::string& device) {
  Execution execution;
  if (threads < 0) refuse("threads must be at least 0 (as many as the machine offers), not " + std::to_string(threads));
  execution.threads = threads;
  if (mode == "auto") {
    execution.algorithm = Algorithm::automatic;
  } else if (mode == "sequential" || mode == "scan") {
    execution.algorithm = parse_algorithm(mode);
  } else {
    refuse("mode must be 'auto', 'sequential' or 'scan', not '" + mode + "'");
  }
  execution.exact = exact;
  execution.precision = parse_precision(precision);
  if (device != "auto") execution.device = parse_device(device);
  return execution;
}

void bind_machine(nb::module_& module) {
  module.def(
      "system_info",
      [] {
        SystemInfo info;
        {
          const nb::gil_scoped_release unlocked;
          info = system_info();
        }
        return describe(info);
      },
      "Returns a dictionary with the version, CPU, number of threads, instruction sets (isa: the one in use), sizes of "
      "caches in bytes, and the library of matrix products (gemm).");
  module.def("cuda_info", [] {
    CudaInfo info;
    {
      const nb::gil_scoped_release unlocked;
      info = cuda_info();
    }
    return describe(info);
  });
  module.def(
      "cells",
      [] {
        nb::list all;
        for (const CellInfo& cell : cells()) all.append(describe(cell));
        return all;
      },
      "Returns a list of all cells. Each is a dictionary with the keys name, description, gates, states, and scan "
      "(True for a cell without a recurrent matrix).");
  module.def(
      "define_cell",
      [](const std::string& json, const std::string& source) { return describe(define_cell_json(json, source)); },
      nb::arg("json"), nb::arg("source"));
  module.def(
      "cell_json", [](const std::string& name) { return cell_json(name); }, nb::arg("name"));
  module.def(
      "find_cell",
      [](const std::string& name) {
        nb::dict found = describe(find_cell(name));
        found["learnt"] = learnt_vectors(name);
        return found;
      },
      nb::arg("name"));
  module.def(
      "device_name", [](const std::string& device) { return to_string(parse_device(device)); }, nb::arg("device"));
  module.def("select_isa", &select_isa, nb::arg("name"));
}

}  // namespace penstock::python
