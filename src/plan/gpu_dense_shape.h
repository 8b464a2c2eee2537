#pragma once

#include "plan/gpu_dense.h"

namespace penstock::plan {

/// What a plan says of the blocks of a cluster, alike for the algorithms whose blocks share the units of a head.
/// Forward candidates are compared with the memory of a tape; the plan's is with one or without, as the problem says.
template <class Candidate>
GpuDensePlan plan_of_blocks(DenseAlgorithm algorithm, const Candidate& candidate, bool training) {
  Candidate actual = candidate;
  actual.shape.training = training;
  GpuDensePlan plan;
  plan.algorithm = algorithm;
  plan.slots = candidate.shape.rows;
  plan.warps = candidate.shape.warps();
  plan.resident = candidate.shape.resident, plan.chunks = candidate.tiles_k();
  plan.stages = candidate.shape.stages;
  plan.shared = actual.shared();
  plan.slices = candidate.slices;
  plan.cluster = candidate.shape.cluster, plan.octets = candidate.shape.blocks;
  plan.groups = candidate.shape.groups, plan.parts = candidate.shape.parts;
  return plan;
}

}  // namespace penstock::plan
