#include "base/files/trusted_file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>

namespace penstock {
namespace {

std::string who_else_writes(const struct stat& status) {
  if (status.st_uid != ::geteuid() && status.st_uid != 0) {
    return fmt::format("it belongs to another user (number {})", status.st_uid);
  }
  if ((status.st_mode & (S_IWGRP | S_IWOTH)) != 0) {
    return fmt::format("others may write to it (mode {:04o}): chmod go-w", status.st_mode & 07777);
  }
  return "";
}

constexpr std::size_t most_bytes = std::size_t{256} << 20;  // far beyond any kernel or file of plans

/// Empty if the open file may be read.
std::string why_not_read(int file, Trust trust) {
  struct stat status {};
  if (::fstat(file, &status) != 0) return std::strerror(errno);
  if (S_ISDIR(status.st_mode)) return "it is a folder, not a file";
  if (trust == Trust::anyone) return "";
  return S_ISREG(status.st_mode) ? who_else_writes(status) : "it is not a regular file";
}

}  // namespace

std::string who_else_writes(const std::string& path) {
  struct stat status {};
  return ::stat(path.c_str(), &status) == 0 ? who_else_writes(status) : "";
}

std::optional<std::string> read_trusted(const std::string& path, Trust trust, std::string& problem) {
  const bool named = trust == Trust::anyone;
  const int file = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NOCTTY | (named ? 0 : O_NONBLOCK | O_NOFOLLOW));
  problem.clear();
  if (file < 0) {
    if (errno != ENOENT) problem = errno == ELOOP && !named ? "it is a link" : std::strerror(errno);
    return std::nullopt;
  }
  std::string text;
  problem = why_not_read(file, trust);
  for (char part[1 << 16]; problem.empty();) {
    const ssize_t got = ::read(file, part, sizeof part);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) problem = std::strerror(errno);
    if (got > 0 && text.size() > most_bytes) problem = fmt::format("it has more than {} bytes", most_bytes);
    if (got <= 0) break;
    text.append(part, static_cast<std::size_t>(got));
  }
  ::close(file);
  return problem.empty() ? std::optional(std::move(text)) : std::nullopt;
}

void make_private_folder(const std::string& folder) {
  std::error_code ignored;
  std::filesystem::create_directories(std::filesystem::path(folder).parent_path(), ignored);
  ::mkdir(folder.c_str(), 0700);
}

}  // namespace penstock
