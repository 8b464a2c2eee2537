// Instead of the layer network and what reads its files, in builds with -D PENSTOCK_NETWORKS=OFF. No function returns a
// Network there, so only those that make one can be called.

#include "base/check.h"
#include "io/network_file.h"
#include "penstock/network.h"
#include "penstock/quantize.h"
#include "penstock/rtneural.h"

namespace penstock {
namespace {

[[noreturn]] void no_networks() {
  fail(ErrorCode::unsupported,
       "this build of Penstock has no imported networks: build it without -D PENSTOCK_NETWORKS=OFF");
}

}  // namespace

struct Network::Impl {};
struct NetworkSession::Impl {};

Network Network::import_onnx(const std::string&, const NetworkImport&) { no_networks(); }
Network Network::import_onnx(std::span<const std::byte>, const NetworkImport&, const std::string&) { no_networks(); }
Network Network::import_audio(const std::string&) { no_networks(); }
Network Network::import_audio(std::span<const std::byte>, const std::string&) { no_networks(); }
Network Network::load(const std::string&) { no_networks(); }
std::vector<OnnxLayer> read_onnx_layers(const std::string&, const std::optional<std::string>&) { no_networks(); }

network::Network io::read_network(const SafetensorsFile&) { no_networks(); }

void Network::save(const std::string&) const { no_networks(); }
Network Network::with_int8(std::span<const std::string>, bool) const { no_networks(); }
Network Network::with_row_ranges(const NetworkShapes&, const NetworkShapes&) const { no_networks(); }
const std::vector<NetworkTensor>& Network::inputs() const { no_networks(); }
const std::vector<NetworkTensor>& Network::outputs() const { no_networks(); }
const std::vector<NetworkState>& Network::states() const { no_networks(); }
std::map<std::string, Index> Network::operators() const { no_networks(); }
double Network::sample_rate() const { no_networks(); }
Index Network::parameters() const { no_networks(); }
std::string to_rtneural(const Network&) { no_networks(); }
void save_rtneural(const Network&, const std::string&) { no_networks(); }
std::vector<std::string> int8_layers(const Network&) { no_networks(); }
QuantizedNetwork quantize(const Network&, const std::function<double(const Network&)>&, const QuantizeOptions&) {
  no_networks();
}

NetworkSession::NetworkSession(const Network&, const NetworkShapes&, bool) { no_networks(); }
NetworkSession::~NetworkSession() = default;
NetworkSession::NetworkSession(NetworkSession&&) noexcept = default;
NetworkSession& NetworkSession::operator=(NetworkSession&&) noexcept = default;
const std::vector<NetworkTensor>& NetworkSession::inputs() const { no_networks(); }
const std::vector<NetworkTensor>& NetworkSession::outputs() const { no_networks(); }
std::span<std::byte> NetworkSession::input(std::size_t) { no_networks(); }
std::span<const std::byte> NetworkSession::output(std::size_t) const { no_networks(); }
void NetworkSession::run() { no_networks(); }
void NetworkSession::reset() { no_networks(); }
std::vector<std::byte> NetworkSession::state() const { no_networks(); }
void NetworkSession::copy_state(std::span<std::byte>) const { no_networks(); }
void NetworkSession::set_state(std::span<const std::byte>) { no_networks(); }
NetworkSession NetworkSession::clone() const { no_networks(); }
NetworkSession NetworkSession::clone(const NetworkShapes&) const { no_networks(); }

}  // namespace penstock
