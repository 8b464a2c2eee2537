#include "backend/cuda/dense/chip.h"

#include <algorithm>

#include "backend/cuda/dense/source.h"
#include "backend/cuda/runtime/driver.h"
#include "base/check.h"

namespace penstock::cuda {

using namespace fill;  // NOLINT(google-build-using-namespace): one file's worth of a header

KernelSource dense_chip_source(const plan::GpuDenseProblem& problem, const plan::GpuDensePlan& plan) {
  KernelSource source = dense_cluster_source(problem, plan);
  source.entry = problem.backward ? "DenseChipBackward" : "DenseChipForward";
  source.file =
      problem.backward ? "backend/cuda/kernels/dense/chip_backward.cuh" : "backend/cuda/kernels/dense/chip_forward.cuh";
  source.constants.emplace_back("constexpr int kClusters", plan.clusters);
  source.constants.emplace_back("constexpr bool kDirect", plan.direct);
  return source;
}

namespace {

/// Clusters of the plan that the GPU runs at once.
Index clusters_held(Device& device, const Kernel& kernel, const plan::GpuDensePlan& plan) {
  const Index held = kernel.resident(dense_launch(plan));
  return plan.cluster > 1 ? held : held * device.model().multiprocessors;
}

}  // namespace

ChipWalk::ChipWalk(Device& device, const plan::GpuDenseProblem& problem, const plan::GpuDensePlan& plan)
    : plan_(plan),
      items_(problem.heads * plan.slices),
      kernel_(&Kernel::load(device, dense_chip_source(problem, plan))) {
  const Index held = clusters_held(device, *kernel_, plan), wanted = plan.grid / plan.cluster;
  if (held < wanted) {
    fail(ErrorCode::unsupported, "{} runs {} clusters of {} blocks of the recurrence at once, not the {} of its plan",
         device.model().name, held, plan.cluster, wanted);
  }
}

plan::GpuDensePlan ChipWalk::runnable(Device& device, const plan::GpuDenseProblem& problem,
                                      const plan::GpuDensePlan& plan) {
  if (plan.algorithm != plan::DenseAlgorithm::chip || plan.cluster == 1 || problem.cluster != 0) return plan;
  const Index held = clusters_held(device, Kernel::load(device, dense_chip_source(problem, plan)), plan);
  if (held >= plan.grid / plan.cluster) return plan;
  plan::GpuDenseProblem alone = problem;
  alone.cluster = 1;
  plan::GpuDensePlan other = plan_gpu_dense(alone, device.model());
  other.why += fmt::format("; {} runs only {} clusters of {} blocks at once", device.model().name, held, plan.cluster);
  return other;
}

std::size_t ChipWalk::workspace_bytes() const { return padded(static_cast<std::size_t>(plan_.exchange)); }

template <class Arguments, class Call>
void ChipWalk::run_all(const Call& call, DeviceAddress workspace, StreamHandle stream) const {
  constexpr unsigned char absent = 0xff;
  Arguments arguments{};
  arguments.call = call;
  arguments.exchange = device_pointer<char>(workspace);
  Launch launch = dense_launch(plan_);
  for (Index first = 0; first < items_; first += plan_.teams) {
    const Index teams = std::min(plan_.teams, items_ - first);
    arguments.first = static_cast<int>(first), arguments.teams = static_cast<int>(teams);
    launch.grid = static_cast<unsigned>(teams * plan_.clusters * plan_.cluster);
    check(driver().fill_bytes(workspace, absent, static_cast<std::size_t>(plan_.exchange), stream),
          "clearing what blocks exchange");
    kernel_->launch(launch, arguments, stream);
  }
}

void ChipWalk::run(const DenseForwardArguments& call, DeviceAddress workspace, StreamHandle stream) const {
  run_all<DenseChipForwardArguments>(call, workspace, stream);
}

void ChipWalk::run(const DenseBackwardArguments& call, DeviceAddress workspace, StreamHandle stream) const {
  run_all<DenseChipBackwardArguments>(call, workspace, stream);
}

}  // namespace penstock::cuda
