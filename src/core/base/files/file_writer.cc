#include "penstock/file_writer.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <climits>
#include <cstring>
#include <filesystem>
#include <random>
#include <utility>

#include "base/check.h"
#include "base/files/write_all.h"
#include "penstock/sources.h"

namespace penstock {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kTemporaryPrefix = ".penstock-";
constexpr std::size_t kRandomDigits = 16;

[[noreturn]] void refuse_path(const std::string& path, const std::string& reason) {
  fail(ErrorCode::io_failure, "cannot write '{}': {}{}", path, reason, address_advice(path, true));
}

std::string folder_of(const std::string& path) {
  const fs::path folder = fs::path(path).parent_path();
  return folder.empty() ? "." : folder.string();
}

/// Links such as /dev/stdout lead to these: they name an open file, which no other file can replace.
bool names_open_file(const std::string& path) { return path.starts_with("/proc/") || path.starts_with("/dev/fd/"); }

/// Returns whether a link is another user's, in a folder where all may write: it may lead to a file of ours. The kernel
/// refuses to follow such a link, by the same rule.
bool is_foreign_link(const std::string& path, const struct stat& link) {
  struct stat folder {};
  if (::stat(folder_of(path).c_str(), &folder) != 0) return false;
  const bool shared = (folder.st_mode & S_ISVTX) != 0 && (folder.st_mode & S_IWOTH) != 0;
  return shared && link.st_uid != ::geteuid() && link.st_uid != folder.st_uid;
}

/// Returns how many bytes a name in `folder` may have: 143 on eCryptfs, 255 on most others. Also for a folder that is
/// not there.
std::size_t longest_name(const std::string& folder) {
  const long allowed = ::pathconf(folder.c_str(), _PC_NAME_MAX);
  return allowed > 0 ? static_cast<std::size_t>(allowed) : NAME_MAX;
}

/// Returns the name of the temporary file of `name` without its random end: as much of `name` as leaves room for that,
/// in whole characters of UTF-8.
std::string temporary_stem(const std::string& folder, const std::string& name) {
  constexpr std::size_t others = kTemporaryPrefix.size() + 1 + kRandomDigits;
  std::size_t size = std::min<std::size_t>(longest_name(folder), NAME_MAX);
  size = std::min(name.size(), size > others ? size - others : 0);
  const auto is_inside_character = [&] { return size < name.size() && (name[size] & 0xC0) == 0x80; };
  while (size > 0 && is_inside_character()) --size;
  return fmt::format("{}{}-", kTemporaryPrefix, name.substr(0, size));
}

std::string random_digits() {
  std::random_device random;
  return fmt::format("{:08x}{:08x}", random(), random());
}

/// Removes what killed writers of the same file left: a living writer holds a lock on its own.
void remove_stale(const std::string& folder, const std::string& stem) {
  DIR* const entries = ::opendir(folder.c_str());
  if (entries == nullptr) return;
  while (const dirent* entry = ::readdir(entries)) {
    const std::string_view name = entry->d_name;
    if (!name.starts_with(stem) || name.size() != stem.size() + kRandomDigits) continue;
    const int file = ::openat(::dirfd(entries), entry->d_name, O_WRONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
    if (file < 0) continue;
    struct stat status {};
    const bool ours = ::fstat(file, &status) == 0 && S_ISREG(status.st_mode) && status.st_uid == ::geteuid();
    if (ours && ::flock(file, LOCK_EX | LOCK_NB) == 0) ::unlinkat(::dirfd(entries), entry->d_name, 0);
    ::close(file);
  }
  ::closedir(entries);
}

/// Returns whether the open file is still the one of this name.
bool is_at(int file, const std::string& path) {
  struct stat open_file {
  }, named{};
  return ::fstat(file, &open_file) == 0 && ::lstat(path.c_str(), &named) == 0 && open_file.st_dev == named.st_dev &&
         open_file.st_ino == named.st_ino;
}

/// Permissions and owner of the file that will be replaced. A file that cannot get the same owner gets no more than
/// the plain permissions.
bool take_over(int file, const struct stat& old) {
  struct stat own {};
  if (::fstat(file, &own) != 0) return false;
  mode_t mode = old.st_mode & 07777;
  const bool same_owner = own.st_uid == old.st_uid && own.st_gid == old.st_gid;
  if (!same_owner && ::fchown(file, old.st_uid, old.st_gid) != 0) mode &= 0777;
  return ::fchmod(file, mode) == 0;
}

/// A rename is on the disk only once its folder is. Some file systems cannot sync a folder and say EINVAL.
bool sync_folder(const std::string& folder) {
  const int file = ::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (file < 0) return errno == EACCES;  // a folder that may be written and not read
  const bool synced = ::fsync(file) == 0 || errno == EINVAL;
  const int error = errno;
  ::close(file);
  errno = error;
  return synced;
}

/// Opens a FIFO or a device; a FIFO waits for its reader, and a signal ends that.
int open_in_place(const std::string& path, const struct stat& status) {
  const int flags = O_WRONLY | O_CLOEXEC | O_NOCTTY;
  return ::open(path.c_str(), S_ISREG(status.st_mode) ? flags | O_APPEND : flags);
}

}  // namespace

std::string why_not_written(const std::string& path, int error) {
  std::string reason = std::strerror(error);
  if (error != ENAMETOOLONG) return reason;
  const std::size_t longest = longest_name(folder_of(path));
  const fs::path names(path);
  const auto advise = [](std::string_view what, std::size_t bytes, std::size_t most) {
    return fmt::format("{} has {} bytes, and the file system allows {}; choose a shorter one", what, bytes, most);
  };
  if (const std::size_t bytes = names.filename().string().size(); bytes > longest) {
    return advise("its name", bytes, longest);
  }
  for (const fs::path& name : names) {
    if (name.string().size() > longest) return advise("the name of one of its folders", name.string().size(), longest);
  }
  return path.size() >= PATH_MAX ? advise("the path", path.size(), PATH_MAX - 1) : reason;
}

std::string behind_links(const std::string& path) {
  constexpr int most_links = 40;  // as the kernel
  std::string target = path;
  for (int i = 0; i < most_links; ++i) {
    struct stat status {};
    if (::lstat(target.c_str(), &status) != 0) {
      if (errno == ENOENT && !target.empty()) return target;
      refuse_path(path, why_not_written(target, errno));
    }
    if (!S_ISLNK(status.st_mode) || names_open_file(target)) return target;
    if (is_foreign_link(target, status)) {
      refuse_path(path, fmt::format("it is a link that another user made in {}; remove it, or write elsewhere",
                                    folder_of(target)));
    }
    std::error_code error;
    const fs::path next = fs::read_symlink(target, error);
    if (error) refuse_path(path, error.message());
    target = next.is_absolute() ? next.string() : (fs::path(folder_of(target)) / next).string();
  }
  refuse_path(path, std::strerror(ELOOP));
}

FileWriter::FileWriter(std::string path, Kind kind) : kind_(kind), path_(std::move(path)) {
  if (kind_ == Kind::document) {
    open_in_place_or_beside();
  } else {
    target_ = path_;
    open_temporary(folder_of(path_), fs::path(path_).filename().string(), 0644);
  }
}

void FileWriter::open_in_place_or_beside() {
  target_ = behind_links(path_);
  struct stat old {};
  const bool exists = ::stat(target_.c_str(), &old) == 0;
  if (exists && S_ISDIR(old.st_mode)) fail_writing(EISDIR);
  if (exists && (S_ISBLK(old.st_mode) || S_ISSOCK(old.st_mode))) {
    refuse_path(path_, S_ISBLK(old.st_mode) ? "it is a disk" : "it is a socket");
  }
  if (exists && (!S_ISREG(old.st_mode) || names_open_file(target_))) {
    descriptor_ = open_in_place(target_, old);
    if (descriptor_ < 0) fail_writing(errno);
    return;
  }
  // A rename would replace a write-protected file too; its owner does not want that.
  if (exists && ::access(target_.c_str(), W_OK) != 0) fail_writing(errno);
  const std::string name = fs::path(target_).filename().string();
  if (name.empty()) fail_writing(EISDIR);
  // Nobody may open a file early that will be private.
  open_temporary(folder_of(target_), name, exists ? 0600 : 0666);
  if (exists && !take_over(descriptor_, old)) {
    const int error = errno;
    ::unlink(temporary_.c_str());
    ::close(std::exchange(descriptor_, -1));
    fail_writing(error);
  }
}

void FileWriter::open_temporary(const std::string& folder, const std::string& name, unsigned mode) {
  const std::string stem = temporary_stem(folder, name);
  remove_stale(folder, stem);
  constexpr int most_trials = 100;
  for (int i = 0; i < most_trials; ++i) {
    temporary_ = fmt::format("{}/{}{}", folder, stem, random_digits());
    const int file = ::open(temporary_.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, mode);
    if (file < 0 && (errno == EEXIST || errno == EINTR)) continue;
    if (file < 0) fail_writing(errno);
    // Another writer that cleans up may have been quicker than our lock. Without locks nobody cleans up.
    const bool taken = ::flock(file, LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK;
    if (!taken && is_at(file, temporary_)) {
      descriptor_ = file;
      return;
    }
    ::unlink(temporary_.c_str());
    ::close(file);
  }
  temporary_.clear();
  fail_writing(EBUSY);
}

FileWriter::~FileWriter() {
  if (descriptor_ < 0) return;
  if (!temporary_.empty()) ::unlink(temporary_.c_str());
  ::close(descriptor_);
}

void FileWriter::fail_writing(int error) const { refuse_path(path_, why_not_written(target_, error)); }

void FileWriter::write(std::string_view bytes) {
  require(descriptor_ >= 0, "'{}' is already closed", path_);
  const int error = write_all(descriptor_, bytes, !temporary_.empty());
  if (error != 0) fail_writing(error);
}

void FileWriter::finish() {
  require(descriptor_ >= 0, "'{}' is already closed", path_);
  const bool replaces = !temporary_.empty();
  const bool syncs = replaces && kind_ == Kind::document;
  if (syncs) {
    while (::fsync(descriptor_) != 0) {
      if (errno != EINTR) fail_writing(errno);
    }
  }
  if (replaces) {
    if (::rename(temporary_.c_str(), target_.c_str()) != 0) fail_writing(errno);
    temporary_.clear();
  }
  // Network file systems may report an error only now.
  if (::close(std::exchange(descriptor_, -1)) != 0 && errno != EINTR) fail_writing(errno);
  if (syncs && !sync_folder(folder_of(target_))) fail_writing(errno);
}

void check_can_write(const std::string& path) {
  std::error_code unknown;
  if (!fs::is_other(path, unknown)) const FileWriter trial(path);
}

void write_file(const std::string& path, std::string_view content) {
  FileWriter file(path);
  file.write(content);
  file.finish();
}

}  // namespace penstock
