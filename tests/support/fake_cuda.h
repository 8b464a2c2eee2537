#pragma once

#include <dlfcn.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <string>

#include "fake_cuda/fake_cuda.h"

/// The driver and the compiler of fake_cuda/, in the place of CUDA's.
namespace penstock::test {

/// Names the folder in which the library looks first. Before it has opened a driver.
inline void look_for_cuda_in(const std::string& folder) { ::setenv("PENSTOCK_CUDA_PATH", folder.c_str(), 1); }

/// A function of a library that stays open.
template <class Result>
Result* of_fake(const char* file, const char* name) {
  void* const library = ::dlopen((std::string(PENSTOCK_FAKE_CUDA) + "/" + file).c_str(), RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) throw std::runtime_error(::dlerror());
  return reinterpret_cast<Result* (*)()>(::dlsym(library, name))();
}

inline FakeDriver& fake_driver() { return *of_fake<FakeDriver>("libcuda.so.1", "penstock_fake_driver"); }
inline FakeNvrtc& fake_nvrtc() { return *of_fake<FakeNvrtc>("libnvrtc.so.13", "penstock_fake_nvrtc"); }

}  // namespace penstock::test
