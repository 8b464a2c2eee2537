#pragma once

#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "io/onnx/read/messages.h"

namespace penstock::io::onnx {

/// Names the recurrent nodes of a file, and says which of them are wanted. Those become Recurrent nodes.
class LayerNames {
 public:
  enum class Use {
    needed,    ///< A wanted layer, or what may hold layers: it is converted, or the file refused.
    optional,  ///< It may compute weights: it is converted if it can be.
    kept,      ///< An unwanted layer, or a node of another domain: nobody knows what it computes.
  };

  /// `only`: the layer that is wanted; otherwise all are.
  LayerNames(const ModelMessage& model, std::optional<std::string> only);

  /// Returns what a node is for, and gives it its name if it becomes a layer.
  Use take(const NodeMessage& node, std::string& name);
  /// Throws Error if there is nothing to be read.
  void check(const std::string& source) const;
  /// "LSTM 'rnn'".
  std::string title(const std::string& name) const;

 private:
  std::optional<std::string> only_;
  std::map<std::string_view, int> counts_;  ///< How many nodes have a name.
  std::map<std::string, std::string> operators_;
  std::map<std::string, int> copies_;  ///< Of a name, such as those of a function that is called again.
  std::vector<std::string> names_;
  std::set<std::string> others_;
  std::string foreign_;
};

}  // namespace penstock::io::onnx
