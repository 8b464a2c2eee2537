#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "custom/expression_graph.h"
#include "custom/program.h"
#include "penstock/cell.h"
#include "penstock/error.h"

namespace penstock::custom {

// Limits of a cell that a user defines. The engines' tiles and the numbers of registers of a GPU are behind them.
constexpr int kMostGates = 5;
constexpr int kMostScanGates = 3;
constexpr int kMostStates = 4;
constexpr int kMostLearnt = 16;
constexpr int kMostNodes = 1024;
constexpr int kMostDepth = 256;
constexpr int kMostSlots = 512;  ///< Values that are alive at the same time in a derived program.

/// A cell as its author gave it.
struct CustomCell : CellDefinition {
  ExpressionGraph graph;
  std::vector<NodeId> outputs;  ///< The next states or, of a scan cell, a and b of h' = a h + b.
};

/// Throws Error(code) that names the part of the cell that is wrong. `source` begins the message.
void check_cell(const CustomCell& cell, std::string_view source, ErrorCode code);

/// A cell with its derivatives.
struct DerivedCell {
  CustomCell cell;                ///< Its graph has the nodes of the derivatives too.
  std::vector<NodeId> gradients;  ///< The results of `backward`.
  std::vector<NodeId> kept;       ///< Values that the forward pass of a dense cell keeps for the backward pass.
  bool split_gradients = false;   ///< The cell depends on more than the sums of W x and R h.
  bool has_kink = false;          ///< Its derivative is discontinuous somewhere.
  bool averages = false;          ///< A unit reads means over its head.
  Program forward;                ///< Results: the outputs.
  Program training;               ///< Results: the outputs, then the kept values.
  /// Reads the kept values, states and learnt vectors; of a scan cell inputs and learnt vectors. Results: gradients of
  /// the inputs [G], of a dense cell those of recurrent leaves [G] and states [S], those of learnt vectors [K]; then a
  /// and b of a scan cell.
  Program backward;
  Program tangent;  ///< Results: tangents of the outputs.
};

/// Differentiates a checked cell. Throws Error(code) if its programs would need more than kMostSlots values at a time.
DerivedCell derive(CustomCell cell, std::string_view source, ErrorCode code);

/// Chooses which values a forward pass keeps for the backward pass, so that memory traffic and recomputation together
/// cost least. `roots`: results of the backward pass; `outputs`: those of the forward pass; `cost_of`: an operation's
/// cost in additions. States and learnt vectors are there anyway.
std::vector<NodeId> choose_kept(const ExpressionGraph& graph, std::span<const NodeId> outputs,
                                std::span<const NodeId> roots, int (*cost_of)(Operation) = cost);

/// The cell as JSON text, and back. A file never holds code: reading it builds a graph and checks it. `source` begins
/// messages, which have the code bad_input and name the node and the field.
std::string to_json(const CustomCell& cell);
CustomCell cell_from_json(std::string_view text, std::string_view source);

}  // namespace penstock::custom
