#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/check.h"
#include "io/onnx/read/messages.h"
#include "network/network.h"

namespace penstock::io::onnx {

/// A node of a file on its way into a network: as the file has it, but for its attributes' types. Conversions change
/// `node` and add nodes in front of it.
class Draft {
 public:
  Draft(network::Network& network, const NodeMessage& message, Index opset, std::string source)
      : network_(network), message_(message), opset_(opset), source_(std::move(source)) {}

  network::Node node;

  const NodeMessage& message() const { return message_; }
  /// The version of the operators in the file.
  Index opset() const { return opset_; }
  /// "vad.onnx: LSTM 'rnn'".
  const std::string& source() const { return source_; }
  template <class... Args>
  [[noreturn]] void refuse(ErrorCode code, fmt::format_string<Args...> reason, Args&&... args) const {
    fail(code, "{}: {}", source_, fmt::format(reason, std::forward<Args>(args)...));
  }

  bool has(std::size_t read) const { return read < node.reads.size() && node.reads[read] >= 0; }
  int read(std::size_t i) const { return has(i) ? node.reads[i] : -1; }
  void set_read(std::size_t i, int value);
  bool writes(std::size_t i) const { return i < node.writes.size() && node.writes[i] >= 0; }
  /// The constant that a value is; null if it is computed.
  const network::Constant* known(int value) const;

  /// Removes an attribute and returns it; empty without a name if there is none.
  network::Attribute take(std::string_view name);
  Index take_integer(std::string_view name, Index otherwise);
  void set(std::string_view name, std::vector<Index> integers);

  /// Adds a value that a node added later writes.
  int value();
  int constant(network::Constant constant);
  int integers(std::span<const Index> values);
  int integers(std::initializer_list<Index> values) { return integers(std::span(values.begin(), values.size())); }
  int integer(Index value);
  int number(float value);
  /// Adds a node and returns what it writes.
  int apply(std::string_view op, std::vector<int> reads, std::vector<network::Attribute> attributes = {});
  /// Adds a node that writes `writes`.
  void add(std::string_view op, std::vector<int> reads, std::vector<int> writes,
           std::vector<network::Attribute> attributes = {});
  /// Adds `node`.
  void finish();

 private:
  network::Network& network_;
  const NodeMessage& message_;
  Index opset_;
  std::string source_;
};

/// Adds the node in the form of the newest operators.
void convert(Draft& draft);

/// Adds the nodes of an LSTM, GRU, RNN or DynamicQuantizeLSTM.
void convert_recurrent(Draft& draft);

/// What a recurrent operator has besides its weights.
struct CellForm {
  std::string_view op;                   ///< "LSTM", "GRU" or "RNN"
  std::vector<std::string> activations;  ///< Of one direction after the other, as ONNX names them.
  std::size_t each = 1;                  ///< Activations of one direction.
  std::vector<float> alpha, beta;        ///< Their parameters.
  float clip = 0;                        ///< 0: none.
  bool coupled = false, peepholes = false, reset_after = false;
};

/// Returns the name of a built-in cell or the JSON of a custom cell. Throws Error(unsupported) if there is none.
std::string cell_of(const CellForm& form, const Draft& draft);

}  // namespace penstock::io::onnx
