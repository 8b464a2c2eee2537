#include "options/output_file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>

#include "options/configuration.h"
#include "penstock/error.h"
#include "penstock/file_writer.h"
#include "penstock/model_file.h"
#include "penstock/sources.h"
#include "terminal/units.h"

namespace penstock::cli {
namespace {

namespace fs = std::filesystem;

/// "a model", "a checkpoint", "no Penstock model", for a file that is there.
const char* kind_of_file(const std::string& path) {
  switch (inspect_model_file(path).kind) {
    case ModelFile::Kind::model:
      return "a model";
    case ModelFile::Kind::checkpoint:
      return "a checkpoint";
    case ModelFile::Kind::network:
      return "an imported network";
    default:
      return "no Penstock model";
  }
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

void cannot_write(const std::string& option, const std::string& path, const std::string& reason) {
  fail(ErrorCode::io_failure, "{} {}: cannot write: {}{}", option, printable(path), reason, address_advice(path, true));
}

bool is_standard_output(const std::string& path) {
  struct stat named = {}, ours = {};
  return stat(path.c_str(), &named) == 0 && fstat(STDOUT_FILENO, &ours) == 0 && named.st_dev == ours.st_dev &&
         named.st_ino == ours.st_ino && !S_ISCHR(ours.st_mode);
}

void refuse_standard_output(const std::string& option, const std::string& path) {
  if (path != "-") return;
  fail(ErrorCode::invalid_argument,
       "{} must name a file, not '-': {} does not write to standard output; ./- is a file of that name", option,
       option);
}

void check_writable_file(const std::string& option, const std::string& path) {
  refuse_standard_output(option, path);
  if (is_standard_output(path)) {
    fail(ErrorCode::invalid_argument, "{} must name a file, not {}: other output of this command goes there", option,
         printable(path));
  }
  std::error_code error;
  const fs::file_status status = fs::status(path, error);
  if (status.type() == fs::file_type::none) cannot_write(option, path, why_not_written(path, error.value()));
  if (fs::exists(status)) {
    if (fs::is_directory(status)) cannot_write(option, path, "it is a folder; name a file in it");
    if (!fs::is_regular_file(status)) cannot_write(option, path, "it is not a regular file");
    if (access(path.c_str(), W_OK) != 0) cannot_write(option, path, std::strerror(errno));
  }
  const std::string target = behind_links(path);
  if (target.starts_with("/proc/") || target.starts_with("/dev/fd/")) {
    cannot_write(option, path, "it names an open file; name a file of a folder");
  }
  check_folder(option, path);
}

void check_not_there(const std::string& option, const std::string& path, const std::string& advice) {
  if (!fs::exists(path)) return;
  fail(ErrorCode::invalid_argument, "{} {} is there already, {}; {}", option, printable(path), kind_of_file(path),
       advice);
}

void check_new_output(const std::string& path, bool force) {
  check_writable_file("--output", path);
  if (!force) check_not_there("--output", path, "--force replaces it, -o FILE writes another one");
}

std::vector<InputFile> input_files(const std::string& role, const std::vector<std::string>& paths) {
  std::vector<InputFile> files;
  for (const std::string& path : paths) files.push_back({role, path});
  return files;
}

void check_files(std::vector<InputFile> inputs, const std::vector<OutputFile>& outputs, bool force) {
  for (const std::string& path : configuration_files()) inputs.push_back({"--config", path});
  check_outputs(inputs, outputs, force ? "" : "--force replaces it");
}

std::string resolve_output(std::string output, const std::vector<InputFile>& inputs, const char* extension,
                           bool force) {
  if (output.empty()) output = fs::path(inputs.front().path).replace_extension(extension).string();
  check_files(inputs, {{"--output", output}}, force);
  check_new_output(output, force);
  return output;
}

}  // namespace penstock::cli
