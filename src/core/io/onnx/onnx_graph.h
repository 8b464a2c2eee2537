#pragma once

#include <map>
#include <span>
#include <string>
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
std::vector<float> transposed(std::span<const float> values, Index rows, Index columns);

/// A graph of ONNX operators. Values are identified by unique names.
class OnnxGraph {
 public:
  /// `prefix` begins the names of all values made here, so names in a loop body differ from those of the model.
  explicit OnnxGraph(std::string prefix) : prefix_(std::move(prefix)) {}

  /// Sets the prefix of the names from now on, for people who read the graph.
  void enter(const std::string& prefix) { prefix_ = prefix; }

  /// Adds a node and returns the name of its output, or of its first `outputs` outputs. An empty input name means an
  /// absent input.
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

  /// Casts a value to "float" or "double".
  std::string cast(const std::string& value, const std::string& type);

  void input(OnnxTensor tensor) { inputs_.push_back(std::move(tensor)); }
  /// Makes `value` the output `tensor`, whose name must be unique.
  void output(OnnxTensor tensor, const std::string& value);
  const std::vector<OnnxTensor>& inputs() const { return inputs_; }
  const std::vector<OnnxTensor>& outputs() const { return outputs_; }

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
