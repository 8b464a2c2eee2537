#include "custom/derive.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <numbers>
#include <utility>

namespace penstock::custom {

namespace {

/// Means over the units of a head, with factors that all units share in front, and without the mean of what is centred.
/// A gradient that flows through a norm then waits for as few means one after the other as it has to.
class Means {
 public:
  explicit Means(ExpressionGraph& graph) : f_(graph) {}

  NodeId of(NodeId x) {
    const auto found = means_.find(x);
    if (found != means_.end()) return found->second;
    const NodeId mean = is_shared(x) ? x : simplified(x);
    return means_[x] = mean != kNoNode ? mean : f_.make(Operation::mean, x);
  }

 private:
  bool is_shared(NodeId x) {
    const auto found = shared_.find(x);
    if (found != shared_.end()) return found->second;
    const Node& node = f_[x];
    const auto operands = node.operands();
    const bool of_shared = !operands.empty() && std::all_of(operands.begin(), operands.end(),
                                                            [&](NodeId operand) { return is_shared(operand); });
    return shared_[x] = of_shared || node.operation == Operation::constant || node.operation == Operation::mean;
  }
  bool is_centred(const Node& node) const {
    const Node& mean = f_[node.of[1]];
    return mean.operation == Operation::mean && mean.of[0] == node.of[0];
  }
  bool is_mean_of(NodeId mean, NodeId x) const { return f_[mean].operation == Operation::mean && f_[mean].of[0] == x; }

  /// Returns the mean of x as something simpler than a mean of x itself, or kNoNode.
  NodeId simplified(NodeId x) {
    const Node node = f_[x];  // a copy: the graph grows below
    const auto [a, b, c] = node.of;
    switch (node.operation) {
      case Operation::add:
        return joined(node.operation, a, b);
      case Operation::subtract:
        return is_centred(node) ? f_.constant(0) : joined(node.operation, a, b);
      case Operation::multiply:
        return is_shared(a) ? times(a, b) : is_shared(b) ? times(b, a) : kNoNode;
      case Operation::divide:
        return is_shared(b) ? f_.make(Operation::divide, of(a), b) : kNoNode;
      default:
        return kNoNode;
    }
  }
  NodeId joined(Operation operation, NodeId a, NodeId b) {
    const NodeId mean_a = of(a), mean_b = of(b);
    if (is_mean_of(mean_a, a) && is_mean_of(mean_b, b)) return kNoNode;
    return f_.make(operation, mean_a, mean_b);
  }
  NodeId times(NodeId shared, NodeId x) {
    const NodeId mean = of(x);
    return f_.is_constant(mean, 0) ? mean : f_.make(Operation::multiply, shared, mean);
  }

  ExpressionGraph& f_;
  std::map<NodeId, NodeId> means_;
  std::map<NodeId, bool> shared_;
};

/// The derivative of node `id` with respect to its operand `i`, times d. Real derivatives are symmetric: the result is
/// what a gradient d of the node adds to the operand's, and what a tangent d of the operand adds to the node's.
class Slope {
 public:
  Slope(ExpressionGraph& graph, Means& means, NodeId id, std::size_t i, NodeId d)
      : f_(graph), means_(means), node_(graph[id]), id_(id), i_(i), d_(d) {}

  NodeId times() {
    const auto [a, b, c] = node_.of;
    switch (node_.operation) {
      case Operation::add:
        return d_;
      case Operation::subtract:
        return i_ == 0 ? d_ : f_.negative(d_);
      case Operation::multiply:
        return product(d_, node_.of[1 - i_]);
      case Operation::divide:
        return of_divide(b);
      case Operation::multiply_add:
        return i_ == 2 ? d_ : product(d_, node_.of[1 - i_]);
      case Operation::subtract_product:
        return i_ == 2 ? d_ : f_.negative(product(d_, node_.of[1 - i_]));
      case Operation::min:
        return i_ == 0 ? where(less(b, a), zero(), d_) : where(less(b, a), d_, zero());
      case Operation::max:
        return i_ == 0 ? where(less(a, b), zero(), d_) : where(less(a, b), d_, zero());
      case Operation::clamp:
        return of_clamp(a, b, c);
      case Operation::where:
        return of_where(a);
      default:
        return of_function(a);
    }
  }

 private:
  NodeId zero() { return f_.constant(0); }
  NodeId one() { return f_.constant(1); }
  NodeId product(NodeId a, NodeId b) { return f_.make(Operation::multiply, a, b); }
  NodeId difference(NodeId a, NodeId b) { return f_.make(Operation::subtract, a, b); }
  NodeId less(NodeId a, NodeId b) { return f_.make(Operation::less, a, b); }
  NodeId where(NodeId condition, NodeId a, NodeId b) { return f_.make(Operation::where, condition, a, b); }
  NodeId of(Operation operation, NodeId a) { return f_.make(operation, a); }

