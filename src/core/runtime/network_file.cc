#include "runtime/network_file.h"

#include "network/cell.h"
#include "network/network_reader.h"
#include "runtime/custom_cell.h"

namespace penstock::runtime {

bool require_ok(const network::Status& status, Failure& failure) {
  using Code = network::Status::Code;
  if (status.ok()) return true;
  std::string line = status.text;  // with names from a file that nobody has vetted
  for (char& c : line) c = c >= ' ' && c <= '~' ? c : '?';
  const penstock_status code = status.code == Code::invalid_argument ? PENSTOCK_INVALID_ARGUMENT
                               : status.code == Code::unsupported    ? PENSTOCK_UNSUPPORTED
                               : status.code == Code::incompatible   ? PENSTOCK_INCOMPATIBLE
                               : status.code == Code::out_of_memory  ? PENSTOCK_OUT_OF_MEMORY
                                                                     : PENSTOCK_BAD_INPUT;
  return failure.in_file(code, "%s", line.c_str());
}

bool read_network(const TensorFile& file, network::Network& network, Failure& failure) {
  if (file.network() == nullptr) {
    return failure.in_file(PENSTOCK_INCOMPATIBLE,
                           file.describes_model()
                               ? "a model of 'penstock train', not a network: open it by penstock_model_open()"
                               : "no network: 'penstock import' makes one of an ONNX file");
  }
  if (!file.has_checksum()) return failure.in_file(PENSTOCK_BAD_INPUT, "damaged: networks carry a checksum");
  const auto find = [&](const std::string& name) -> std::optional<network::StoredTensor> {
    const std::optional<std::size_t> found = file.find(name);
    if (!found) return std::nullopt;
    const TensorInfo& tensor = file.tensors()[*found];
    return network::StoredTensor{to_string(tensor.dtype), tensor.shape, std::as_bytes(std::span(file.bytes(tensor)))};
  };
  return require_ok(network::read_network(*file.network(), find, network), failure);
}

}  // namespace penstock::runtime

namespace penstock::network {

Status read_custom_cell(std::string_view json, std::shared_ptr<const custom::DerivedCell>& cell) {
  runtime::Failure failure("its cell");
  JsonReader reader(json, "JSON");
  std::string name;
  if (runtime::read_custom_cell(reader, name, cell, failure) && reader.finish()) return {};
  failure.in_json(reader);
  penstock_error error = {};
  failure.report(&error);
  return Status::bad_input(error.text);
}

}  // namespace penstock::network
