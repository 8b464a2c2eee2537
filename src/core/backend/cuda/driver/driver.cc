#include "backend/cuda/driver/driver.h"

#include "backend/cuda/driver/library.h"
#include "backend/cuda/driver/sources.h"
#include "base/check.h"

namespace penstock::cuda {
namespace {

/// 12.4 is the first whose cubins may hold 128-bit accesses that are one access for other multiprocessors too.
constexpr int kOldestDriver = 12040;

struct Driver {
  DriverApi api;
  std::string complaint;
  int version = 0;
};

std::string words_for(const DriverApi& api, Result result) {
  const char *name = nullptr, *text = nullptr;
  if (api.error_name == nullptr || api.error_name(result, &name) != result_success || name == nullptr) {
    return fmt::format("error {}", result);
  }
  api.error_text(result, &text);
  return fmt::format("{} ({})", name, text == nullptr ? "no text" : text);
}

Driver load_driver() {
  Driver found;
  if (kernel_sources().empty()) {
    found.complaint = "this build of Penstock has no kernels for GPUs: build it without -D PENSTOCK_CUDA=OFF";
    return found;
  }
  const Library library = Library::open("the CUDA driver's libcuda.so.1", candidates({"libcuda.so.1"}));
  if (!library.valid()) {
    found.complaint = library.complaint() + "; install the NVIDIA driver";
    return found;
  }
  // The version first: a driver too old lacks functions, and should be told so rather than which one.
  library.resolve("cuDriverGetVersion", found.api.driver_version, found.complaint);
  if (found.api.driver_version == nullptr || found.api.driver_version(&found.version) != result_success) {
    found.complaint = library.origin() + " does not answer";
    return found;
  }
  if (found.version < kOldestDriver) {
    found.complaint =
        fmt::format("the NVIDIA driver runs CUDA {}.{} and {}.{} is needed; install a newer driver",
                    found.version / 1000, found.version % 1000 / 10, kOldestDriver / 1000, kOldestDriver % 1000 / 10);
    return found;
  }
  library.resolve(found.api, found.complaint);
  return found;
}

/// Opened but not started: its version can be asked for while it starts.
const Driver& the_driver() {
  static const Driver driver = load_driver();
  return driver;
}

/// Starts the driver, which takes a tenth of a second; returns why it does not start.
std::string start_driver() {
  const Driver& found = the_driver();
  if (!found.complaint.empty()) return found.complaint;
  int count = 0;
  Result result = found.api.init(0);
  if (result == result_success) result = found.api.device_count(&count);
  if (result == result_no_device || (result == result_success && count == 0)) return "the NVIDIA driver sees no GPU";
  return result == result_success ? "" : "the NVIDIA driver does not start: " + words_for(found.api, result);
}

}  // namespace

const std::string& driver_complaint() {
  static const std::string complaint = start_driver();
  return complaint;
}

const DriverApi& driver() {
  if (!driver_complaint().empty()) fail(ErrorCode::unsupported, "no CUDA device: {}", driver_complaint());
  return the_driver().api;
}

int driver_cuda_version() { return the_driver().version; }

void check(Result result, const char* what) {
  if (result == result_success) return;
  const std::string words = words_for(the_driver().api, result);
  if (result == result_out_of_memory) {
    fail_with(ErrorCode::out_of_memory, kSharedMemoryRemedy, "{}: the GPU has too little memory left", what);
  }
  fail(ErrorCode::device_failure, "{} failed: {}", what, words);
}

}  // namespace penstock::cuda
