#include "device_choice.h"

#include <fmt/format.h>

#include <cstdio>
#include <filesystem>
#include <system_error>

#include "units.h"

namespace penstock::cli {

void settle_device(bool automatic, Execution& execution, const Model& model, DeviceQuestion question, bool quiet) {
  if (!automatic) return;
  question.execution = execution;
  const DeviceChoice choice = choose_device(model, question);
  execution.device = choice.device;
  if (!quiet) fmt::print(stderr, "device {}: {}\n", to_string(choice.device), printable(choice.why));
}

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

}  // namespace penstock::cli
