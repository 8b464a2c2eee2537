#include "io/read_file.h"

#include <fcntl.h>
#include <sys/stat.h>

#include <algorithm>
#include <cstring>

#include "base/check.h"
#include "io/file_descriptor.h"
#include "penstock/sources.h"
#include "penstock/stop.h"

namespace penstock::io {
namespace {

[[noreturn]] void fail_reading(const std::string& path, int error) {
  fail(ErrorCode::io_failure, "cannot read '{}': {}{}", path, std::strerror(error), address_advice(path, false));
}

void grow(std::string& content, std::uint64_t size, const std::string& path) {
  try {
    content.resize(size);
  } catch (const std::exception&) {  // bad_alloc, length_error
    fail_reading(path, ENOMEM);
  }
}

}  // namespace

std::string read_file(const std::string& path, std::uint64_t limit) {
  const FileDescriptor file(retry([&] { return ::open(path.c_str(), O_RDONLY | O_CLOEXEC); }));
  if (!file.valid()) fail_reading(path, errno);
  return read_open_file(file.get(), path, limit);
}

std::string read_open_file(int file, const std::string& path, std::uint64_t limit) {
  struct stat status {};
  if (::fstat(file, &status) != 0) fail_reading(path, errno);
  if (S_ISDIR(status.st_mode)) fail_reading(path, EISDIR);
  constexpr std::uint64_t most_of_device = std::uint64_t{1} << 26;  // /dev/zero has no end
  if (S_ISCHR(status.st_mode)) limit = std::min(limit, most_of_device);
  const auto refuse = [&] { fail(ErrorCode::bad_input, "{}: more than {} bytes", path, limit); };
  constexpr std::size_t most_at_once = std::size_t{1} << 24;  // so that a slow disk can be interrupted
  // The size is a hint: a pipe has none and a file may grow while it is read.
  const auto announced = static_cast<std::uint64_t>(std::max<off_t>(status.st_size, 0));
  if (announced > limit) refuse();
  std::string content;
  std::size_t size = 0;
  for (;;) {
    stop_if_asked();
    if (size == content.size()) grow(content, std::max<std::uint64_t>(size + size / 2 + 65536, announced + 1), path);
    const std::size_t room = std::min<std::size_t>(content.size() - size, most_at_once);
    const ssize_t got = retry([&] { return ::read(file, content.data() + size, room); });
    if (got < 0) fail_reading(path, errno);
    if (got == 0) break;
    size += static_cast<std::size_t>(got);
    if (size > limit) refuse();
  }
  content.resize(size);
  return content;
}

}  // namespace penstock::io
