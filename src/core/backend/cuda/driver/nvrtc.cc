#include "backend/cuda/driver/nvrtc.h"

#include <algorithm>

#include "backend/cuda/driver/driver.h"
#include "backend/cuda/driver/library.h"
#include "backend/cuda/driver/range.h"
#include "base/check.h"

namespace penstock::cuda {
namespace {

constexpr const char* kNvrtcRemedy =
    "install the CUDA toolkit or the Python package nvidia-cuda-nvrtc, or name its folder in PENSTOCK_CUDA_PATH";

/// The library as found under one file name; invalid if it is not there, incomplete, or too new for the driver.
Nvrtc load_nvrtc_version(const std::string& file) {
  Nvrtc found;
  const Library library = Library::open(file, candidates({file}));
  found.complaint = library.complaint();
  if (!library.valid()) return found;
  library.resolve(found.api, found.complaint);
  if (!found.complaint.empty()) return found;
  if (found.api.version(&found.major, &found.minor) != result_success) {
    found.complaint = library.origin() + " does not answer";
  } else if (const int runs = driver_cuda_version() / 1000; runs > 0 && found.major > runs) {
    found.complaint = fmt::format("{} is CUDA {}'s and the driver runs CUDA {}", library.origin(), found.major, runs);
  }
  found.origin = library.origin();
  return found;
}

struct Program {
  const NvrtcApi& api;
  ProgramHandle handle = nullptr;

  explicit Program(const NvrtcApi& functions) : api(functions) {}
  ~Program() {
    if (handle != nullptr) api.destroy(&handle);
  }
  Program(const Program&) = delete;
  Program& operator=(const Program&) = delete;

  std::string log() const {
    std::size_t size = 0;
    if (api.log_size(handle, &size) != result_success || size < 2) return "";
    std::string text(size, '\0');
    api.log(handle, text.data());
    text.resize(size - 1);  // without the final 0
    return text;
  }
};

}  // namespace

bool Nvrtc::knows(int architecture) const {
  int count = 0;
  if (!valid() || api.arch_count(&count) != result_success) return false;
  std::vector<int> known(static_cast<std::size_t>(count));
  return api.archs(known.data()) == result_success && std::count(known.begin(), known.end(), architecture) > 0;
}

const Nvrtc& find_nvrtc() {
  static const Nvrtc found = first_sound({"libnvrtc.so.13", "libnvrtc.so.12"}, load_nvrtc_version);
  return found;
}

const Nvrtc& nvrtc() {
  const Nvrtc& found = find_nvrtc();
  if (!found.valid()) {
    fail(ErrorCode::unsupported, "no compiler for CUDA kernels: {}; {}", found.complaint, kNvrtcRemedy);
  }
  return found;
}

Compiled compile(const CompileRequest& request) {
  const Range range("penstock compile");
  const NvrtcApi& api = nvrtc().api;
  std::vector<const char*> names, texts, options;
  for (const auto& [name, text] : request.includes) {
    names.push_back(name.c_str());
    texts.push_back(text.c_str());
  }
  for (const std::string& option : request.options) options.push_back(option.c_str());
  Program program(api);
  Result result = api.create(&program.handle, request.source.c_str(), request.name.c_str(),
                             static_cast<int>(names.size()), texts.data(), names.data());
  if (result == result_success) result = api.compile(program.handle, static_cast<int>(options.size()), options.data());
  Compiled compiled;
  compiled.log = program.handle == nullptr ? "" : program.log();
  std::size_t size = 0;
  if (result == result_success) result = api.cubin_size(program.handle, &size);
  compiled.cubin.resize(size);
  if (result == result_success) result = api.cubin(program.handle, compiled.cubin.data());
  if (result != result_success || size == 0) {
    fail(ErrorCode::device_failure, "NVRTC cannot compile {} (error {}):\n{}", request.name, result, compiled.log);
  }
  return compiled;
}

}  // namespace penstock::cuda
