#pragma once

#include <cstddef>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "penstock/types.h"

/// Published models: networks of any structure, read from the files of other programs, run whole or as a stream with
/// their state inside.
///
///     const penstock::Network vad = penstock::Network::import_onnx("silero_vad.onnx", {.fixed = {{"sr", {16000}}}});
///     penstock::NetworkSession session(vad, {{"input", {1, 576}}});
///     std::ranges::copy(samples, session.input<float>("input").begin());
///     session.run();
///     const float probability = session.output<float>("output")[0];
namespace penstock {

/// An input, an output or a state of a network.
struct NetworkTensor {
  std::string name;
  std::string type;                    ///< "f32", "f64", "i8", "u8", "i32", "i64" or "bool"; empty: known in a session.
  std::vector<Index> shape = {};       ///< -1: an extent that the caller chooses. Of outputs: known in a session.
  std::vector<std::string> axes = {};  ///< Of inputs: names of extents; equal names have equal extents. "": none.
  Index delay = 0;  ///< Of outputs of a stream: so many frames come before the first of the whole sequence.
};

/// An input whose next value is an output. A session keeps it, so that neither is part of its interface.
struct NetworkState {
  NetworkTensor input;
  std::string output;  ///< Name of its next value.
};

/// Options of an import.
struct NetworkImport {
  /// Values of inputs that become constants, such as {"sr", {16000}}: one for all elements, or one for each.
  std::map<std::string, std::vector<double>> fixed = {};
  /// Inputs and the outputs that are their next values, in addition to those that are found.
  std::vector<std::pair<std::string, std::string>> states = {};
  /// False: `states` are all states.
  bool find_states = true;
  /// Makes a network of whole sequences one for chunks of any length: convolutions keep the frames before a chunk,
  /// recurrences their states. Refused if a frame depends on later ones or on the whole sequence.
  bool stream = false;
  /// The extent that is time, by its name, or "axis 1"; empty: the one along which frames depend on each other.
  std::string time = {};
};

/// A node LSTM, GRU or RNN of an ONNX file whose weights the file stores.
struct OnnxLayer {
  /// A weight of one direction, row-major, in PyTorch's form and order of gates.
  struct Weight {
    std::string name;  ///< "weight_ih_l0", or "weight_ih_l0_reverse"; also weight_hh, bias_ih and bias_hh.
    std::string type;  ///< "f32" or "f64"
    std::vector<Index> shape;
    std::span<const std::byte> values;
    std::shared_ptr<const void> owner;
  };
  std::string name;  ///< Of the node; of its first output if the node has none, or shares it.
  std::string cell;  ///< A built-in cell, or the JSON of a custom cell.
  std::vector<Weight> weights;
};

/// Reads the layers of an ONNX file, whatever its other nodes are, or with `name` this layer alone. Layers in a branch
/// that a stored condition never takes are left out. Throws Error: io_failure if the file cannot be read; bad_input if
/// it is damaged, or has no such layer; unsupported for a layer whose weights are computed, whose initial state is
/// stored, which no cell has, or which is in a graph of an operator other than If, Loop and Scan, and for a file with
/// sparse tensors.
std::vector<OnnxLayer> read_onnx_layers(const std::string& path, const std::optional<std::string>& name = {});

/// Extents of inputs by name.
using NetworkShapes = std::map<std::string, std::vector<Index>>;

/// A network of any structure. Immutable and cheap to copy; copies share its weights.
class Network {
 public:
  /// Reads an ONNX file with operators of version 7 to 24. Files with external data have to lie in its folder. What
  /// depends on constants alone is computed; half precision becomes float; LSTM, GRU and RNN become layers of Penstock.
  ///
  /// Throws Error: io_failure if the file cannot be read; bad_input if it is damaged; unsupported, with node, operator
  /// and reason, for what networks here do not have, or with the candidates if it is not clear which inputs are states;
  /// invalid_argument for options that do not match the file.
  static Network import_onnx(const std::string& path, const NetworkImport& options = {});
  /// Reads an ONNX file from memory. `source` names it in messages.
  static Network import_onnx(std::span<const std::byte> file, const NetworkImport& options = {},
                             const std::string& source = "the model");
  /// Reads a model of an amplifier or effect as a stream of samples, "input" [batch, time, I] to "output"
  /// [batch, time, O]: JSON of RTNeural, with the extensions of AIDA-X; of GuitarML (SimpleRNN of
  /// Automated-GuitarAmpModelling); or an LSTM of Neural Amp Modeler (.nam). Initial states of a .nam fix the batch to
  /// 1. Throws Error: io_failure if the file cannot be read; bad_input if it is damaged; unsupported, with layer and
  /// reason, for what networks here do not have; incompatible for other JSON.
  static Network import_audio(const std::string& path);
  /// Reads such a model from memory. `source` names it in messages.
  static Network import_audio(std::span<const std::byte> file, const std::string& source = "the model");
  /// Reads a file that save() wrote. Throws Error: io_failure; incompatible if the file holds no network; bad_input
  /// that names the place if it is damaged.
  static Network load(const std::string& path);
  /// Writes a safetensors file with a checksum. `path` is replaced whole or not at all. Throws Error(io_failure).
  void save(const std::string& path) const;

