// Which values of a forward pass the backward pass reads from memory, and which it computes again: a minimum cut.

#include <algorithm>
#include <limits>
#include <queue>

#include "custom/cell.h"

namespace penstock::custom {

namespace {

/// Writing a value and reading it later, in additions of one unit.
constexpr int kKeepCost = 12;
constexpr int kInfinite = std::numeric_limits<int>::max() / 4;

/// Maximum flow by shortest augmenting paths.
class Network {
 public:
  explicit Network(int vertices) : edges_of_(static_cast<std::size_t>(vertices)) {}

  void connect(int from, int to, int capacity) {
    edges_of_[static_cast<std::size_t>(from)].push_back(edges_.size());
    edges_.push_back({to, capacity});
    edges_of_[static_cast<std::size_t>(to)].push_back(edges_.size());
    edges_.push_back({from, 0});
  }

  /// Saturates the network. Returns which vertices are on the source's side of the minimum cut.
  std::vector<bool> cut(int source, int sink) {
    while (search(source) && came_by_[static_cast<std::size_t>(sink)] != kNone) augment(source, sink);
    std::vector<bool> on_side;
    for (const std::size_t edge : came_by_) on_side.push_back(edge != kNone);
    on_side[static_cast<std::size_t>(source)] = true;
    return on_side;
  }

 private:
  static constexpr std::size_t kNone = static_cast<std::size_t>(-1);
  struct Edge {
    int to, capacity;
  };

  bool search(int source) {
    came_by_.assign(edges_of_.size(), kNone);
    std::queue<int> open;
    open.push(source);
    while (!open.empty()) {
      const int vertex = open.front();
      open.pop();
      for (const std::size_t edge : edges_of_[static_cast<std::size_t>(vertex)]) {
        const int to = edges_[edge].to;
        if (edges_[edge].capacity == 0 || to == source || came_by_[static_cast<std::size_t>(to)] != kNone) continue;
        came_by_[static_cast<std::size_t>(to)] = edge;
        open.push(to);
      }
    }
    return true;
  }

  void augment(int source, int sink) {
    int flow = kInfinite;
    const auto for_each_edge = [&](const auto& visit) {
      for (int vertex = sink; vertex != source;) {
        const std::size_t edge = came_by_[static_cast<std::size_t>(vertex)];
        visit(edge);
        vertex = edges_[edge ^ 1].to;
      }
    };
    for_each_edge([&](std::size_t edge) { flow = std::min(flow, edges_[edge].capacity); });
    for_each_edge([&](std::size_t edge) {
      if (edges_[edge].capacity < kInfinite) edges_[edge].capacity -= flow;
      if (edges_[edge ^ 1].capacity < kInfinite) edges_[edge ^ 1].capacity += flow;
    });
  }

  std::vector<std::vector<std::size_t>> edges_of_;
  std::vector<Edge> edges_;
  std::vector<std::size_t> came_by_;
};

/// Nodes that depend on a gradient; the others have a value already in the forward pass.
std::vector<bool> depend_on_gradients(const ExpressionGraph& graph) {
  std::vector<bool> depends(static_cast<std::size_t>(graph.size()));
  for (NodeId id = 0; id < graph.size(); ++id) {
    const Node& node = graph[id];
    bool any = node.operation == Operation::gradient;
    for (const NodeId operand : node.operands()) any = any || depends[static_cast<std::size_t>(operand)];
    depends[static_cast<std::size_t>(id)] = any;
  }
  return depends;
}

bool is_free(const Node& node) {
  return node.operation == Operation::constant || node.operation == Operation::state ||
         node.operation == Operation::learnt;
}

}  // namespace

std::vector<NodeId> choose_kept(const ExpressionGraph& graph, std::span<const NodeId> outputs,
                                std::span<const NodeId> roots, int (*cost_of)(Operation)) {
  const std::vector<bool> used = reachable(graph, roots), forward = reachable(graph, outputs);
  const std::vector<bool> depends = depend_on_gradients(graph);
  // A node is two vertices: "is needed", 2 id, and "is computed again", 2 id + 1.
  const int source = 2 * graph.size(), sink = source + 1;
  Network network(sink + 1);
  std::vector<bool> is_root(used.size());
  for (const NodeId root : roots) is_root[static_cast<std::size_t>(root)] = true;
  for (NodeId id = 0; id < graph.size(); ++id) {
    const Node& node = graph[id];
    const auto i = static_cast<std::size_t>(id);
    if (!used[i]) continue;
    for (const NodeId operand : node.operands()) {
      const bool wanted = !depends[static_cast<std::size_t>(operand)] && !is_free(graph[operand]);
      if (!wanted) continue;
      if (depends[i]) {
        network.connect(source, 2 * operand, kInfinite);
      } else {
        network.connect(2 * id + 1, 2 * operand, kInfinite);
      }
    }
    if (depends[i] || is_free(node)) continue;
    if (is_root[i]) network.connect(source, 2 * id, kInfinite);
    const bool is_leaf = node.operands().empty();
    network.connect(2 * id, 2 * id + 1, kKeepCost + (forward[i] ? 0 : cost_of(node.operation)));
    network.connect(2 * id + 1, sink, is_leaf ? kInfinite : cost_of(node.operation));
  }
  const std::vector<bool> on_side = network.cut(source, sink);
  std::vector<NodeId> kept;
  for (std::size_t id = 0; id < used.size(); ++id) {
    if (on_side[2 * id] && !on_side[2 * id + 1]) kept.push_back(static_cast<NodeId>(id));
  }
  return kept;
}

}  // namespace penstock::custom
