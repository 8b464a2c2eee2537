#include "custom/program.h"

#include <algorithm>
#include <limits>

namespace penstock::custom {

namespace {

constexpr int kForever = std::numeric_limits<int>::max();

class Compiler {
 public:
  Compiler(const ExpressionGraph& graph, std::span<const NodeId> roots, std::span<const NodeId> kept)
      : graph_(graph), roots_(roots), node_(static_cast<std::size_t>(graph.size())) {
    for (std::size_t i = 0; i < kept.size(); ++i) {
      Node& node = at(kept[i]).node;
      node.operation = Operation::kept;
      node.index = static_cast<int>(i);
      at(kept[i]).is_kept = true;
    }
    for (NodeId id = 0; id < graph.size(); ++id) {
      if (!at(id).is_kept) at(id).node = graph[id];
    }
  }

  Program compile() {
    count_uses();
    fuse();
    find_last_uses();
    load_leaves();
    for (NodeId id = 0; id < graph_.size(); ++id) {
      if (at(id).uses > 0 && arity(at(id).node.operation) > 0) emit(id);
    }
    for (const NodeId root : roots_) program_.results.push_back(at(root).slot);
    return std::move(program_);
  }

 private:
  struct Entry {
    Node node;
    bool is_kept = false;
    int uses = 0;
    int last_use = -1;
    Program::Slot slot = 0;
  };

  Entry& at(NodeId id) { return node_[static_cast<std::size_t>(id)]; }

  void count_uses() {
    for (const NodeId root : roots_) ++at(root).uses;
    for (NodeId id = graph_.size() - 1; id >= 0; --id) {
      if (at(id).uses == 0) continue;
      for (const NodeId operand : at(id).node.operands()) ++at(operand).uses;
    }
  }

  bool is_single_product(NodeId id) { return at(id).uses == 1 && at(id).node.operation == Operation::multiply; }

  /// add(a b, c) and subtract(c, a b) become one instruction where nothing else reads a b.
  void fuse() {
    for (NodeId id = 0; id < graph_.size(); ++id) {
      Node& node = at(id).node;
      if (at(id).uses == 0 || (node.operation != Operation::add && node.operation != Operation::subtract)) continue;
      const bool adds = node.operation == Operation::add;
      if (adds && !is_single_product(node.of[1])) std::swap(node.of[0], node.of[1]);
      const auto [other, product, none] = node.of;
      if (!is_single_product(product)) continue;
      at(product).uses = 0;
      node.operation = adds ? Operation::multiply_add : Operation::subtract_product;
      node.of = {at(product).node.of[0], at(product).node.of[1], other};
    }
  }

  void find_last_uses() {
    for (NodeId id = 0; id < graph_.size(); ++id) {
      if (at(id).uses == 0) continue;
      for (const NodeId operand : at(id).node.operands()) at(operand).last_use = id;
    }
    for (const NodeId root : roots_) at(root).last_use = kForever;
  }

  Program::Slot take_slot() {
    if (!free_.empty()) {
      const Program::Slot slot = free_.back();
      free_.pop_back();
      return slot;
    }
    return static_cast<Program::Slot>(program_.slots++);
  }

  void load_leaves() {
    for (NodeId id = 0; id < graph_.size(); ++id) {
      Entry& entry = at(id);
      if (entry.uses == 0 || arity(entry.node.operation) > 0) continue;
      entry.slot = take_slot();
      if (entry.node.operation == Operation::constant) {
        program_.constants.push_back({entry.node.value, entry.slot});
      } else {
        program_.leaves.push_back({entry.node.operation, entry.node.index, entry.slot});
      }
    }
  }

  void emit(NodeId id) {
    const Node& node = at(id).node;
    Program::Instruction instruction{node.operation, 0, {}};
    for (std::size_t i = 0; i < node.operands().size(); ++i) {
      Entry& operand = at(node.of[i]);
      instruction.of[i] = operand.slot;
      if (operand.last_use != id) continue;
      free_.push_back(operand.slot);
      operand.last_use = -1;  // once, also where an operand comes twice
    }
    instruction.to = at(id).slot = take_slot();
    program_.instructions.push_back(instruction);
  }

  const ExpressionGraph& graph_;
  std::span<const NodeId> roots_;
  std::vector<Entry> node_;
  std::vector<Program::Slot> free_;
  Program program_;
};

}  // namespace

Program compile(const ExpressionGraph& graph, std::span<const NodeId> roots, std::span<const NodeId> kept) {
  return Compiler(graph, roots, kept).compile();
}

std::vector<double> run(const Program& program, const std::function<double(Operation, int)>& leaf) {
  std::vector<double> slot(static_cast<std::size_t>(program.slots));
  for (const Program::Leaf& of : program.leaves) slot[of.slot] = leaf(of.operation, of.index);
  for (const Program::Constant& of : program.constants) slot[of.slot] = of.value;
  for (const Program::Instruction& step : program.instructions) {
    slot[step.to] = apply(step.operation, slot[step.of[0]], slot[step.of[1]], slot[step.of[2]]);
  }
  std::vector<double> results;
  for (const Program::Slot result : program.results) results.push_back(slot[result]);
  return results;
}

}  // namespace penstock::custom
