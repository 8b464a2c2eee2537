#include "backend/cuda/driver/kernel.h"

#include <atomic>
#include <memory>

#include "backend/cuda/driver/driver.h"
#include "backend/cuda/driver/kernel_cache.h"
#include "base/check.h"
#include "base/once_map.h"

namespace penstock::cuda {
namespace {

std::atomic<unsigned long long> launch_count{0};
thread_local LaunchObserver* launch_observer = nullptr;

/// A launch in the driver's words.
struct LaunchConfiguration {
  LaunchAttribute attributes[3];
  LaunchConfig config;

  LaunchConfiguration(const Launch& how, unsigned shared_bytes, bool early, bool clusters_of_one, StreamHandle stream) {
    config.grid[0] = how.grid, config.block[0] = how.block;
    config.shared_bytes = shared_bytes;
    config.stream = stream;
    config.attributes = attributes;
    // Clusters of one block where all run at once: those of neighbouring numbers then run on neighbouring
    // multiprocessors, and what several of them read comes from the second-level cache once.
    if (how.cluster > 1 || clusters_of_one) {
      LaunchAttribute& cluster = attributes[config.attribute_count++];
      cluster.id = launch_cluster;
      cluster.value[0] = how.cluster, cluster.value[1] = cluster.value[2] = 1;
    }
    if (how.cooperative) {
      LaunchAttribute& together = attributes[config.attribute_count++];
      together.id = launch_cooperative;
      together.value[0] = 1;
    }
    if (early) {
      LaunchAttribute& overlap = attributes[config.attribute_count++];
      overlap.id = launch_early;
      overlap.value[0] = 1;
    }
  }
  LaunchConfiguration(const LaunchConfiguration&) = delete;  // the attributes' address is in the configuration
  LaunchConfiguration& operator=(const LaunchConfiguration&) = delete;
};

/// The first architecture with clusters, and with kernels that start before the one before them has ended.
constexpr int kHopper = 90;

}  // namespace

const Kernel& Kernel::load(Device& device, const KernelSource& source) {
  static OnceMap<std::pair<int, std::string>, Kernel> kernels;
  return kernels.get({device.ordinal(), source.text()}, [&] {
    return std::unique_ptr<Kernel>(
        new Kernel(device, source, machine_code(source, device.model().architecture())));  // the constructor is private
  });
}

Kernel::Kernel(Device& device, const KernelSource& source, const std::string& cubin)
    : device_(device),
      name_(source.entry),
      early_(source.early && device.model().architecture() >= kHopper),
      dynamic_bytes_(static_cast<unsigned>(source.shared_bytes)) {
  device.make_current();
  ModuleHandle module = nullptr;
  check(driver().module_load(&module, cubin.data()), ("loading " + name_).c_str());
  check(driver().module_function(&function_, module, name_.c_str()), ("finding " + name_).c_str());
  const auto read = [&](int which, int& value) {
    check(driver().function_get(&value, which, function_), ("asking for the resources of " + name_).c_str());
  };
  read(function_registers, resources_.registers);
  read(function_shared_bytes, resources_.shared_bytes);
  read(function_local_bytes, resources_.local_bytes);
  resources_.shared_bytes += source.shared_bytes;
  check(driver().function_set(function_, function_max_dynamic_shared_bytes, source.shared_bytes),
        ("giving shared memory to " + name_).c_str());
  if (device.model().architecture() >= kHopper) {
    check(driver().function_set(function_, function_any_cluster_size, 1), ("allowing clusters of " + name_).c_str());
  }
}

unsigned Kernel::shared_of(const Launch& how) const {
  require(how.shared <= dynamic_bytes_, "{} was prepared for {} bytes of shared memory, not for {}", name_,
          dynamic_bytes_, how.shared);
  return how.shared == 0 ? dynamic_bytes_ : how.shared;
}

void Kernel::launch_raw(const Launch& how, void** arguments, StreamHandle stream) const {
  device_.make_current();
  if (launch_observer != nullptr) launch_observer->before_launch();
  Result result = result_success;
  if (how.cluster == 1 && !how.cooperative && !early_) {
    result = driver().launch(function_, how.grid, 1, 1, how.block, 1, 1, shared_of(how), stream, arguments, nullptr);
  } else {
    const bool clusters_of_one = how.cooperative && device_.model().architecture() >= kHopper;
    LaunchConfiguration with(how, shared_of(how), early_, clusters_of_one, stream);
    result = driver().launch_with(&with.config, function_, arguments, nullptr);
  }
  if (result != result_success) check(result, ("launching " + name_).c_str());
  launch_count.fetch_add(1, std::memory_order_relaxed);
  if (launch_observer != nullptr) launch_observer->after_launch(name_);
}

int Kernel::resident(const Launch& how) const {
  device_.make_current();
  int count = 0;
  if (how.cluster == 1) {
    check(driver().resident_blocks(&count, function_, static_cast<int>(how.block), shared_of(how)),
          ("asking how many blocks run at once of " + name_).c_str());
  } else {
    LaunchConfiguration with(how, shared_of(how), false, false, nullptr);
    const Result result = driver().resident_clusters(&count, function_, &with.config);
    if (result == result_invalid_cluster) return 0;
    check(result, ("asking how many clusters run at once of " + name_).c_str());
  }
  return count;
}

void Kernel::observe(LaunchObserver* observer) { launch_observer = observer; }

unsigned long long Kernel::launches() { return launch_count.load(std::memory_order_relaxed); }

}  // namespace penstock::cuda
