// Networks for users: penstock/network.h over the network layer.

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <functional>
#include <numeric>

#include "backend/cpu/instruction_sets.h"
#include "base/check.h"
#include "io/audio/import.h"
#include "io/audio/rtneural_network_writer.h"
#include "io/network_file.h"
#include "io/network_int8.h"
#include "io/onnx/read/import.h"
#include "io/read_file.h"
#include "io/status_error.h"
#include "network/input_shapes.h"
#include "network/network_reader.h"
#include "network/row_ranges.h"
#include "network/session.h"
#include "network/spectrum.h"
#include "penstock/file_writer.h"
#include "penstock/network.h"
#include "penstock/rtneural.h"

namespace penstock {

using io::require_ok;

namespace {

/// PENSTOCK_ISA in the environment is read, and judged, before the first kernel is fetched.
void choose_kernels() { static_cast<void>(cpu::current_isa()); }

io::onnx::Source onnx_source(const std::string& path) {
  const std::string folder = std::filesystem::path(path).parent_path().string();
  return {path, folder.empty() ? "." : folder, 0};
}

constexpr std::uint64_t kMostAudioBytes = std::uint64_t{1} << 28;  // 10 million weights
constexpr std::uint64_t kMostOnnxBytes = std::uint64_t{4} << 30;   // twice the format's limit

std::size_t bytes_of(const std::string& type, const std::vector<Index>& shape) {
  const std::size_t element = type == "f64" || type == "i64" ? 8 : type == "f32" || type == "i32" ? 4 : 1;
  return std::transform_reduce(shape.begin(), shape.end(), element, std::multiplies<>(),
                               [](Index each) { return static_cast<std::size_t>(each); });
}

std::string type_name(network::Type type) { return std::string(network::short_name_of(type)); }

void count_operators(const network::Network& network, std::map<std::string, Index>& counts) {
  for (const network::Node& node : network.nodes) {
    ++counts[node.op];
    for (const network::Network& body : node.bodies) count_operators(body, counts);
  }
}

template <class T>
std::string type_of_elements() {
  if constexpr (std::is_same_v<T, float>) return "f32";
  if constexpr (std::is_same_v<T, double>) return "f64";
  if constexpr (std::is_same_v<T, std::int8_t>) return "i8";
  if constexpr (std::is_same_v<T, std::uint8_t>) return "u8";
  if constexpr (std::is_same_v<T, std::int32_t>) return "i32";
  if constexpr (std::is_same_v<T, std::int64_t>) return "i64";
  return "bool";
}

}  // namespace

struct Network::Impl {
  std::shared_ptr<const network::Network> network;
  std::vector<NetworkTensor> inputs, outputs;
  std::vector<NetworkState> states;
  std::string source;  ///< "vad.onnx: ", for messages.

  Impl(network::Network&& given, std::string from)
      : network(std::make_shared<const network::Network>(std::move(given))), source(std::move(from) + ": ") {
    for (std::size_t i = 0; i < network->inputs.size(); ++i) {
      if (!is_state(*network, &network::State::input, i)) inputs.push_back(tensor(network->inputs[i]));
    }
    for (std::size_t i = 0; i < network->outputs.size(); ++i) {
      if (!is_state(*network, &network::State::output, i))
        outputs.push_back({value(network->outputs[i]).name, "", {}, {}, delay_of(network->outputs[i])});
    }
    for (const network::State& state : network->states) {
      states.push_back({tensor(network->inputs[static_cast<std::size_t>(state.input)]),
                        value(network->outputs[static_cast<std::size_t>(state.output)]).name});
    }
  }

  /// Returns the shapes of all inputs of the network.
  std::vector<network::Shape> complete(const NetworkShapes& shapes) const {
    std::vector<network::InputShape> given;
    for (const auto& [name, shape] : shapes) given.push_back({name, shape});
    std::vector<network::Shape> all;
    require_ok(network::complete_shapes(*network, given, all), source);
    return all;
  }
  std::string source_name() const { return source.substr(0, source.size() - 2); }

