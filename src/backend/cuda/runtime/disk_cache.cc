#include "backend/cuda/runtime/disk_cache.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#define XXH_INLINE_ALL
// Its functions insist on being inlined where they are called through pointers, which -Og does not do.
#define XXH_NO_INLINE_HINTS 1
#include <xxhash.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <vector>

#include "base/cache_folder.h"
#include "base/environment.h"
#include "base/warning.h"

namespace penstock::cuda {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kSuffix = ".cubin";
constexpr std::uint64_t kDefaultMegabytes = 256;

/// What precedes the content of a file.
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

/// Removes the file again if anything went wrong before it got its final name.
struct TemporaryFile {
  std::string path;
  int file;

  explicit TemporaryFile(const std::string& pattern) : path(pattern), file(::mkostemp(path.data(), O_CLOEXEC)) {}
  ~TemporaryFile() {
    if (file >= 0) ::close(file);
    if (!path.empty()) ::unlink(path.c_str());
  }
  TemporaryFile(const TemporaryFile&) = delete;
  TemporaryFile& operator=(const TemporaryFile&) = delete;
};

bool write_all(int file, const void* bytes, std::size_t size) {
  const char* next = static_cast<const char*>(bytes);
  while (size > 0) {
    const ssize_t written = ::write(file, next, size);
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) return false;
    next += written;
    size -= static_cast<std::size_t>(written);
  }
  return true;
}

/// Why others than this user and root could change what `path` holds, in words; empty if they cannot.
std::string who_else_writes(const struct stat& status) {
  if (status.st_uid != ::geteuid() && status.st_uid != 0) {
    return fmt::format("it belongs to another user (number {})", status.st_uid);
  }
  if ((status.st_mode & (S_IWGRP | S_IWOTH)) != 0) {
    return fmt::format("others may write to it (mode {:04o}): chmod go-w", status.st_mode & 07777);
  }
  return "";
}

/// The content of a regular file that only this user and root can write; nothing of others, with a warning.
std::optional<std::string> read_trusted(const std::string& path) {
  // Without waiting for who writes to a pipe.
  const int file = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
  struct stat status {};
  if (file < 0) return std::nullopt;
  std::string text;
  std::string problem =
      ::fstat(file, &status) != 0 || !S_ISREG(status.st_mode) ? "it is no regular file" : who_else_writes(status);
  if (problem.empty()) {
    char part[1 << 16];
    ssize_t got = 0;
    while ((got = ::read(file, part, sizeof part)) > 0) text.append(part, static_cast<std::size_t>(got));
  }
  ::close(file);
  if (problem.empty()) return text;
  warn("the cached kernel {} is not used: {}", path, problem);
  return std::nullopt;
}

/// Makes a folder that only its owner can write, whatever the umask.
void make_folder(const std::string& folder) {
  std::error_code ignored;  // writing will say it
  fs::create_directories(fs::path(folder).parent_path(), ignored);
  ::mkdir(folder.c_str(), 0700);
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
  struct stat status {};
  if (::stat(folder_.c_str(), &status) != 0) return true;  // there is nothing in it
  const std::string problem = who_else_writes(status);
  if (!problem.empty()) warn("compiled kernels are not kept in '{}': {}", folder_, problem);
  return problem.empty();
}

std::optional<std::string> DiskCache::get(const std::string& name) const {
  if (folder_.empty()) return std::nullopt;
  const std::string path = path_of(name);
  if (!is_trusted()) return std::nullopt;
  const std::optional<std::string> read = read_trusted(path);
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

bool DiskCache::write_temporary(int file, std::string_view content) const {
  const Header header = header_of(content);
  // No fsync: after a power cut the checksum finds what is torn, and compiling again is cheap.
  return write_all(file, &header, sizeof header) && write_all(file, content.data(), content.size()) &&
         ::fchmod(file, 0644) == 0;
}

void DiskCache::put(const std::string& name, std::string_view content) const {
  if (folder_.empty()) return;
  make_folder(folder_);
  if (!is_trusted()) return;
  std::error_code error;
  if (fs::is_directory(folder_, error)) {
    TemporaryFile temporary(folder_ + "/.new-XXXXXX");
    if (temporary.file >= 0 && write_temporary(temporary.file, content) &&
        ::rename(temporary.path.c_str(), path_of(name).c_str()) == 0) {
      temporary.path.clear();
      evict();
      return;
    }
    error = std::error_code(errno, std::generic_category());
    if (temporary.file < 0) temporary.path.clear();
  } else if (!error) {
    error = std::make_error_code(std::errc::not_a_directory);
  }
  warn("cannot keep compiled kernels in '{}': {}; set PENSTOCK_CACHE_DIR to another folder", folder_, error.message());
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
