#include "base/thread_count.h"

#include <omp.h>

#include <algorithm>
#include <cmath>

#include "base/check.h"
#include "base/control_groups.h"
#include "base/environment.h"

namespace penstock {
namespace {

constexpr int most_threads = 1024;

}  // namespace

int default_threads() {
  // Containers limit the time of processors and not their number, which OpenMP takes.
  static const double quota = std::clamp(std::floor(processor_quota()), 1.0, double{most_threads});
  static const int most = environment("OMP_NUM_THREADS") == nullptr ? static_cast<int>(quota) : most_threads;
  const int threads = omp_get_max_threads();
  if (threads >= 1 && threads <= most_threads) return std::min(threads, most);
  const char* asked_for = environment("OMP_NUM_THREADS");
  if (asked_for == nullptr) return most;  // of a machine with more cores
  fail(ErrorCode::invalid_argument, "OMP_NUM_THREADS must be 1 to {}, not '{}': unset it for all cores", most_threads,
       asked_for);
}

int resolve_threads(int requested) {
  require_argument(requested >= 0 && requested <= most_threads, "threads", requested, "0 (all cores) to {}",
                   most_threads);
  return requested == 0 ? default_threads() : requested;
}

}  // namespace penstock
