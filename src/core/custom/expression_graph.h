#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <span>
#include <string_view>
#include <tuple>
#include <vector>

/// Cells as data: an expression graph of the equations of one unit at one step. A custom cell is traced
/// once into an ExpressionGraph; its derivatives are nodes of it, too.
namespace penstock::custom {

enum class Operation : std::uint8_t {
  // Leaves, told apart by Node::index.
  input,          ///< Gate g of W x + bias_ih.
  recurrent,      ///< Gate g of R h + bias_hh.
  state,          ///< State s that enters the step.
  learnt,         ///< Learnt vector k, one value per unit.
  gradient,       ///< Gradient of output k of the cell.
  input_tangent,  ///< Tangents of the first four kinds of leaves, with the same index.
  recurrent_tangent,
  state_tangent,
  learnt_tangent,
  kept,  ///< Value i that the forward pass kept for the backward pass.
  constant,
  // Operations on other nodes.
  add,
  subtract,
  multiply,
  divide,
  multiply_add,      ///< a b + c, with one rounding where the machine has it
  subtract_product,  ///< c - a b, likewise
  exp,               ///< Saturates as Exp() of cells/gate_functions.h.
  log,
  tanh,
  sigmoid,
  softplus,
  relu,
  erf,
  sin,
  cos,
  sqrt,
  abs,
  min,  ///< NaN if an operand is, as all functions
  max,
  clamp,  ///< clamp(x, low, high)
  less,   ///< Comparisons are 1 if true, else 0.
  less_equal,
  equal,
  where,  ///< where(condition, a, b): b if the condition is 0, else a
  mean,   ///< over all units of a head
};

/// Number of operands, 0 for leaves.
int arity(Operation operation);
/// Returns the operation's name in files, such as "multiply_add".
std::string_view to_string(Operation operation);
/// The operation of that name; false if there is none.
bool find_operation(std::string_view name, Operation& operation);
/// Arithmetic operations that one unit costs, where an addition costs 1.
int cost(Operation operation);
/// Returns how kernels write an operation; {0}, {1} and {2} are its operands. Empty for a leaf.
std::string_view text_of(Operation operation);

/// The value of an operation in double precision, for a head of one unit; operands that it does not have are ignored.
double apply(Operation operation, double a, double b, double c);

/// A node's number in its ExpressionGraph. Operands have smaller numbers than the node that reads them.
using NodeId = int;
constexpr NodeId kNoNode = -1;

struct Node {
  Operation operation = Operation::constant;
  int index = 0;     ///< of leaves
  double value = 0;  ///< of constants
  std::array<NodeId, 3> of = {kNoNode, kNoNode, kNoNode};

  std::span<const NodeId> operands() const { return {of.data(), static_cast<std::size_t>(arity(operation))}; }
};

/// Nodes in an order in which they can be computed. Equal nodes are one node, and constants are folded.
class ExpressionGraph {
 public:
  NodeId leaf(Operation operation, int index);
  /// `value` must be finite.
  NodeId constant(double value);
  NodeId make(Operation operation, NodeId a, NodeId b = kNoNode, NodeId c = kNoNode);
  NodeId negative(NodeId x) { return make(Operation::subtract, constant(0), x); }

  const Node& operator[](NodeId id) const { return nodes_[static_cast<std::size_t>(id)]; }
  int size() const { return static_cast<int>(nodes_.size()); }
  /// Longest chain of operations below a node.
  int depth(NodeId id) const { return depth_[static_cast<std::size_t>(id)]; }
  bool is_constant(NodeId id, double value) const;

 private:
  using Key = std::tuple<Operation, int, std::uint64_t, NodeId, NodeId, NodeId>;

  NodeId share(const Node& node);
  bool folded(const Node& node, double& value) const;
  NodeId simplified(const Node& node);

  std::vector<Node> nodes_;
  std::vector<int> depth_;
  std::map<Key, NodeId> known_;
};

/// Marks the nodes that the roots need, themselves included.
std::vector<bool> reachable(const ExpressionGraph& graph, std::span<const NodeId> roots);

}  // namespace penstock::custom