 private:
  const network::Value& value(int number) const { return network->values[static_cast<std::size_t>(number)]; }
  Index delay_of(int number) const {
    for (const network::Node& node : network->nodes) {
      const network::Attribute* const delay = node.find("delay");
      if (delay != nullptr && delay->integers.size() == 1 && node.writes == std::vector<int>{number})
        return delay->integers[0];
    }
    return 0;
  }
  NetworkTensor tensor(int number) const {
    const network::Value& it = value(number);
    return {it.name, type_name(it.type), it.shape, it.axes};
  }
};

Network Network::import_onnx(const std::string& path, const NetworkImport& options) {
  choose_kernels();
  const std::string content = io::read_file(path, kMostOnnxBytes);
  return Network(std::make_shared<const Impl>(io::onnx::import_network(content, onnx_source(path), options), path));
}

Network Network::import_audio(const std::string& path) {
  const std::string content = io::read_file(path, kMostAudioBytes);
  return import_audio(std::as_bytes(std::span(content)), path);
}

Network Network::import_audio(std::span<const std::byte> file, const std::string& source) {
  choose_kernels();
  const std::string_view content(reinterpret_cast<const char*>(file.data()), file.size());
  return Network(std::make_shared<const Impl>(io::audio::import_audio(content, source), source));
}

std::vector<OnnxLayer> read_onnx_layers(const std::string& path, const std::optional<std::string>& name) {
  choose_kernels();
  return io::onnx::read_layers(io::read_file(path, kMostOnnxBytes), onnx_source(path), name);
}

Network Network::import_onnx(std::span<const std::byte> file, const NetworkImport& options, const std::string& source) {
  choose_kernels();
  const std::string_view content(reinterpret_cast<const char*>(file.data()), file.size());
  return Network(std::make_shared<const Impl>(io::onnx::import_network(content, {source, "", 0}, options), source));
}

Network Network::load(const std::string& path) {
  return Network(std::make_shared<const Impl>(io::read_network(io::SafetensorsFile::open(path)), path));
}

std::string to_rtneural(const Network& network) {
  choose_kernels();
  return io::audio::write_rtneural(*network.impl_->network, network.impl_->source);
}

void save_rtneural(const Network& network, const std::string& path) { write_file(path, to_rtneural(network)); }

void Network::save(const std::string& path) const { io::write_network(path, *impl_->network); }

Network Network::with_int8(std::span<const std::string> layers, bool round_inputs) const {
  network::Network made = io::with_int8(*impl_->network, layers, round_inputs);
  return Network(std::make_shared<const Impl>(std::move(made), impl_->source_name()));
}

Network Network::with_row_ranges(const NetworkShapes& one, const NetworkShapes& two) const {
  if (!network::has_ranges(*impl_->network)) return *this;
  choose_kernels();
  network::Network made = *impl_->network;
  require_ok(network::give_row_ranges(made, impl_->complete(one), impl_->complete(two)), impl_->source);
  return Network(std::make_shared<const Impl>(std::move(made), impl_->source_name()));
}

std::vector<std::string> int8_layers(const Network& network) { return io::int8_layers(*network.impl_->network); }

const std::vector<NetworkTensor>& Network::inputs() const { return impl_->inputs; }
const std::vector<NetworkTensor>& Network::outputs() const { return impl_->outputs; }
const std::vector<NetworkState>& Network::states() const { return impl_->states; }

std::map<std::string, Index> Network::operators() const {
  std::map<std::string, Index> counts;
  count_operators(*impl_->network, counts);
  return counts;
}

double Network::sample_rate() const { return impl_->network->sample_rate; }
Index Network::parameters() const { return network::count_parameters(*impl_->network); }

struct NetworkSession::Impl {
  /// Inputs or outputs of a session and their positions in the network.
  struct Ports {
    std::vector<NetworkTensor> tensors;
    std::vector<std::size_t> positions;

    std::size_t find(std::string_view name, const std::string& type, const char* kind) const {
      const auto found = std::ranges::find(tensors, name, &NetworkTensor::name);
      if (found == tensors.end()) {
        std::vector<std::string> names;
        for (const NetworkTensor& each : tensors) names.push_back(each.name);
        require_argument(false, kind, name, "one of {}", fmt::join(names, ", "));
      }
      require(found->type == type, "{} {} holds elements of type {}, not {}", kind, in_quotes(name), found->type, type);
      return static_cast<std::size_t>(found - tensors.begin());
    }
  };

  std::shared_ptr<const Network::Impl> of;
  std::shared_ptr<const network::Program> program;
  std::unique_ptr<network::Session> session;
  Ports inputs, outputs;
  bool transforms;

  Impl(std::shared_ptr<const Network::Impl> network, const NetworkShapes& shapes, bool by_transforms)
      : of(std::move(network)), transforms(by_transforms) {
    choose_kernels();
    const std::vector<network::Shape> all = of->complete(shapes);
    const auto prepare_spectrum = transforms ? &network::prepare_spectrum : nullptr;
    require_ok(network::Program::prepare(of->network, all, program, prepare_spectrum), of->source);
    open();
    const network::Network& whole = *of->network;
    for (std::size_t i = 0; i < whole.inputs.size(); ++i) {
      if (is_state(whole, &network::State::input, i)) continue;
      const network::Value& value = whole.values[static_cast<std::size_t>(whole.inputs[i])];
      inputs.tensors.push_back({value.name, type_name(value.type), program->input_shape(i), value.axes});
      inputs.positions.push_back(i);
    }
    for (std::size_t i = 0; i < whole.outputs.size(); ++i) {
      if (is_state(whole, &network::State::output, i)) continue;
      const std::string& name = whole.values[static_cast<std::size_t>(whole.outputs[i])].name;
      outputs.tensors.push_back({name,
                                 type_name(program->output_type(i)),
                                 program->output_shape(i),
                                 {},
                                 of->outputs[outputs.tensors.size()].delay});
      outputs.positions.push_back(i);
    }
  }
  Impl(const Impl& other)
      : of(other.of),
        program(other.program),
        inputs(other.inputs),
        outputs(other.outputs),
        transforms(other.transforms) {
    open();
    std::vector<std::byte> state(other.session->state_bytes());
    other.session->read_state(state.data());
    session->write_state(state.data());
  }
  Impl& operator=(const Impl&) = delete;
  ~Impl() = default;

