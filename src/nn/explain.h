#pragma once

#include <vector>

#include "graph/graph.h"
#include "penstock/plan.h"
#include "plan/machine.h"

namespace penstock::nn {

/// Every node of a graph, in its order.
std::vector<PlanReport> explain_nodes(const graph::Graph& graph, const ops::Target& target,
                                      const plan::Machine& machine);

/// This machine, with the GPU of an execution on one.
plan::Machine machine_of(const Execution& execution);

}  // namespace penstock::nn
