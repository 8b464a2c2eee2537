// Published models: penstock::Network and its sessions. Arrays come and go as bytes; the package's Python code gives
// them types and shapes.

#include <nanobind/stl/map.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include <cstring>
#include <map>
#include <optional>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "arrays.h"
#include "bindings.h"
#include "penstock/network.h"
#include "penstock/output_files.h"
#include "penstock/quantize.h"

namespace penstock::python {
namespace {

using Fixed = std::map<std::string, std::vector<double>>;
using Pairs = std::vector<std::pair<std::string, std::string>>;
using TensorTuple = std::tuple<std::string, std::string, std::vector<Index>, std::vector<std::string>>;

TensorTuple tuple_of(const NetworkTensor& tensor) { return {tensor.name, tensor.type, tensor.shape, tensor.axes}; }

std::vector<TensorTuple> tuples_of(const std::vector<NetworkTensor>& tensors) {
  std::vector<TensorTuple> all;
  for (const NetworkTensor& each : tensors) all.push_back(tuple_of(each));
  return all;
}

NetworkImport options_of(const Fixed& fixed, const Pairs& states, bool find_states,
                         const std::optional<std::string>& time) {
  return {.fixed = fixed,
          .states = states,
          .find_states = find_states,
          .stream = time.has_value(),
          .time = time.value_or("")};
}

penstock::Network import_path(const std::string& path, const Fixed& fixed, const Pairs& states, bool find_states,
                              const std::optional<std::string>& time) {
  const nb::gil_scoped_release unlocked;
  return penstock::Network::import_onnx(path, options_of(fixed, states, find_states, time));
}

penstock::Network import_bytes(const nb::bytes& file, const Fixed& fixed, const Pairs& states, bool find_states,
                               const std::optional<std::string>& time) {
  const auto bytes = std::as_bytes(std::span(file.c_str(), file.size()));
  const nb::gil_scoped_release unlocked;
  return penstock::Network::import_onnx(bytes, options_of(fixed, states, find_states, time));
}

penstock::Network import_audio(const nb::bytes& file) {
  const auto bytes = std::as_bytes(std::span(file.c_str(), file.size()));
  const nb::gil_scoped_release unlocked;
  return penstock::Network::import_audio(bytes);
}

void save_network(const penstock::Network& network, const std::string& path) {
  check_outputs({}, {{"path", path, FileKind::network}}, advice_to_remove);
  const nb::gil_scoped_release unlocked;
  network.save(path);
}

std::vector<std::pair<TensorTuple, std::string>> states_of(const penstock::Network& network) {
  std::vector<std::pair<TensorTuple, std::string>> all;
  for (const NetworkState& each : network.states()) all.emplace_back(tuple_of(each.input), each.output);
  return all;
}

/// Runs with arrays that are contiguous and of the session's types, in the order of its inputs.
nb::list run_network(NetworkSession& session, const nb::list& inputs) {
  for (std::size_t i = 0; i < nb::len(inputs); ++i) {
    const nb::object input = inputs[i];
    Py_buffer view = {};
    if (PyObject_GetBuffer(input.ptr(), &view, PyBUF_C_CONTIGUOUS) != 0) throw nb::python_error();
    const std::span<std::byte> to = session.input(i);
    const bool fits = static_cast<std::size_t>(view.len) == to.size();
    if (fits && !to.empty()) std::memcpy(to.data(), view.buf, to.size());
    PyBuffer_Release(&view);
    if (!fits) refuse("an input has another size than in this session");
  }
  session.run();
  nb::list outputs;
  for (std::size_t i = 0; i < session.outputs().size(); ++i) {
    const std::span<const std::byte> bytes = session.output(i);
    outputs.append(nb::bytes(bytes.data(), bytes.size()));
  }
  return outputs;
}

/// Returns (name, cell, {name: (type, shape, bytes)}) of each recurrent layer of an ONNX file.
nb::list onnx_layers(const std::string& path, const std::optional<std::string>& name) {
  const std::vector<OnnxLayer> layers = [&] {
    const nb::gil_scoped_release unlocked;
    return read_onnx_layers(path, name);
  }();
  nb::list all;
  for (const OnnxLayer& layer : layers) {
    nb::dict weights;
    for (const OnnxLayer::Weight& each : layer.weights) {
      const nb::bytes values(each.values.data(), each.values.size());
      weights[each.name.c_str()] = nb::make_tuple(each.type, each.shape, values);
    }
    all.append(nb::make_tuple(layer.name, layer.cell, weights));
  }
  return all;
}

/// Returns the network of int8, what is lost, and (name, loss, int8) of each layer.
nb::tuple quantized_network(const penstock::Network& network, const nb::callable& loss_of,
                            std::optional<double> max_loss, bool each_layer, bool round_inputs) {
  const auto loss = [&](const penstock::Network& made) { return nb::cast<double>(loss_of(nb::cast(made))); };
  const QuantizeOptions options{.max_loss = max_loss, .each_layer = each_layer, .round_inputs = round_inputs};
  const QuantizedNetwork made = quantize(network, loss, options);
  nb::list layers;
  for (const QuantizedLayer& layer : made.layers) layers.append(nb::make_tuple(layer.name, layer.loss, layer.int8));
  return nb::make_tuple(made.network, made.loss, layers);
}

}  // namespace

void bind_networks(nb::module_& module) {
  module.def("onnx_layers", &onnx_layers, nb::arg("path"), nb::arg("name").none());
  module.def("quantize_network", &quantized_network, nb::arg("network"), nb::arg("loss_of"), nb::arg("max_loss").none(),
             nb::arg("each_layer"), nb::arg("round_inputs"));
  nb::class_<penstock::Network>(module, "Network")
      .def_static("import_path", &import_path, nb::arg("path"), nb::arg("fixed"), nb::arg("states"),
                  nb::arg("find_states"), nb::arg("time").none())
      .def_static("import_bytes", &import_bytes, nb::arg("file"), nb::arg("fixed"), nb::arg("states"),
                  nb::arg("find_states"), nb::arg("time").none())
      .def_static("import_audio", &import_audio, nb::arg("file"))
      .def_static("import_audio", nb::overload_cast<const std::string&>(&penstock::Network::import_audio),
                  nb::arg("path"), nb::call_guard<nb::gil_scoped_release>())
      .def_static("load", &penstock::Network::load, nb::arg("path"), nb::call_guard<nb::gil_scoped_release>())
      .def("save", &save_network, nb::arg("path"))
      .def("inputs", [](const penstock::Network& network) { return tuples_of(network.inputs()); })
      .def("outputs", [](const penstock::Network& network) { return tuples_of(network.outputs()); })
      .def("delays",
           [](const penstock::Network& network) {
             std::map<std::string, Index> delays;
             for (const NetworkTensor& each : network.outputs()) delays[each.name] = each.delay;
             return delays;
           })
      .def("states", &states_of)
      .def("operators", &penstock::Network::operators)
      .def("sample_rate", &penstock::Network::sample_rate)
      .def("parameters", &penstock::Network::parameters);
  nb::class_<NetworkSession>(module, "NetworkSession")
      .def(nb::init<const penstock::Network&, const NetworkShapes&>(), nb::arg("network"), nb::arg("shapes"),
           nb::call_guard<nb::gil_scoped_release>())
      .def("inputs", [](const NetworkSession& session) { return tuples_of(session.inputs()); })
      .def("outputs", [](const NetworkSession& session) { return tuples_of(session.outputs()); })
      .def("run", &run_network, nb::arg("inputs"))
      .def("reset", &NetworkSession::reset)
      .def("clone", nb::overload_cast<>(&NetworkSession::clone, nb::const_))
      .def("clone_for", nb::overload_cast<const NetworkShapes&>(&NetworkSession::clone, nb::const_), nb::arg("shapes"))
      .def("state",
           [](const NetworkSession& session) {
             const std::vector<std::byte> state = session.state();
             return nb::bytes(state.data(), state.size());
           })
      .def("set_state", [](NetworkSession& session, const nb::bytes& state) {
        session.set_state(std::as_bytes(std::span(state.c_str(), state.size())));
      });
}

}  // namespace penstock::python
