#include "backend/cuda/driver/kernel_cache.h"

#include <cstdlib>
#include <filesystem>

#include "backend/cuda/driver/disk_cache.h"
#include "backend/cuda/driver/sources.h"
#include "base/check.h"
#include "base/environment.h"
#include "base/warning.h"
#include "penstock/file_writer.h"

namespace penstock::cuda {
namespace {

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

}  // namespace

std::string cache_name(const KernelSource& source, int architecture) {
  ContentHash hash;
  hash.add(sources_hash());
  hash.add(source.text());
  for (const std::string& option : compiler_options(architecture)) hash.add(option);
  return hash.digits();
}

std::string machine_code(const KernelSource& source, int architecture) {
  const DiskCache& cache = DiskCache::of_process();
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

}  // namespace penstock::cuda
