#include "backend/cuda/driver/library.h"

#include <dlfcn.h>
#include <fmt/format.h>
#include <link.h>

#include <algorithm>
#include <filesystem>
#include <string_view>

#include "base/environment.h"

namespace penstock::cuda {
namespace {

namespace fs = std::filesystem;

std::string text_of_variable(const char* name) {
  const char* value = environment(name);
  return value == nullptr ? "" : value;
}

/// The non-empty parts of a list like PATH.
std::vector<std::string> split_path(std::string_view list) {
  std::vector<std::string> parts;
  while (!list.empty()) {
    const std::size_t end = std::min(list.find(':'), list.size());
    if (end > 0) parts.emplace_back(list.substr(0, end));
    list.remove_prefix(std::min(end + 1, list.size()));
  }
  return parts;
}

/// Folders in `folder`, sorted so that every run finds the same library first.
std::vector<fs::path> folders_in(const fs::path& folder) {
  std::vector<fs::path> found;
  std::error_code error;
  for (fs::directory_iterator entry(folder, error), end; !error && entry != end; entry.increment(error)) {
    std::error_code unreadable;
    if (entry->is_directory(unreadable)) found.push_back(entry->path());
  }
  std::sort(found.begin(), found.end());
  return found;
}

/// PREFIX/lib/python3*/site-packages/nvidia/*/lib, where PyPI's packages of CUDA put their libraries.
void add_python_folders(const fs::path& prefix, std::vector<std::string>& folders) {
  for (const fs::path& python : folders_in(prefix / "lib")) {
    if (python.filename().string().rfind("python3", 0) != 0) continue;
    for (const char* packages : {"site-packages", "dist-packages"}) {
      for (const fs::path& package : folders_in(python / packages / "nvidia")) {
        folders.push_back((package / "lib").string());
      }
    }
  }
}

/// The folder whose bin/ holds the first python3 of the PATH; empty if there is none.
fs::path python_prefix() {
  for (const std::string& folder : split_path(text_of_variable("PATH"))) {
    std::error_code unreadable;
    if (fs::exists(fs::path(folder) / "python3", unreadable)) return fs::path(folder).parent_path();
  }
  return {};
}

std::vector<std::string> folders_to_search() {
  std::vector<std::string> folders;
  for (const char* name : {"CUDA_PATH", "CUDA_HOME"}) {
    if (const std::string home = text_of_variable(name); !home.empty()) folders.push_back(home + "/lib64");
  }
  folders.emplace_back("/usr/local/cuda/lib64");
  if (const std::string venv = text_of_variable("VIRTUAL_ENV"); !venv.empty()) add_python_folders(venv, folders);
  if (const fs::path prefix = python_prefix(); !prefix.empty()) add_python_folders(prefix, folders);
  return folders;
}

std::string path_of(void* handle, const std::string& opened_as) {
  link_map* map = nullptr;
  if (::dlinfo(handle, RTLD_DI_LINKMAP, static_cast<void*>(&map)) != 0 || map == nullptr) return opened_as;
  return map->l_name == nullptr || *map->l_name == '\0' ? opened_as : map->l_name;
}

}  // namespace

Library Library::open(const std::string& wanted, const std::vector<std::string>& files) {
  Library library;
  std::string failures;
  for (const std::string& file : files) {
    library.handle_ = ::dlopen(file.c_str(), RTLD_NOW | RTLD_LOCAL);
    if (library.handle_ != nullptr) {
      library.origin_ = path_of(library.handle_, file);
      return library;
    }
    const char* reason = ::dlerror();
    // A file that is not there is no news; one that is there and cannot be loaded is.
    if (reason != nullptr && std::string_view(reason).find("No such file") == std::string_view::npos) {
      failures += fmt::format("; {}", reason);
    }
  }
  library.complaint_ = fmt::format("{} was not found{}", wanted, failures);
  return library;
}

void* Library::symbol(const char* name) const { return handle_ == nullptr ? nullptr : ::dlsym(handle_, name); }

std::vector<std::string> candidates(const std::vector<std::string>& names) {
  std::vector<std::string> files;
  const auto add = [&](const std::string& folder) {
    for (const std::string& name : names) files.push_back(folder + "/" + name);
  };
  for (const std::string& folder : split_path(text_of_variable("PENSTOCK_CUDA_PATH"))) add(folder);
  files.insert(files.end(), names.begin(), names.end());
  for (const std::string& folder : folders_to_search()) add(folder);
  return files;
}

}  // namespace penstock::cuda
