#pragma once

namespace penstock::cuda {

/// A named span of the host's time in NVIDIA's profilers (NVTX), where one is watching; otherwise nothing at all.
class Range {
 public:
  explicit Range(const char* name);
  ~Range();
  Range(const Range&) = delete;
  Range& operator=(const Range&) = delete;
};

}  // namespace penstock::cuda
