#pragma once

#include <dlfcn.h>

#include <initializer_list>

namespace penstock::data {

/// A shared library that is opened at run time, because few runs need it.
class LoadedLibrary {
 public:
  /// Opens the first of these that there is.
  LoadedLibrary(std::initializer_list<const char*> names) {
    for (const char* name : names) {
      if (library_ == nullptr) library_ = dlopen(name, RTLD_NOW | RTLD_LOCAL);
    }
  }

  /// Returns whether the library has a function of this name, which `function` then points to.
  template <class Function>
  bool find(const char* name, Function& function) const {
    if (library_ != nullptr) function = reinterpret_cast<Function>(dlsym(library_, name));
    return function != nullptr;
  }

 private:
  void* library_ = nullptr;  // stays open: functions of it may run while the program ends
};

}  // namespace penstock::data
