#pragma once

#include <atomic>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace penstock::cuda {

/// Name of a content: 32 hexadecimal digits that differ whenever any of the parts differs.
class ContentHash {
 public:
  ContentHash();
  ~ContentHash();
  ContentHash(const ContentHash&) = delete;
  ContentHash& operator=(const ContentHash&) = delete;

  /// The parts' borders count: ("ab", "c") is not ("a", "bc").
  void add(std::string_view part);
  std::string digits() const;

 private:
  struct State;
  State* state_;
};

/// A folder of compiled kernels and of cuBLASLt's choices, shared by any number of processes. Files appear whole or not
/// at all; one that is damaged is found out by its checksum and made again. Kernels are code, so a folder or a file
/// that others can write is ignored. Nothing here ever throws: a cache that cannot be read or written is a warning.
class DiskCache {
 public:
  /// An empty folder name: no cache. The oldest entries go once all together exceed `limit` bytes.
  DiskCache(std::string folder, std::uint64_t limit) : folder_(std::move(folder)), limit_(limit) {}

  /// Makes the cache in cache_folder(), of PENSTOCK_CACHE_MB megabytes, else 256.
  static DiskCache from_environment();
  /// Returns that cache, with the environment of the first call.
  static const DiskCache& of_process();

  const std::string& folder() const { return folder_; }

  /// Returns the content that was put under this name, or nothing if it is missing or damaged.
  std::optional<std::string> get(const std::string& name) const;
  void put(const std::string& name, std::string_view content) const;

 private:
  /// Returns whether the folder is owned by this user or root and nobody else may write to it; warns otherwise.
  bool is_trusted() const;
  std::string path_of(const std::string& name) const;
  void evict() const;

  std::string folder_;
  std::uint64_t limit_;
  mutable std::atomic<bool> warned_ = false;  ///< That the folder cannot be written: once, not for every kernel.
};

}  // namespace penstock::cuda