  /// Returns a network whose nodes of these names, of int8_layers(), have matrices of int8 with one scale for each
  /// output. They become floats when a session opens; with `round_inputs` see QuantizeOptions. Throws
  /// Error(invalid_argument) for other names.
  Network with_int8(std::span<const std::string> layers, bool round_inputs = false) const;

  /// Returns a network that gives each row of a batch the results that the row has alone, where values become int8
  /// with a range that is found at run time: this one has one range for the whole batch, as ONNX says. `one` and `two`
  /// are shapes for one row and for two, as for NetworkSession. A SessionPool calls this. The C runtime refuses
  /// files of such networks. Throws Error as NetworkSession; unsupported, with the node, if the rows of a range
  /// have no axis for themselves.
  Network with_row_ranges(const NetworkShapes& one, const NetworkShapes& two) const;

  /// Inputs and outputs without states, in the order of the file.
  const std::vector<NetworkTensor>& inputs() const;
  const std::vector<NetworkTensor>& outputs() const;
  const std::vector<NetworkState>& states() const;
  /// Operators and how many nodes have each, those of bodies included.
  std::map<std::string, Index> operators() const;
  /// Samples per second of a stream of sound; 0: the imported file did not say.
  double sample_rate() const;
  /// Number of values in all constants.
  Index parameters() const;

  struct Impl;

 private:
  friend class NetworkSession;
  friend std::vector<std::string> int8_layers(const Network& network);
  friend std::string to_rtneural(const Network& network);
  explicit Network(std::shared_ptr<const Impl> impl) : impl_(std::move(impl)) {}
  std::shared_ptr<const Impl> impl_;
};

/// A network prepared for the shapes of its inputs, with its state, which is zero at first. A run allocates nothing.
/// One thread at a time may use a session; sessions of one network share its weights.
class NetworkSession {
 public:
  /// Prepares a network. `shapes` has the shape of each input with extents that the caller chooses; those of states
  /// follow from inputs with the same names of extents, and are 1 otherwise, unless `shapes` has the state by the name
  /// of its input. Throws Error: invalid_argument for a missing, unknown or wrong shape; unsupported or bad_input, with
  /// node, operator and reason, if the network cannot run with these shapes.
  /// With `transforms`, convolutions whose filters are those of a windowed Fourier transform run as fast transforms, as
  /// in a SessionPool. Their answers differ by rounding from those of the products, which the C runtime computes.
  explicit NetworkSession(const Network& network, const NetworkShapes& shapes = {}, bool transforms = false);
  ~NetworkSession();
  NetworkSession(NetworkSession&& other) noexcept;
  NetworkSession& operator=(NetworkSession&& other) noexcept;

  /// Inputs and outputs with all types and extents.
  const std::vector<NetworkTensor>& inputs() const;
  const std::vector<NetworkTensor>& outputs() const;

  /// Returns where to write an input before a run, and where an output lies after it, row-major, until the session
  /// ends. By position in inputs() and outputs(). Throw Error(invalid_argument) for another position.
  std::span<std::byte> input(std::size_t position);
  std::span<const std::byte> output(std::size_t position) const;
  /// The same by name, as elements of type T. Throw Error(invalid_argument) for another name or type. What the network
  /// calls i8, u8 and bool are std::int8_t, std::uint8_t and bool.
  template <class T>
  std::span<T> input(std::string_view name);
  template <class T>
  std::span<const T> output(std::string_view name) const;

  /// Computes the outputs and the next state.
  void run();
  /// Sets the state to zero.
  void reset();
  /// Copies the state, one NetworkState after the other. Throws Error(invalid_argument) for another number of bytes.
  std::vector<std::byte> state() const;
  void copy_state(std::span<std::byte> state) const;
  void set_state(std::span<const std::byte> state);
  /// Returns a session with the same shapes and state.
  NetworkSession clone() const;
  /// Returns a session with the same state for other shapes: of a stream, chunks of another length. Throws Error as the
  /// constructor does; invalid_argument if the state has another size with these shapes.
  NetworkSession clone(const NetworkShapes& shapes) const;

  struct Impl;

 private:
  explicit NetworkSession(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace penstock
