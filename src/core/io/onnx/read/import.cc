#include "io/onnx/read/import.h"

#include <algorithm>
#include <unordered_set>

#include "base/check.h"
#include "io/onnx/read/graph_to_network.h"
#include "io/onnx/read/simplify.h"
#include "io/onnx/read/states.h"
#include "io/onnx/stream/stream.h"
#include "io/status_error.h"
#include "network/check_file.h"

namespace penstock::io::onnx {
namespace {

using network::Network;

/// Gives outputs the names of the file, and each other value a name of its own.
void name_values(BuiltNetwork& built) {
  Network& network = built.network;
  std::unordered_set<int> interface(network.inputs.begin(), network.inputs.end());
  interface.insert(network.outputs.begin(), network.outputs.end());
  for (std::size_t i = 0; i < network.outputs.size(); ++i) {
    network.values[static_cast<std::size_t>(network.outputs[i])].name = built.outputs[i].name;
  }
  std::unordered_set<std::string> used;
  for (const int value : interface) used.insert(network.values[static_cast<std::size_t>(value)].name);
  for (std::size_t i = 0; i < network.values.size(); ++i) {
    if (interface.contains(static_cast<int>(i))) continue;
    std::string& name = network.values[i].name;
    if (!used.insert(name).second) used.insert(name = fmt::format("{}.{}", name, i));
  }
}

/// Lets each output be a value of its own that a node writes.
void separate_outputs(BuiltNetwork& built) {
  Network& network = built.network;
  std::unordered_set<int> taken(network.inputs.begin(), network.inputs.end());
  for (std::size_t i = 0; i < network.outputs.size(); ++i) {
    int& output = network.outputs[i];
    if (taken.contains(output) || network.values[static_cast<std::size_t>(output)].constant >= 0) {
      network.nodes.push_back({.op = "Identity",
                               .name = built.outputs[i].name,
                               .reads = {output},
                               .writes = {static_cast<int>(network.values.size())}});
      output = static_cast<int>(network.values.size());
      network.values.push_back({.name = built.outputs[i].name});
    }
    taken.insert(output);
  }
}

}  // namespace

Network import_network(std::string_view content, Source source, const NetworkImport& options) {
  const ModelMessage model = decode_model(content, source.name);
  BuiltNetwork built = build_network(model, source, options.fixed);
  require_ok(simplify(built.network), source.name + ": ");
  separate_outputs(built);
  name_values(built);
  require_ok(network::check(built.network), source.name + ": ");
  require_ok(network::check_operators(built.network), source.name + ": ");
  find_states(built, {.automatic = options.find_states, .pairs = options.states}, source.name);
  if (options.stream) {
    make_stream(built.network, options.time, source.name);
    drop_unused(built.network);
    require_ok(network::check(built.network), source.name + ": as a stream: ");
  }
  return std::move(built.network);
}

}  // namespace penstock::io::onnx
