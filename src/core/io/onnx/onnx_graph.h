#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "penstock/onnx.h"
#include "penstock/types.h"

/// A graph of ONNX operators under construction: the graph of a model or the body of a loop.
namespace penstock::io {

/// An attribute of an ONNX node, encoded.
class OnnxAttribute {
 public:
  OnnxAttribute(const std::string& name, Index value);
  OnnxAttribute(const std::string& name, const std::string& value);
  OnnxAttribute(const std::string& name, const std::vector<Index>& values);
  OnnxAttribute(const std::string& name, const std::vector<std::string>& values);
  /// Makes an attribute of a graph, such as a loop body, from OnnxGraph::encoded().
  static OnnxAttribute graph(const std::string& name, const std::string& encoded);

  const std::string& encoded() const { return encoded_; }

 private:
  OnnxAttribute() = default;
  std::string encoded_;
};
using OnnxAttributes = std::vector<OnnxAttribute>;

/// Returns values [rows, columns] as [columns, rows]. ONNX multiplies by matrices from the right.
template <class T>
std::vector<T> transposed(std::span<const T> values, Index rows, Index columns) {
  std::vector<T> result;
  result.reserve(values.size());
  for (Index j = 0; j < columns; ++j) {
    for (Index i = 0; i < rows; ++i) result.push_back(values[static_cast<std::size_t>(i * columns + j)]);
  }
  return result;
}

/// What operators begin with that only onnxruntime has, such as "com.microsoft.DynamicQuantizeLSTM".
inline constexpr std::string_view kOnnxRuntime = "com.microsoft";

/// A graph of ONNX operators. Values are identified by unique names.
class OnnxGraph {
 public:
  /// `prefix` begins the names of all values made here, so names in a loop body differ from those of the model.
  explicit OnnxGraph(std::string prefix) : prefix_(std::move(prefix)) {}

  /// Sets the prefix of the names from now on, for people who read the graph.
  void enter(const std::string& prefix) { prefix_ = prefix; }

  /// Adds a node and returns the name of its output, or of its first `outputs` outputs. An empty input name means an
  /// absent input. An operator of onnxruntime alone begins with kOnnxRuntime.
  std::string node(const std::string& op, const std::vector<std::string>& inputs,
                   const OnnxAttributes& attributes = {});
  std::vector<std::string> node(int outputs, const std::string& op, const std::vector<std::string>& inputs,
                                const OnnxAttributes& attributes = {});

  // Constants: return their names. Equal constants have one name.
  std::string scalar(float value);
  std::string integers(const std::vector<Index>& values);
  std::string flags(const std::vector<bool>& values);
  /// Adds a tensor of weights. `name` is changed if it exists already.
  std::string floats(const std::string& name, const std::vector<Index>& shape, std::span<const float> values);
  std::string doubles(const std::string& name, std::span<const double> values);
  std::string bytes(const std::string& name, const std::vector<Index>& shape, std::span<const std::int8_t> values);
  std::string byte(std::uint8_t value);

  /// Casts a value to "float", "double" or "uint8".
  std::string cast(const std::string& value, const std::string& type);

  void input(OnnxTensor tensor) { inputs_.push_back(std::move(tensor)); }
  /// Makes `value` the output `tensor`, whose name must be unique.
  void output(OnnxTensor tensor, const std::string& value);
  const std::vector<OnnxTensor>& inputs() const { return inputs_; }
  const std::vector<OnnxTensor>& outputs() const { return outputs_; }

  /// Returns whether a node needs onnxruntime.
  bool needs_onnxruntime() const;

  /// Returns the encoded graph, without nodes and constants that no output needs.
  std::string encoded(const std::string& name) const;

 private:
  struct Node {
    std::string op;
    std::vector<std::string> inputs, outputs;
    OnnxAttributes attributes;
  };
  struct Constant {
    std::string name, encoded;
  };

  std::string free_name(const std::string& name);
  std::string constant(const std::string& name, int type, const std::vector<Index>& shape, const std::string& bytes);

  std::string prefix_;
  std::vector<Node> nodes_;
  std::vector<Constant> constants_;
  std::map<std::string, std::string> known_constants_;  // by content
  std::vector<OnnxTensor> inputs_, outputs_;
  int made_ = 0;
};

}  // namespace penstock::io
