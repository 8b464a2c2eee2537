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

 private:
  void* handle_ = nullptr;
  std::string origin_, complaint_;
};

/// Where a library of CUDA's toolkit may lie, in order: each folder of PENSTOCK_CUDA_PATH, wherever the system's loader
/// looks, CUDA_PATH and CUDA_HOME, /usr/local/cuda, and the folders nvidia/*/lib that PyPI's packages make in the
/// virtual environment in use and beside the python3 of the PATH. `names` are file names, best first.
std::vector<std::string> candidates(const std::vector<std::string>& names);

}  // namespace penstock::cuda
