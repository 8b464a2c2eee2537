#include "io/atomic_file.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>

#include <cstdio>
#include <cstring>
#include <filesystem>

#include "base/check.h"
#include "io/file_descriptor.h"
#include "penstock/sources.h"

namespace penstock::io {
namespace {

[[noreturn]] void fail_writing(const std::string& path, int error) {
  fail(ErrorCode::io_failure, "cannot write '{}': {}{}", path, std::strerror(error), address_advice(path, true));
}

/// True if the open file is still the one that `path` names.
bool is_at(const FileDescriptor& file, const std::string& path) {
  struct stat open_file {};
  struct stat named {};
  return ::fstat(file.get(), &open_file) == 0 && ::lstat(path.c_str(), &named) == 0 &&
         open_file.st_dev == named.st_dev && open_file.st_ino == named.st_ino;
}

/// Opens the temporary file for this writer alone. Its name is fixed, so that a killed process leaves one such file and
/// not one a kill; the lock keeps a second writer from mixing its bytes into ours. Between open and lock another
/// writer may have renamed the file away, hence the look at its name.
FileDescriptor open_temporary(const std::string& path, const std::string& temporary) {
  for (;;) {
    FileDescriptor file(
        retry([&] { return ::open(temporary.c_str(), O_WRONLY | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0666); }));
    if (!file.valid()) fail_writing(path, errno);
    if (retry([&] { return ::flock(file.get(), LOCK_EX | LOCK_NB); }) != 0) {
      if (errno != EWOULDBLOCK) fail_writing(path, errno);
      fail(ErrorCode::io_failure, "cannot write '{}': another process is writing it", path);
    }
    if (!is_at(file, temporary)) continue;
    return file;
  }
}

void write_all(int file, std::span<const std::byte> bytes, const std::string& path) {
  while (!bytes.empty()) {
    const ssize_t written = retry([&] { return ::write(file, bytes.data(), bytes.size()); });
    if (written < 0) fail_writing(path, errno);
    bytes = bytes.subspan(static_cast<std::size_t>(written));
  }
}

/// A rename is on the disk only once its folder is.
void sync_folder(const std::filesystem::path& target, const std::string& path) {
  const std::string folder = target.has_parent_path() ? target.parent_path().string() : ".";
  const FileDescriptor file(retry([&] { return ::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC); }));
  if (!file.valid()) fail_writing(path, errno);
  // Some file systems cannot sync a folder and say EINVAL; there is nothing more to be done about it then.
  if (retry([&] { return ::fsync(file.get()); }) != 0 && errno != EINVAL) fail_writing(path, errno);
}

}  // namespace

void write_atomically(const std::string& path, std::span<const std::span<const std::byte>> pieces) {
  std::error_code error;
  const std::filesystem::path target = std::filesystem::weakly_canonical(path, error);
  if (error) fail_writing(path, error.value());
  struct stat old {};
  const bool exists = ::stat(target.c_str(), &old) == 0;
  if (exists && S_ISDIR(old.st_mode)) fail_writing(path, EISDIR);
  if (exists && !S_ISREG(old.st_mode)) {
    fail(ErrorCode::io_failure, "cannot write '{}': not a regular file, so it cannot be replaced as a whole", path);
  }
  // The rename would replace a write-protected file too; whoever protected it did not want that.
  if (exists && ::access(target.c_str(), W_OK) != 0) fail_writing(path, errno);

  const std::string temporary = target.string() + ".tmp";
  FileDescriptor file = open_temporary(path, temporary);
  try {
    if (::ftruncate(file.get(), 0) != 0) fail_writing(path, errno);
    if (exists && ::fchmod(file.get(), old.st_mode & 07777) != 0) fail_writing(path, errno);
    for (const auto piece : pieces) write_all(file.get(), piece, path);
    if (retry([&] { return ::fsync(file.get()); }) != 0) fail_writing(path, errno);
    if (::rename(temporary.c_str(), target.c_str()) != 0) fail_writing(path, errno);
  } catch (...) {
    ::unlink(temporary.c_str());
    throw;
  }
  if (!file.close()) fail_writing(path, errno);
  sync_folder(target, path);
}

void write_text_atomically(const std::string& path, std::string_view text) {
  const std::span<const std::byte> bytes = std::as_bytes(std::span(text));
  write_atomically(path, std::span(&bytes, 1));
}

}  // namespace penstock::io
