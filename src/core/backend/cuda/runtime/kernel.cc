#include "backend/cuda/runtime/kernel.h"

#include <atomic>
#include <cstdlib>
#include <filesystem>
#include <memory>

#include "backend/cuda/runtime/disk_cache.h"
#include "backend/cuda/runtime/driver.h"
#include "backend/cuda/runtime/sources.h"
#include "base/check.h"
#include "base/environment.h"
#include "base/once_map.h"
#include "base/warning.h"
#include "penstock/file_writer.h"

namespace penstock::cuda {
namespace {

std::atomic<unsigned long long> launch_count{0};
thread_local LaunchObserver* launch_observer = nullptr;

/// Hopper's own instructions belong to sm_90a alone, and chips of one generation are all alike in them.
std::string target_of(int architecture) { return fmt::format("sm_{}{}", architecture, architecture == 90 ? "a" : ""); }

std::vector<std::string> options_for(int architecture) {
  return {"--gpu-architecture=" + target_of(architecture), "--std=c++20", "--prec-div=false",
          "--ptxas-options=--verbose"};
}

/// Hash of all texts, which no kernel can do without and no run changes.
const std::string& sources_hash() {
  static const std::string hash = [] {
    ContentHash all;
    for (const auto& [name, text] : kernel_sources()) {
      all.add(name);
      all.add(text);
    }
    return all.digits();
  }();
  return hash;
}

void write_dump(const std::filesystem::path& path, std::string_view content) {
  try {
    write_file(path.string(), content);
  } catch (const Error& error) {
    warn("{}, which PENSTOCK_DUMP_DIR asks for", error.what());
  }
}

/// Writes the files of PENSTOCK_DUMP_DIR, if it is set. `cuobjdump -sass` shows the instructions of the cubin.
void dump(const KernelSource& source, const std::string& name, const std::string& cubin, const std::string& log) {
  const char* folder = environment("PENSTOCK_DUMP_DIR");
  if (folder == nullptr || *folder == '\0') return;
  std::error_code ignored;  // writing will say it
  std::filesystem::create_directories(folder, ignored);
  const std::string base = fmt::format("{}/{}-{}", folder, source.entry, name.substr(0, 12));
  write_dump(base + ".cu", source.text());
  write_dump(base + ".cubin", cubin);
  write_dump(base + ".plan", source.plan + "\n");
  if (!log.empty()) write_dump(base + ".log", log);
  for (const auto& [file, text] : kernel_sources()) {
    const std::filesystem::path path = std::filesystem::path(folder) / file;
    std::filesystem::create_directories(path.parent_path(), ignored);
    write_dump(path, text);
  }
}

std::string cubin_for(Device& device, const KernelSource& source) {
  const DiskCache& cache = DiskCache::of_process();
  const int architecture = device.model().architecture();
  const std::string name = cache_name(source, architecture);
  if (auto cached = cache.get(name)) {
    dump(source, name, *cached, "");
    return std::move(*cached);
  }
  Compiled compiled = compile_kernel(source, architecture);
  dump(source, name, compiled.cubin, compiled.log);
  cache.put(name, compiled.cubin);
  return std::move(compiled.cubin);
}

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

std::string KernelSource::text() const {
  std::string text = "#include \"backend/cuda/kernels/prelude.cuh\"\n\n";
  if (!rule.definition.empty()) {
    text += fmt::format("{}using Rule = {};\n", rule.definition, rule.type);
  } else if (!rule.type.empty()) {
    text += fmt::format("struct {};\nusing Rule = {};\n", rule.type, rule.type);
  }
  for (const auto& [declaration, value] : constants) text += fmt::format("{} = {};\n", declaration, value);
  return text + functions + fmt::format("\n#include \"{}\"\n", file);
}

Compiled compile_kernel(const KernelSource& source, int architecture) {
  const Nvrtc& compiler = nvrtc();
  if (!compiler.knows(architecture)) {
    fail(ErrorCode::unsupported, "NVRTC {}.{} ({}) cannot compile for sm_{}; install a newer one", compiler.major,
         compiler.minor, compiler.origin, architecture);
  }
  return compile({source.entry, source.text(), kernel_sources(), options_for(architecture)});
}

std::string cache_name(const KernelSource& source, int architecture) {
  ContentHash hash;
  hash.add(sources_hash());
  hash.add(source.text());
  for (const std::string& option : options_for(architecture)) hash.add(option);
  return hash.digits();
}

const Kernel& Kernel::load(Device& device, const KernelSource& source) {
  static OnceMap<std::pair<int, std::string>, Kernel> kernels;
  return kernels.get({device.ordinal(), source.text()}, [&] {
    return std::unique_ptr<Kernel>(
        new Kernel(device, source, cubin_for(device, source)));  // the constructor is private
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