  NodeId of_divide(NodeId b) {
    const NodeId share = f_.make(Operation::divide, d_, b);
    return i_ == 0 ? share : f_.negative(product(share, id_));
  }

  NodeId of_clamp(NodeId x, NodeId low, NodeId high) {
    const NodeId below = less(x, low), above = less(high, x);
    if (i_ == 1) return where(below, d_, zero());
    if (i_ == 2) return where(below, zero(), where(above, d_, zero()));
    return where(below, zero(), where(above, zero(), d_));
  }

  NodeId of_where(NodeId condition) {
    if (i_ == 0) return kNoNode;
    return i_ == 1 ? where(condition, d_, zero()) : where(condition, zero(), d_);
  }

  /// Functions of one argument, by their value y = node where that is cheaper. Comparisons have no slope.
  NodeId of_function(NodeId x) {
    const NodeId y = id_;
    switch (node_.operation) {
      case Operation::exp:
        return product(d_, y);
      case Operation::log:
        return f_.make(Operation::divide, d_, x);
      case Operation::tanh:
        return product(d_, difference(one(), product(y, y)));
      case Operation::sigmoid:
        return product(product(d_, y), difference(one(), y));
      case Operation::softplus:
        return product(d_, of(Operation::sigmoid, x));
      case Operation::relu:
        return where(less(zero(), x), d_, zero());
      case Operation::erf:
        return product(
            d_, product(f_.constant(2 * std::numbers::inv_sqrtpi), of(Operation::exp, f_.negative(product(x, x)))));
      case Operation::sin:
        return product(d_, of(Operation::cos, x));
      case Operation::cos:
        return f_.negative(product(d_, of(Operation::sin, x)));
      case Operation::sqrt:
        return f_.make(Operation::divide, product(d_, f_.constant(0.5)), y);
      case Operation::mean:
        return means_.of(d_);
      case Operation::abs:
        return where(less(x, zero()), f_.negative(d_), where(less(zero(), x), d_, zero()));
      default:
        return kNoNode;
    }
  }

  ExpressionGraph& f_;
  Means& means_;
  const Node node_;
  NodeId id_;
  std::size_t i_;
  NodeId d_;
};

void accumulate(ExpressionGraph& graph, NodeId& sum, NodeId term) {
  if (term == kNoNode || graph.is_constant(term, 0)) return;
  sum = sum == kNoNode ? term : graph.make(Operation::add, sum, term);
}

/// The leaf of a node's tangent, or kNoNode.
NodeId tangent_leaf(ExpressionGraph& graph, const Node& node) {
  constexpr std::pair<Operation, Operation> tangents[] = {{Operation::input, Operation::input_tangent},
                                                          {Operation::recurrent, Operation::recurrent_tangent},
                                                          {Operation::state, Operation::state_tangent},
                                                          {Operation::learnt, Operation::learnt_tangent}};
  for (const auto& [leaf, tangent] : tangents) {
    if (node.operation == leaf) return graph.leaf(tangent, node.index);
  }
  return kNoNode;
}

}  // namespace

std::vector<NodeId> gradients(ExpressionGraph& graph, std::span<const NodeId> outputs, std::span<const NodeId> seeds,
                              int count) {
  Means means(graph);
  std::vector<NodeId> gradient(static_cast<std::size_t>(count), kNoNode);
  for (std::size_t k = 0; k < outputs.size(); ++k) {
    accumulate(graph, gradient[static_cast<std::size_t>(outputs[k])], seeds[k]);
  }
  for (NodeId id = count - 1; id >= 0; --id) {
    const NodeId d = gradient[static_cast<std::size_t>(id)];
    if (d == kNoNode) continue;
    const Node node = graph[id];  // a copy: the graph grows below
    for (std::size_t i = 0; i < node.operands().size(); ++i) {
      const NodeId operand = node.of[i];
      if (graph[operand].operation == Operation::constant) continue;
      accumulate(graph, gradient[static_cast<std::size_t>(operand)], Slope(graph, means, id, i, d).times());
    }
  }
  return gradient;
}

std::vector<NodeId> tangents(ExpressionGraph& graph, std::span<const NodeId> outputs) {
  Means means(graph);
  const std::vector<bool> needed = reachable(graph, outputs);
  std::vector<NodeId> tangent(needed.size(), kNoNode);
  for (std::size_t id = 0; id < needed.size(); ++id) {
    if (!needed[id]) continue;
    const Node node = graph[static_cast<NodeId>(id)];
    tangent[id] = tangent_leaf(graph, node);
    for (std::size_t i = 0; i < node.operands().size(); ++i) {
      const NodeId d = tangent[static_cast<std::size_t>(node.of[i])];
      if (d != kNoNode) accumulate(graph, tangent[id], Slope(graph, means, static_cast<NodeId>(id), i, d).times());
    }
  }
  std::vector<NodeId> of_outputs;
  for (const NodeId output : outputs) of_outputs.push_back(tangent[static_cast<std::size_t>(output)]);
  return of_outputs;
}

}  // namespace penstock::custom
