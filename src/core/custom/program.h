#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "custom/expression_graph.h"

namespace penstock::custom {

/// Operations of a graph in order, over slots that are used again once nobody reads their value any more. A slot may
/// hold a value of one unit, or a tile of vectors of units.
struct Program {
  using Slot = std::uint16_t;

  struct Leaf {
    Operation operation;
    int index;
    Slot slot;
  };
  struct Constant {
    double value;
    Slot slot;
  };
  struct Instruction {
    Operation operation;
    Slot to;  ///< may be one of the operands
    std::array<Slot, 3> of;
  };

  int slots = 0;
  std::vector<Leaf> leaves;         ///< to be loaded before the first instruction
  std::vector<Constant> constants;  ///< likewise
  std::vector<Instruction> instructions;
  std::vector<Slot> results;  ///< slot of each root, in their order
};

/// Compiles what the roots need. The nodes `kept` are loaded from the leaves kept 0, kept 1, ... instead of computed.
/// Products that only a sum reads are fused with it.
Program compile(const ExpressionGraph& graph, std::span<const NodeId> roots, std::span<const NodeId> kept = {});

/// Runs a program on one unit in double precision. Returns the results.
std::vector<double> run(const Program& program, const std::function<double(Operation, int)>& leaf);

}  // namespace penstock::custom
