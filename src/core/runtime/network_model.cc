#include "runtime/network_model.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <new>

#include "network/cell.h"
#include "network/input_shapes.h"
#include "network/kernels.h"
#include "network/network.h"
#include "network/network_reader.h"
#include "network/status.h"
#include "network/tensor.h"
#include "runtime/custom_cell.h"
#include "runtime/failure.h"
#include "runtime/tensor_file.h"

namespace penstock::runtime {

namespace {

/// Sets the failure that a Status describes. Returns whether there is none.
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

/// Reads and checks the network of a file (io/network_file.h has the format), whose constants stay in the file's
/// memory. Returns false after a failure.
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

constexpr std::size_t kSession =
    (sizeof(NetworkSession) + Buffer::kAlignment - 1) / Buffer::kAlignment * Buffer::kAlignment;
constexpr std::size_t kMostValues = 0xffffffffu;  // of penstock_model_info

bool read_shapes(std::span<const penstock_shape> given, std::vector<network::InputShape>& shapes, Failure& failure) {
  for (const penstock_shape& shape : given) {
    if (shape.input == nullptr || (shape.rank > 0 && shape.extents == nullptr) || shape.rank > network::kMostAxes) {
      return failure.set(PENSTOCK_INVALID_ARGUMENT, "shapes[%zu] must have a name and at most %zu extents",
                         shapes.size(), network::kMostAxes);
    }
    shapes.push_back({shape.input, {shape.extents, shape.extents + shape.rank}});
  }
  return true;
}

}  // namespace

Model* NetworkModel::open(const char* path, std::span<const penstock_shape> shapes, Failure& failure) {
  auto model = std::make_unique<NetworkModel>();
  const bool opened = model->file_.read(path, failure) && model->build(shapes, failure);
  return opened ? model.release() : nullptr;
}

Model* NetworkModel::open(std::string_view bytes, std::span<const penstock_shape> shapes, Failure& failure) {
  auto model = std::make_unique<NetworkModel>();
  const bool opened = model->file_.use(bytes, failure) && model->build(shapes, failure);
  return opened ? model.release() : nullptr;
}

bool NetworkModel::build(std::span<const penstock_shape> shapes, Failure& failure) {
  const auto network = std::make_shared<network::Network>();
  std::vector<network::InputShape> given;
  std::vector<network::Shape> all;
  if (!choose_kernels(failure) || !read_network(file_, *network, failure) || !read_shapes(shapes, given, failure) ||
      !require_ok(network::complete_shapes(*network, given, all), failure) ||
      !require_ok(network::Program::prepare(network, all, program), failure)) {
    return false;
  }
  description.task = PENSTOCK_NETWORK;
  description.sample_rate = static_cast<Index>(std::llround(network->sample_rate));
  checksum = file_.checksum();
  parameters = static_cast<std::uint64_t>(network::count_parameters(*network));
  state_bytes = program->state_bytes();
  for (const network::State& state : network->states) {
    const int value = network->inputs[static_cast<std::size_t>(state.input)];
    float_state = float_state && network->values[static_cast<std::size_t>(value)].type == network::Type::f32;
  }
  return find_ports(failure);
}

bool NetworkModel::find_ports(Failure& failure) {
  const network::Network& network = program->network();
  const auto add = [](std::vector<Port>& ports, const network::Value& value, network::Type type,
                      const network::Shape& shape, std::size_t position, std::size_t& all) {
    const auto size = static_cast<std::size_t>(network::elements(shape));
    ports.push_back({value.name.c_str(), type, {shape.begin(), shape.end()}, position, all, size});
    all += size;
  };
  for (std::size_t i = 0; i < network.inputs.size(); ++i) {
    if (is_state(network, &network::State::input, i)) continue;
    const network::Value& value = network.values[static_cast<std::size_t>(network.inputs[i])];
    add(reads, value, value.type, program->input_shape(i), i, inputs);
  }
  for (std::size_t i = 0; i < network.outputs.size(); ++i) {
    if (is_state(network, &network::State::output, i)) continue;
    const network::Value& value = network.values[static_cast<std::size_t>(network.outputs[i])];
    add(writes, value, program->output_type(i), program->output_shape(i), i, outputs);
  }
  if (inputs > 0 && outputs > 0 && inputs <= kMostValues && outputs <= kMostValues) return true;
  return failure.in_file(PENSTOCK_UNSUPPORTED, "a run reads %zu values and returns %zu; expected 1 to 2^32 - 1 of each",
                         inputs, outputs);
}

std::size_t NetworkModel::session_bytes() const { return kSession + program->workspace_bytes(); }

Session* NetworkModel::make_session(std::byte* memory, void* own) {
  return new (memory) NetworkSession(*this, memory + kSession, own);
}

[[gnu::cold]] NetworkSession::NetworkSession(NetworkModel& model, std::byte* memory, void* own)
    : Session(model, own), model_(&model), running_(model.program, memory) {
  const auto is_float = [](const std::vector<NetworkModel::Port>& ports) {
    return ports.size() == 1 && ports[0].type == network::Type::f32;
  };
  if (is_float(model.reads)) input_ = static_cast<float*>(running_.input(model.reads[0].position));
  if (is_float(model.writes)) output_ = static_cast<const float*>(running_.output(model.writes[0].position));
}

[[gnu::cold]] void NetworkSession::read(const float* features) {
  for (const NetworkModel::Port& port : model_->reads) {
    const float* const from = features + port.first;
    void* const to = running_.input(port.position);
    if (port.type == network::Type::f32) {
      take(from, port.size, static_cast<float*>(to));
      continue;
    }
    for (std::size_t i = 0; i < port.size; ++i) {
      float value = 0;
      take(from + i, 1, &value);
      network::set_real(port.type, static_cast<std::byte*>(to), static_cast<Index>(i), static_cast<double>(value));
    }
  }
}

[[gnu::cold]] void NetworkSession::write(float* outputs) const {
  for (const NetworkModel::Port& port : model_->writes) {
    network::convert(port.type, static_cast<const std::byte*>(running_.output(port.position)), network::Type::f32,
                     reinterpret_cast<std::byte*>(outputs + port.first), static_cast<Index>(port.size));
  }
}

void NetworkSession::step(const float* features, std::int32_t /*token*/, float* outputs) {
  const std::size_t count = model_->outputs;
  input_ != nullptr ? take(features, model_->inputs, input_) : read(features);
  running_.run();
  if (outputs == nullptr) return;
  if (output_ == nullptr) {
    write(outputs);
  } else if (count == 1) {
    *outputs = *output_;
  } else {
    std::memcpy(outputs, output_, count * sizeof(float));
  }
}

}  // namespace penstock::runtime

namespace penstock::network {

void FillBytes(Kernels& /*kernels*/) {}

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
