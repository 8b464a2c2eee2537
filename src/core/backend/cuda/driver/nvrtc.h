#pragma once

#include <string>
#include <utility>
#include <vector>

#include "backend/cuda/driver/api.h"

namespace penstock::cuda {

/// The compiler, as found on this machine.
struct Nvrtc {
  NvrtcApi api;
  std::string origin;  ///< Path of the library; empty if there is none.
  int major = 0, minor = 0;
  std::string complaint;  ///< Why there is none.

  bool valid() const { return complaint.empty(); }
  bool knows(int architecture) const;  ///< Such as 90 for sm_90.
};

/// Found on first use. A library newer than the driver is passed over, since the driver could not load what it makes;
/// without a driver any will do. Never throws.
const Nvrtc& find_nvrtc();

/// Returns the result of find_nvrtc(). Throws Error(unsupported) that says what was not found and what to install.
const Nvrtc& nvrtc();

/// One program to compile: a main text and the texts that it may include, by the name it uses.
struct CompileRequest {
  std::string name;  ///< Shown in messages.
  std::string source;
  std::vector<std::pair<std::string, std::string>> includes;  ///< (name, text)
  std::vector<std::string> options;
};

struct Compiled {
  std::string cubin;
  std::string log;  ///< Warnings, and the resources of each kernel if the options ask for them.
};

/// Throws Error(device_failure) with the compiler's log if the program does not compile.
Compiled compile(const CompileRequest& request);

}  // namespace penstock::cuda
