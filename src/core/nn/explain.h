#pragma once

#include <vector>

#include "graph/graph.h"
#include "penstock/plan.h"
#include "plan/machine.h"

/// Explained plans of all nodes of a graph.
namespace penstock::nn {

/// Returns the plans of all nodes of a graph, in their order.
std::vector<PlanReport> explain_nodes(const graph::Graph& graph, const ops::Target& target,
                                      const plan::Machine& machine);

/// Returns this machine, with the GPU of an execution on a GPU.
plan::Machine machine_of(const Execution& execution);

}  // namespace penstock::nn
