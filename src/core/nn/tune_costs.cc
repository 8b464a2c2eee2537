// Costs of a machine from measurements: its copies, and what the times of plans say of the rest.

#include <algorithm>
#include <cmath>
#include <cstring>

#include "backend/cpu/machine.h"
#include "backend/cuda/driver/device.h"
#include "base/check.h"
#include "base/timing.h"
#include "ops/memory/memory.h"
#include "penstock/tune.h"
#include "plan/cost_fit.h"
#include "plan/tuning.h"

namespace penstock {
namespace {

constexpr std::size_t kMebibyte = std::size_t{1} << 20;

struct MachineCosts {
  std::string identity;
  std::vector<plan::NamedCost> costs;
};

MachineCosts costs_of(const Device& device) {
  if (!device.is_cuda()) return {identity_of(cpu::machine()), named_costs(cpu::machine().costs)};
  const plan::GpuModel& gpu = cuda::Device::get(device.index).model();
  return {identity_of(gpu), named_costs(gpu.costs)};
}

double median_microseconds(double seconds, const std::function<void()>& call) {
  return spread(time_calls(seconds, call)).median * 1e6;
}

/// Measures copies of one thread, from memory to memory.
std::vector<plan::NamedCost> cpu_copies(double seconds) {
  constexpr std::size_t most = 256 * kMebibyte, least = 32 * kMebibyte;  // no cache of one core's
  const std::size_t bytes = std::clamp(2 * static_cast<std::size_t>(cpu::machine().l3_bytes), least, most);
  const std::vector<std::byte> from(bytes, std::byte{1});
  std::vector<std::byte> to(bytes);
  const double time = median_microseconds(seconds, [&] { std::memcpy(to.data(), from.data(), bytes); });
  return {{"bytes", 2 * static_cast<double>(bytes) / time}};
}

/// Measures copies from ordinary memory to the GPU's.
std::vector<plan::NamedCost> gpu_copies(const Device& device, double seconds) {
  constexpr std::size_t bytes = 64 * kMebibyte, few = 4;
  const std::vector<std::byte> from(bytes);
  ops::Queue queue(device);
  ops::Buffer to(queue, bytes);
  const double alone = median_microseconds(seconds, [&] { to.upload(from.data(), few); });
  const double all = median_microseconds(seconds, [&] { to.upload(from.data(), bytes); });
  return {{"host_copy", alone}, {"host_bytes", static_cast<double>(bytes) / std::max(all - alone, 1.0)}};
}

std::vector<plan::MeasuredTime> measured_times(const std::vector<TunedWork>& works, const std::string& machine) {
  std::vector<plan::MeasuredTime> times;
  for (std::size_t w = 0; w < works.size(); ++w) {
    if (!works[w].estimate || works[w].machine != machine) continue;
    for (const MeasuredPlan& plan : works[w].measured) {
      times.push_back({w, plan.microseconds, [estimate = works[w].estimate, &plan](std::span<const double> costs) {
                         return estimate(plan, {costs.begin(), costs.end()});
                       }});
    }
  }
  return times;
}

}  // namespace

TunedCosts tune_costs(const std::vector<TunedWork>& works, Device device, double seconds) {
  require_argument(seconds > 0, "seconds", seconds, "above 0");
  const MachineCosts before = costs_of(device);
  std::vector<double> values;
  for (const auto& [name, value] : before.costs) values.push_back(value);
  plan::CostFit fit = fit_costs(std::move(values), measured_times(works, before.identity));
  for (const auto& [name, value] : device.is_cuda() ? gpu_copies(device, seconds) : cpu_copies(seconds)) {
    const auto at = std::ranges::find(before.costs, name, &plan::NamedCost::first);
    fit.costs[static_cast<std::size_t>(at - before.costs.begin())] = value;
  }
  TunedCosts tuned{.changed = {}, .off_before = fit.off_before, .off_after = fit.off_after};
  constexpr double nothing = 0.005;  // of a cost
  for (std::size_t i = 0; i < before.costs.size(); ++i) {
    const auto& [name, value] = before.costs[i];
    if (std::abs(fit.costs[i] / value - 1) < nothing) continue;
    tuned.changed.push_back({before.identity, name, value, fit.costs[i]});
  }
  return tuned;
}

}  // namespace penstock
