#pragma once

#include <map>
#include <span>
#include <string>
#include <vector>

#include "penstock/onnx.h"
#include "penstock/types.h"

namespace penstock::io {

/// What a node of ONNX is told besides its inputs, ready to be written.
class OnnxAttribute {
 public:
  OnnxAttribute(const std::string& name, Index value);
  OnnxAttribute(const std::string& name, const std::string& value);
  OnnxAttribute(const std::string& name, const std::vector<Index>& values);
  OnnxAttribute(const std::string& name, const std::vector<std::string>& values);
  /// A body: what OnnxGraph::encoded() says.
  static OnnxAttribute graph(const std::string& name, const std::string& encoded);

  const std::string& encoded() const { return encoded_; }

 private:
  OnnxAttribute() = default;
  std::string encoded_;
};
using OnnxAttributes = std::vector<OnnxAttribute>;

/// A graph of ONNX's operators, as it is written down: the model's or a loop's body. Values are known by their names,
/// of which every one is made once.
class OnnxGraph {
 public:
  /// `prefix` begins the names of all that is made here, so that a body's are none of its model's.
  explicit OnnxGraph(std::string prefix) : prefix_(std::move(prefix)) {}

  /// From now on `prefix` begins names, for those who read the graph.
  void enter(const std::string& prefix) { prefix_ = prefix; }

  /// Adds a node; "" among the inputs is one that is absent. The name of its only output, or of the first `outputs`.
  std::string node(const std::string& op, const std::vector<std::string>& inputs,
                   const OnnxAttributes& attributes = {});
  std::vector<std::string> node(int outputs, const std::string& op, const std::vector<std::string>& inputs,
                                const OnnxAttributes& attributes = {});

  // Constants. The same one has the same name.
  std::string scalar(float value);
  std::string integers(const std::vector<Index>& values);
  std::string flags(const std::vector<bool>& values);
  /// A tensor of weights; `name` is changed if there is one already.
  std::string floats(const std::string& name, const std::vector<Index>& shape, std::span<const float> values);
  std::string doubles(const std::string& name, std::span<const double> values);

  /// A value as "float" or "double".
  std::string cast(const std::string& value, const std::string& type);

  void input(OnnxTensor tensor) { inputs_.push_back(std::move(tensor)); }
  /// `value` comes out as `tensor`, under a name that nothing else has.
  void output(OnnxTensor tensor, const std::string& value);
  const std::vector<OnnxTensor>& inputs() const { return inputs_; }
  const std::vector<OnnxTensor>& outputs() const { return outputs_; }

  /// The graph as a message, without nodes and constants that no output needs.
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
  std::map<std::string, std::string> known_constants_;  // by what they are
  std::vector<OnnxTensor> inputs_, outputs_;
  int made_ = 0;
};

}  // namespace penstock::io
