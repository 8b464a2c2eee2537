#pragma once

#include <string>
#include <vector>

namespace penstock::cuda {

/// A shared library that was opened at run time. It stays open until the process ends: code of CUDA's libraries may run
/// as late as in destructors of statics.
class Library {
 public:
  Library() = default;

  /// Opens the first of the files that can be opened; `wanted` is what a person calls the library. What was tried and
  /// why it failed is in complaint() if none could.
  static Library open(const std::string& wanted, const std::vector<std::string>& files);

  bool valid() const { return handle_ != nullptr; }
  /// Path of the file, as the loader found it.
  const std::string& origin() const { return origin_; }
  const std::string& complaint() const { return complaint_; }
  /// Address of an exported symbol, or null.
  void* symbol(const char* name) const;
  /// Sets every function of an Api of api.h; one that is not exported becomes the complaint.
  template <class Api>
  void resolve(Api& api, std::string& complaint) const {
    api.for_each([&](const char* name, auto& function) { resolve(name, function, complaint); });
  }
  template <class Function>
  void resolve(const char* name, Function& function, std::string& complaint) const {
    function = reinterpret_cast<Function>(symbol(name));
    if (function == nullptr) complaint = origin_ + " lacks " + name;
  }

 private:
  void* handle_ = nullptr;
  std::string origin_, complaint_;
};

/// Returns the possible paths of a library of CUDA's toolkit, in order: each folder of PENSTOCK_CUDA_PATH, the places
/// of the system's loader, CUDA_PATH and CUDA_HOME, /usr/local/cuda, and the folders nvidia/*/lib that PyPI's packages
/// make in the virtual environment in use and beside the python3 of the PATH. `names` are file names, best first.
std::vector<std::string> candidates(const std::vector<std::string>& names);

/// The first of a library's versions, given as file names, that load() finds nothing to complain of; otherwise one that
/// says what was wrong with each.
template <class Load>
auto first_sound(const std::vector<std::string>& files, const Load& load) {
  decltype(load(files.front())) none;
  if (files.empty()) none.complaint = "no version runs on a driver this old";
  for (const std::string& file : files) {
    auto found = load(file);
    if (found.complaint.empty()) return found;
    none.complaint += (none.complaint.empty() ? "" : "; ") + found.complaint;
  }
  return none;
}

}  // namespace penstock::cuda
