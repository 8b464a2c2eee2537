#include "data/text/shard.h"

#include <fcntl.h>
#include <sys/stat.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <limits>
#include <optional>
#include <utility>

#include "base/check.h"
#include "base/environment.h"
#include "base/files/write_all.h"
#include "data/unpack.h"
#include "penstock/sources.h"
#include "penstock/stop.h"

namespace penstock::data {
namespace {

constexpr std::size_t unpacked_piece = std::size_t{1} << 20;
constexpr std::uint64_t most_of_device = std::uint64_t{1} << 26;  // /dev/zero has no end
constexpr std::uint64_t no_limit = std::numeric_limits<std::uint64_t>::max();

[[noreturn]] void fail_reading(const std::string& path, int error) {
  fail(ErrorCode::io_failure, "cannot read '{}': {}{}", path, std::strerror(error), address_advice(path, false));
}

io::FileDescriptor open_file(const std::string& path) {
  io::FileDescriptor file(
      io::retry([&] { return path == "-" ? ::dup(STDIN_FILENO) : ::open(path.c_str(), O_RDONLY | O_CLOEXEC); }));
  if (!file.valid()) fail_reading(path, errno);
  return file;
}

/// A new file without a name in TMPDIR, else in /var/tmp: /tmp is often in memory.
class TemporaryFile {
 public:
  /// `path` names the file whose content it gets in messages.
  explicit TemporaryFile(std::string path) : path_(std::move(path)) {
    const char* chosen = environment("TMPDIR");
    folder_ = chosen == nullptr ? "/var/tmp" : chosen;
    std::string name = folder_ + "/penstock-XXXXXX";
    file_ = io::FileDescriptor(::mkostemp(name.data(), O_CLOEXEC));
    if (!file_.valid()) fail_writing(errno);
    ::unlink(name.c_str());
  }

  void write(std::string_view content) {
    if (const int error = write_all(file_.get(), content, true); error != 0) fail_writing(error);
  }
  io::FileDescriptor release() { return std::move(file_); }

 private:
  [[noreturn]] void fail_writing(int error) const {
    fail(ErrorCode::io_failure, "{}: cannot be unpacked to a temporary file in {}: {}; TMPDIR names another folder",
         path_, folder_, std::strerror(error));
  }

  std::string path_, folder_;
  io::FileDescriptor file_{-1};
};

}  // namespace

Shard::Shard(std::string path, std::size_t& memory, bool keep_open, const CheckBeginning& check)
    : path_(std::move(path)) {
  io::FileDescriptor file = open_file(path_);
  struct stat status {};
  if (::fstat(file.get(), &status) != 0) fail_reading(path_, errno);
  if (S_ISDIR(status.st_mode)) fail_reading(path_, EISDIR);
  char beginning[4] = {};
  const ssize_t known = S_ISREG(status.st_mode) ? ::pread(file.get(), beginning, sizeof beginning, 0) : 0;
  const bool plain =
      S_ISREG(status.st_mode) && ::lseek(file.get(), 0, SEEK_CUR) == 0 &&
      io::packing_of({beginning, static_cast<std::size_t>(std::max<ssize_t>(known, 0))}) == io::Packing::none;
  const auto size = static_cast<std::uint64_t>(status.st_size);
  if (!plain || size <= memory) {
    take_unpacked(file.get(), S_ISCHR(status.st_mode) ? most_of_device : no_limit, memory, check);
    return;
  }
  size_ = size;
  in_file_ = true;
  if (keep_open || path_ == "-") file_ = std::move(file);
}

void Shard::take_unpacked(int file, std::uint64_t limit, std::size_t& memory, const CheckBeginning& check) {
  std::string piece(unpacked_piece, '\0');
  const io::Pieces pieces = [&]() -> std::string_view {
    stop_if_asked();
    const ssize_t got = io::retry([&] { return ::read(file, piece.data(), piece.size()); });
    if (got < 0) fail_reading(path_, errno);
    return {piece.data(), static_cast<std::size_t>(got)};
  };
  std::string_view first = pieces();
  const io::Packing packing = io::packing_of(first);
  const io::Pieces from_first = [&] { return first.empty() ? pieces() : std::exchange(first, {}); };
  const auto unpacker = packing == io::Packing::none ? nullptr : io::unpack(packing, from_first, path_);
  std::string plain(unpacker ? unpacked_piece : 0, '\0');
  const auto next = [&]() -> std::string_view {
    return unpacker ? std::string_view(plain.data(), unpacker->read(plain.data(), plain.size())) : from_first();
  };
  std::optional<TemporaryFile> spilled;
  for (std::string_view part = next(); !part.empty(); part = next()) {
    if (size_ == 0) check(part);
    size_ += part.size();
    if (size_ > limit) fail(ErrorCode::bad_input, "{}: more than {} bytes", path_, limit);
    if (!spilled && size_ > memory) spilled.emplace(path_).write(std::exchange(content_, {}));
    if (spilled) {
      spilled->write(part);
    } else {
      content_ += part;
    }
  }
  if (unpacker && unpacker->truncated()) io::fail_truncated(packing, path_);
  in_file_ = spilled.has_value();
  if (spilled) file_ = spilled->release();
  memory -= content_.size();
}

void Shard::read(std::uint64_t at, std::size_t count, char* room) const {
  at += offset_;
  if (!in_file_) {
    std::copy_n(content_.data() + at, count, room);
    return;
  }
  const io::FileDescriptor anew = file_.valid() ? io::FileDescriptor(-1) : open_file(path_);
  const int file = file_.valid() ? file_.get() : anew.get();
  while (count > 0) {
    const ssize_t got = io::retry([&] { return ::pread(file, room, count, static_cast<off_t>(at)); });
    if (got < 0) fail_reading(path_, errno);
    if (got == 0) {
      fail(ErrorCode::io_failure,
           "{}: the file had {} bytes when it was opened and now ends at byte {}; restore it, then "
           "resume from the checkpoint",
           path_, size_, at);
    }
    at += static_cast<std::uint64_t>(got);
    room += got;
    count -= static_cast<std::size_t>(got);
  }
}

void Shard::replace(std::string content) {
  content_ = std::move(content);
  size_ = content_.size();
  offset_ = 0;
  in_file_ = false;
  file_.close();
}

}  // namespace penstock::data
