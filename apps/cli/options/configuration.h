#pragma once

#include <CLI/CLI.hpp>
#include <string>
#include <vector>

/// Options from a file, so that a run can be repeated without typing them again.
namespace penstock::cli {

/// Replaces `--config FILE` by the options in the file, in front of those on the command line, which so count instead.
/// The arguments are those behind the program's name. A file has lines "width = 64"; a flag is "true" or "false"; '#'
/// starts a comment; a line "[train]" says that what follows is for that command alone. Throws Error(io_failure) if the
/// file cannot be read, Error(invalid_argument) naming the line of a mistake.
std::vector<std::string> with_configuration(const CLI::App& program, std::vector<std::string> arguments);

/// Returns the files of --config that with_configuration() has read.
const std::vector<std::string>& configuration_files();

/// The options of a command and their values as such a file. Those that are not set stand behind a '#'.
std::string configuration_text(const CLI::App& command);

}  // namespace penstock::cli
