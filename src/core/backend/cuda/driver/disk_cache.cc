#include "backend/cuda/driver/disk_cache.h"

#include <fcntl.h>
#include <sys/stat.h>

#define XXH_INLINE_ALL
// Its functions insist on being inlined where they are called through pointers, which -Og does not do.
#define XXH_NO_INLINE_HINTS 1
#include <xxhash.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <vector>

#include "base/environment.h"
#include "base/files/cache_folder.h"
#include "base/files/trusted_file.h"
#include "base/warning.h"
#include "penstock/error.h"
#include "penstock/file_writer.h"

namespace penstock::cuda {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kSuffix = ".cubin";
constexpr std::uint64_t kDefaultMegabytes = 256;

/// Header of a file, in front of its content.
struct Header {
  char magic[8] = {'p', 'e', 'n', 's', 't', 'o', 'c', '1'};
  std::uint64_t bytes = 0;
  std::uint64_t checksum = 0;
};

Header header_of(std::string_view content) {
  Header header;
  header.bytes = content.size();
  header.checksum = XXH3_64bits(content.data(), content.size());
  return header;
}

std::uint64_t limit_from_environment() {
  const char* text = environment("PENSTOCK_CACHE_MB");
  if (text == nullptr) return kDefaultMegabytes << 20;
  char* end = nullptr;
  const std::uint64_t megabytes = std::strtoull(text, &end, 10);
  if (end != text && *end == '\0' && megabytes < (1u << 30)) return megabytes << 20;
  warn("PENSTOCK_CACHE_MB must be a number of megabytes, not '{}'; using {}", text, kDefaultMegabytes);
  return kDefaultMegabytes << 20;
}

}  // namespace

struct ContentHash::State {
  XXH3_state_t* hash = XXH3_createState();
};

ContentHash::ContentHash() : state_(new State) { XXH3_128bits_reset(state_->hash); }

ContentHash::~ContentHash() {
  XXH3_freeState(state_->hash);
  delete state_;
}

void ContentHash::add(std::string_view part) {
  const std::uint64_t size = part.size();
  XXH3_128bits_update(state_->hash, &size, sizeof size);
  XXH3_128bits_update(state_->hash, part.data(), part.size());
}

std::string ContentHash::digits() const {
  const XXH128_hash_t hash = XXH3_128bits_digest(state_->hash);
  return fmt::format("{:016x}{:016x}", hash.high64, hash.low64);
}

DiskCache DiskCache::from_environment() { return {cache_folder(), limit_from_environment()}; }

const DiskCache& DiskCache::of_process() {
  static const DiskCache cache = from_environment();
  return cache;
}

std::string DiskCache::path_of(const std::string& name) const { return fmt::format("{}/{}{}", folder_, name, kSuffix); }

bool DiskCache::is_trusted() const {
  const std::string problem = who_else_writes(folder_);
  if (!problem.empty()) warn("compiled kernels are not kept in '{}': {}", folder_, problem);
  return problem.empty();
}

std::optional<std::string> DiskCache::get(const std::string& name) const {
  if (folder_.empty()) return std::nullopt;
  const std::string path = path_of(name);
  if (!is_trusted()) return std::nullopt;
  std::string problem;
  const std::optional<std::string> read = read_trusted(path, Trust::owner, problem);
  if (!problem.empty()) warn("the cached kernel {} is not used: {}", path, problem);
  if (!read) return std::nullopt;
  const std::string& text = *read;
  if (text.size() >= sizeof(Header)) {
    const std::string_view content = std::string_view(text).substr(sizeof(Header));
    const Header expected = header_of(content);
    if (std::memcmp(text.data(), &expected, sizeof expected) == 0) {
      ::utimensat(AT_FDCWD, path.c_str(), nullptr, 0);  // evict() removes what was unused for longest
      return std::string(content);
    }
  }
  warn("the cached kernel {} is damaged; compiling it again", path);
  return std::nullopt;
}

void DiskCache::put(const std::string& name, std::string_view content) const {
  if (folder_.empty()) return;
  make_private_folder(folder_);
  if (!is_trusted()) return;
  const Header header = header_of(content);
  try {
    // After a power cut the checksum finds what is torn, and compiling again is cheap.
    FileWriter file(path_of(name), FileWriter::Kind::cache);
    file.write({reinterpret_cast<const char*>(&header), sizeof header});
    file.write(content);
    file.finish();
  } catch (const Error& error) {
    if (!warned_.exchange(true)) {
      warn("cannot keep compiled kernels in '{}': {}; set PENSTOCK_CACHE_DIR to another folder", folder_, error.what());
    }
    return;
  }
  evict();
}

void DiskCache::evict() const {
  struct Entry {
    fs::file_time_type used;
    std::uint64_t bytes;
    fs::path path;
  };
  std::vector<Entry> entries;
  std::uint64_t total = 0;
  std::error_code error;
  for (fs::directory_iterator entry(folder_, error), end; !error && entry != end; entry.increment(error)) {
    if (entry->path().extension() != kSuffix) continue;
    std::error_code vanished;  // another process may evict at the same time
    const std::uint64_t bytes = entry->file_size(vanished);
    const fs::file_time_type used = entry->last_write_time(vanished);
    if (vanished) continue;
    entries.push_back({used, bytes, entry->path()});
    total += bytes;
  }
  std::sort(entries.begin(), entries.end(), [](const Entry& a, const Entry& b) { return a.used < b.used; });
  for (const Entry& entry : entries) {
    if (total <= limit_) break;
    fs::remove(entry.path, error);
    total -= entry.bytes;
  }
}

}  // namespace penstock::cuda
