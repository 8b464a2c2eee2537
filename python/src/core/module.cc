#include <nanobind/nanobind.h>
#include <nanobind/stl/string.h>

#include <span>
#include <vector>

#include "bindings.h"
#include "penstock/checksum.h"
#include "penstock/file_writer.h"
#include "penstock/output_files.h"

namespace {

/// Refuses to replace a file of another kind.
void check_output(const std::string& path, penstock::FileKind kind) {
  penstock::check_outputs({}, {{"path", path, kind}}, penstock::advice_to_remove);
}

/// Writes a list of bytes objects to a file, atomically. `kind`: what the content is.
void write_pieces(const std::string& path, const nanobind::list& pieces, penstock::FileKind kind) {
  check_output(path, kind);
  penstock::FileWriter file(path);
  for (const nanobind::handle piece : pieces) {
    const auto bytes = nanobind::cast<nanobind::bytes>(piece);
    file.write({bytes.c_str(), bytes.size()});
  }
  file.finish();
}

std::string checksum_of_pieces(const nanobind::list& pieces) {
  std::vector<std::span<const std::byte>> parts;
  for (const nanobind::handle piece : pieces) {
    const auto bytes = nanobind::cast<nanobind::bytes>(piece);
    parts.push_back(std::as_bytes(std::span(bytes.c_str(), bytes.size())));
  }
  return penstock::checksum_of(parts);
}

}  // namespace

// The extension module penstock._core binds the public interface of the library for the package's Python code. The
// Python code checks few arguments itself, because everything is checked here.
NB_MODULE(_core, module) {
  namespace bindings = penstock::python;
  // A tensor made of a view of parameters may live until Python ends, and then keeps its network: that is no leak.
  nanobind::set_leak_warnings(false);
  bindings::bind_errors(module);
  using enum penstock::FileKind;
  nanobind::enum_<penstock::FileKind>(module, "FileKind")
      .value("any", any)
      .value("onnx", onnx)
      .value("network", network)
      .value("tensors", tensors)
      .value("shards", shards)
      .value("script", script)
      .value("keras", keras)
      .value("cell", cell);
  module.def("check_output", &check_output, nanobind::arg("path"), nanobind::arg("kind"));
  module.def("write_file", &write_pieces, nanobind::arg("path"), nanobind::arg("pieces"), nanobind::arg("kind"));
  module.def("checksum_of", &checksum_of_pieces, nanobind::arg("pieces"));
  bindings::bind_machine(module);
  bindings::bind_device_arrays(module);
  bindings::bind_layers(module);
  bindings::bind_scans(module);
  bindings::bind_models(module);
  bindings::bind_sessions(module);
  bindings::bind_networks(module);
  bindings::bind_answers(module);
  bindings::bind_datasets(module);
  bindings::bind_training(module);
  bindings::bind_guard(module);
  bindings::bind_constraints(module);
}
