#include "backend/cuda/dense/chip.h"

#include <algorithm>

#include "backend/cuda/dense/source.h"
#include "backend/cuda/driver/driver.h"

namespace penstock::cuda {

using namespace fill;  // NOLINT(google-build-using-namespace): one file's worth of a header

KernelSource dense_chip_source(const plan::GpuDenseProblem& problem, const plan::GpuDensePlan& plan) {
  return pass_source(problem, plan, "chip", cluster_pass(problem, plan));
}

ChipLoop::ChipLoop(Device& device, const plan::GpuDenseProblem& problem, const plan::GpuDensePlan& plan)
    : plan_(plan), items_(problem.heads * plan.slices), kernel_(&Kernel::load(device, dense_source(problem, plan))) {}

std::size_t ChipLoop::workspace_bytes() const { return padded(static_cast<std::size_t>(plan_.exchange)); }

template <class Arguments, class Call>
void ChipLoop::run_all(const Call& call, DeviceAddress workspace, StreamHandle stream) const {
  // Pieces that have not been sent, or counts of what has been.
  const unsigned char nothing = plan_.algorithm == plan::DenseAlgorithm::chip ? 0xff : 0;
  Arguments arguments{};
  arguments.call = call;
  arguments.exchange = device_pointer<char>(workspace);
  Launch launch = dense_launch(plan_);
  for (Index first = 0; first < items_; first += plan_.teams) {
    const Index teams = std::min(plan_.teams, items_ - first);
    arguments.first = static_cast<int>(first), arguments.teams = static_cast<int>(teams);
    launch.grid = static_cast<unsigned>(teams * plan_.clusters * plan_.cluster);
    check(driver().fill_bytes(workspace, nothing, static_cast<std::size_t>(plan_.exchange), stream),
          "clearing what blocks exchange");
    kernel_->launch(launch, arguments, stream);
  }
}

void ChipLoop::run(const DenseForwardArguments& call, DeviceAddress workspace, StreamHandle stream) const {
  run_all<DenseChipForwardArguments>(call, workspace, stream);
}

void ChipLoop::run(const DenseBackwardArguments& call, DeviceAddress workspace, StreamHandle stream) const {
  run_all<DenseChipBackwardArguments>(call, workspace, stream);
}

}  // namespace penstock::cuda