  void require_state(std::size_t given) const {
    const std::size_t bytes = session->state_bytes();
    require_argument(given == bytes, "state", given, "{} bytes", bytes);
  }

 private:
  void open() { require_ok(network::Session::open(program, nullptr, session), of->source); }
};

NetworkSession::NetworkSession(const Network& network, const NetworkShapes& shapes, bool transforms)
    : impl_(std::make_unique<Impl>(network.impl_, shapes, transforms)) {}
NetworkSession::NetworkSession(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
NetworkSession::~NetworkSession() = default;
NetworkSession::NetworkSession(NetworkSession&& other) noexcept = default;
NetworkSession& NetworkSession::operator=(NetworkSession&& other) noexcept = default;

const std::vector<NetworkTensor>& NetworkSession::inputs() const { return impl_->inputs.tensors; }
const std::vector<NetworkTensor>& NetworkSession::outputs() const { return impl_->outputs.tensors; }

std::span<std::byte> NetworkSession::input(std::size_t position) {
  const Impl::Ports& ports = impl_->inputs;
  require_argument(position < ports.tensors.size(), "position", position, "below {}", ports.tensors.size());
  const NetworkTensor& tensor = ports.tensors[position];
  return {static_cast<std::byte*>(impl_->session->input(ports.positions[position])),
          bytes_of(tensor.type, tensor.shape)};
}

std::span<const std::byte> NetworkSession::output(std::size_t position) const {
  const Impl::Ports& ports = impl_->outputs;
  require_argument(position < ports.tensors.size(), "position", position, "below {}", ports.tensors.size());
  const NetworkTensor& tensor = ports.tensors[position];
  return {static_cast<const std::byte*>(impl_->session->output(ports.positions[position])),
          bytes_of(tensor.type, tensor.shape)};
}

template <class T>
std::span<T> NetworkSession::input(std::string_view name) {
  const std::span<std::byte> bytes = input(impl_->inputs.find(name, type_of_elements<T>(), "input"));
  return {reinterpret_cast<T*>(bytes.data()), bytes.size() / sizeof(T)};
}

template <class T>
std::span<const T> NetworkSession::output(std::string_view name) const {
  const std::span<const std::byte> bytes = output(impl_->outputs.find(name, type_of_elements<T>(), "output"));
  return {reinterpret_cast<const T*>(bytes.data()), bytes.size() / sizeof(T)};
}

// NOLINTBEGIN(bugprone-macro-parentheses): a type cannot be in parentheses
#define PENSTOCK_ELEMENTS(T)                                             \
  template std::span<T> NetworkSession::input<T>(std::string_view name); \
  template std::span<const T> NetworkSession::output<T>(std::string_view name) const;
// NOLINTEND(bugprone-macro-parentheses)
PENSTOCK_ELEMENTS(float)
PENSTOCK_ELEMENTS(double)
PENSTOCK_ELEMENTS(std::int8_t)
PENSTOCK_ELEMENTS(std::uint8_t)
PENSTOCK_ELEMENTS(std::int32_t)
PENSTOCK_ELEMENTS(std::int64_t)
PENSTOCK_ELEMENTS(bool)
#undef PENSTOCK_ELEMENTS

void NetworkSession::run() { impl_->session->run(); }
void NetworkSession::reset() { impl_->session->reset(); }

std::vector<std::byte> NetworkSession::state() const {
  std::vector<std::byte> bytes(impl_->session->state_bytes());
  copy_state(bytes);
  return bytes;
}

void NetworkSession::copy_state(std::span<std::byte> state) const {
  impl_->require_state(state.size());
  impl_->session->read_state(state.data());
}

void NetworkSession::set_state(std::span<const std::byte> state) {
  impl_->require_state(state.size());
  impl_->session->write_state(state.data());
}

NetworkSession NetworkSession::clone(const NetworkShapes& shapes) const {
  NetworkSession other(std::make_unique<Impl>(impl_->of, shapes, impl_->transforms));
  const std::size_t bytes = impl_->session->state_bytes(), needed = other.impl_->session->state_bytes();
  require(bytes == needed, "shapes: the state has {} bytes, and {} with these shapes: open another session", bytes,
          needed);
  other.set_state(state());
  return other;
}

NetworkSession NetworkSession::clone() const { return NetworkSession(std::make_unique<Impl>(*impl_)); }

}  // namespace penstock
