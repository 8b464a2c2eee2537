#include "options/device_choice.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <system_error>

#include "penstock/sequence_run.h"
#include "terminal/units.h"

namespace penstock::cli {
namespace {

/// The bytes of files together; 0 where one of them is not a file, such as standard input.
Index bytes_of_files(const std::vector<std::string>& paths) {
  Index bytes = 0;
  for (const std::string& path : paths) {
    std::error_code not_a_file;
    const auto size = std::filesystem::file_size(path, not_a_file);
    if (not_a_file) return 0;
    bytes += static_cast<Index>(size);
  }
  return bytes;
}

}  // namespace

void resolve_device(bool automatic, Execution& execution, const Model& model, DeviceQuestion question, bool quiet) {
  if (!automatic) return;
  question.execution = execution;
  const DeviceChoice choice = choose_device(model, question);
  execution.device = choice.device;
  if (!quiet) fmt::print(stderr, "device {}: {}\n", to_string(choice.device), printable(choice.why));
}

DeviceQuestion reading_of(const Model& model, const std::vector<std::string>& paths) {
  DeviceQuestion question{.steps = SequenceRun::piece, .start = true};
  const Index bytes = model.data().task == Task::language ? bytes_of_files(paths) : 0;
  if (bytes > 0) question.steps = std::min(bytes, SequenceRun::piece);
  question.calls = std::max<Index>(1, bytes / SequenceRun::piece);
  return question;
}

}  // namespace penstock::cli
