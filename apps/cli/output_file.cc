#include "output_file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>

#include "penstock/error.h"
#include "penstock/model.h"
#include "units.h"

namespace penstock::cli {
namespace {

namespace fs = std::filesystem;

[[noreturn]] void cannot_write(const std::string& option, const std::string& path, const std::string& reason) {
  throw Error(ErrorCode::io_failure, fmt::format("{} {}: cannot write: {}", option, printable(path), reason));
}

void check_replaceable(const std::string& option, const std::string& path, bool force) {
  if (access(path.c_str(), W_OK) != 0) cannot_write(option, path, std::strerror(errno));
  if (force) return;
  try {
    Model::load(path);
  } catch (const Error& error) {
    if (error.code() == ErrorCode::io_failure) throw;
    throw Error(ErrorCode::invalid_argument,
                fmt::format("{} {} is there and is no Penstock model; --force overwrites it", option, printable(path)));
  }
}

/// Files are replaced by renaming, which is up to the folder.
void check_folder(const std::string& option, const std::string& path) {
  const fs::path folder = fs::path(path).parent_path();
  std::string trial = (folder.empty() ? fs::path(".") : folder) / ".penstock-XXXXXX";
  const int descriptor = mkostemp(trial.data(), O_CLOEXEC);
  if (descriptor < 0) cannot_write(option, path, std::strerror(errno));
  close(descriptor);
  unlink(trial.c_str());
}

}  // namespace

void check_model_file(const std::string& option, const std::string& path, bool force) {
  std::error_code error;
  const fs::file_status status = fs::status(path, error);
  if (status.type() == fs::file_type::none) cannot_write(option, path, error.message());
  if (fs::exists(status)) {
    if (!fs::is_regular_file(status)) cannot_write(option, path, "it is not a regular file");
    check_replaceable(option, path, force);
  }
  check_folder(option, path);
}

}  // namespace penstock::cli
