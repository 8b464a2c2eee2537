#include "graph/graph.h"

namespace penstock::graph {

Index Value::count(const ops::Target& target) const {
  switch (extent) {
    case Extent::positions:
      return target.positions() * width;
    case Extent::rows:
      return target.rows * width;
    case Extent::fixed:
      return width;
  }
  return 0;
}

ValueId Graph::add(Value value) {
  values_.push_back(std::move(value));
  return {static_cast<int>(values_.size()) - 1};
}

void Graph::add(Node node) { nodes_.push_back(std::move(node)); }

}  // namespace penstock::graph
