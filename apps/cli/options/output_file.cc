#include "options/output_file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <filesystem>

#include "penstock/error.h"
#include "penstock/file_writer.h"
#include "penstock/model_file.h"
#include "penstock/sources.h"
#include "terminal/units.h"

namespace penstock::cli {
namespace {

namespace fs = std::filesystem;

[[noreturn]] void cannot_write(const std::string& option, const std::string& path, const std::string& reason) {
  fail(ErrorCode::io_failure, "{} {}: cannot write: {}{}", option, printable(path), reason, address_advice(path, true));
}

/// "a model", "a checkpoint", "no Penstock model", for a file that is there.
const char* kind_of_file(const std::string& path) {
  switch (inspect_model_file(path).kind) {
    case ModelFile::Kind::model:
      return "a model";
    case ModelFile::Kind::checkpoint:
      return "a checkpoint";
    default:
      return "no Penstock model";
  }
}

/// Returns whether the open file is still the one of this name: the previous holder of the lock may have removed it.
bool is_named(int descriptor, const std::string& path) {
  struct stat open_file = {}, named = {};
  return fstat(descriptor, &open_file) == 0 && stat(path.c_str(), &named) == 0 && open_file.st_ino == named.st_ino &&
         open_file.st_dev == named.st_dev;
}

/// The number that the holder of a lock has written into it.
std::string holder(int descriptor) {
  std::array<char, 32> text = {};
  const ssize_t size = pread(descriptor, text.data(), text.size() - 1, 0);
  return size > 0 ? fmt::format(" (process {})", std::string(text.data(), static_cast<std::size_t>(size))) : "";
}

/// Opens a new file without a name: nothing is left of it, even if the process is killed. A file system without such
/// files gives it a name for a moment.
int open_trial(const fs::path& folder) {
  const int descriptor = open(folder.c_str(), O_TMPFILE | O_WRONLY | O_CLOEXEC, 0600);
  if (descriptor >= 0 || (errno != EOPNOTSUPP && errno != EISDIR && errno != EINVAL)) return descriptor;
  std::string trial = folder / ".penstock-XXXXXX";
  const int named = mkostemp(trial.data(), O_CLOEXEC);
  if (named >= 0) unlink(trial.c_str());
  return named;
}

/// Files are replaced by renaming, which is up to the folder.
void check_folder(const std::string& option, const std::string& path) {
  const fs::path folder = fs::path(behind_links(path)).parent_path();
  const int descriptor = open_trial(folder.empty() ? fs::path(".") : folder);
  if (descriptor < 0) {
    const std::string reason = std::strerror(errno);
    const bool lacks_folder = errno == ENOENT && address_advice(path, true).empty();
    cannot_write(option, path, lacks_folder ? reason + "; first: mkdir -p " + shell_word(folder.string()) : reason);
  }
  close(descriptor);
}

}  // namespace

void refuse_standard_output(const std::string& option, const std::string& path) {
  if (path != "-") return;
  fail(ErrorCode::invalid_argument,
       "{} must name a file, not '-': {} does not write to standard output; ./- is a file of that name", option,
       option);
}

void check_writable_file(const std::string& option, const std::string& path) {
  refuse_standard_output(option, path);
  std::error_code error;
  const fs::file_status status = fs::status(path, error);
  if (status.type() == fs::file_type::none) cannot_write(option, path, why_not_written(path, error.value()));
  if (fs::exists(status)) {
    if (fs::is_directory(status)) cannot_write(option, path, "it is a folder; name a file in it");
    if (!fs::is_regular_file(status)) cannot_write(option, path, "it is not a regular file");
    if (access(path.c_str(), W_OK) != 0) cannot_write(option, path, std::strerror(errno));
  }
  check_folder(option, path);
}

void check_not_there(const std::string& option, const std::string& path, const std::string& advice) {
  if (!fs::exists(path)) return;
  fail(ErrorCode::invalid_argument, "{} {} is there already, {}; {}", option, printable(path), kind_of_file(path),
       advice);
}

void check_not_one_of(const std::string& option, const std::string& path, const std::string& name,
                      const std::vector<std::string>& files) {
  std::error_code not_there;
  for (const std::string& file : files) {
    if (!fs::equivalent(path, file, not_there)) continue;
    fail(ErrorCode::invalid_argument, "{} {} would overwrite {}", option, printable(path), name);
  }
}

OutputLock::OutputLock(const std::string& option, const std::string& path) : path_(behind_links(path) + ".lock") {
  for (;;) {
    descriptor_ = open(path_.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0666);
    if (descriptor_ < 0) cannot_write(option, path_, why_not_written(path_, errno));
    if (flock(descriptor_, LOCK_EX | LOCK_NB) != 0) {
      const std::string who = holder(descriptor_);
      close(descriptor_);
      fail(ErrorCode::invalid_argument, "{} {}: another run{} is writing to it", option, printable(path), who);
    }
    if (is_named(descriptor_, path_)) break;
    close(descriptor_);
  }
  // Only for the message of whoever finds the lock taken.
  const std::string process = fmt::format("{}", getpid());
  if (ftruncate(descriptor_, 0) != 0 || pwrite(descriptor_, process.data(), process.size(), 0) < 0) return;
}

OutputLock::~OutputLock() {
  unlink(path_.c_str());
  close(descriptor_);
}

}  // namespace penstock::cli
