#include "backend/cuda/dense/head.h"

#include <algorithm>

namespace penstock::cuda {

KernelSource dense_head_source(const plan::GpuDenseProblem& problem, const plan::GpuDensePlan& plan) {
  const given::HeadPass pass = {.all = dense_pass(problem),
                                .held = held_matrix(problem, plan),
                                .slots = plan.slots,
                                .resident = plan.resident,
                                .stages = plan.stages,
                                .blocks = plan.blocks,
                                .ragged = problem.ragged,
                                .means = plan::cell_traits(problem.cell).averages};
  return pass_source(problem, plan, "head", pass_constant("HeadPass", pass));
}

KernelSource sort_rows_source() {
  KernelSource source;
  source.entry = "SortRows";
  source.file = "backend/cuda/kernels/dense/sort_rows.cuh";
  source.constants = {{"constexpr int kThreads", kSortThreads}};
  source.plan = "rows by decreasing length";
  return source;
}

KernelSource entering_states_source(plan::Storage storage, bool reverse, int vector) {
  KernelSource source;
  source.entry = "EnteringStates";
  source.file = "backend/cuda/kernels/dense/entering_states.cuh";
  source.constants = {{"using Storage", storage_type(storage)},
                      {"constexpr bool kDescending", reverse},
                      {"constexpr int kVector", vector},
                      {"constexpr int kThreads", kEnteringThreads}};
  source.plan = "outputs of the steps before, as a matrix";
  return source;
}

}  // namespace penstock::cuda
