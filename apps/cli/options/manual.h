#pragma once

#include <CLI/CLI.hpp>
#include <string>
#include <vector>

/// The option table in other forms than --help: manual pages and completions of shells.
namespace penstock::cli {

/// A page of the manual, section 1, in roff: of the program, or of one verb.
std::string manual_page(const CLI::App& app);

/// Those that there are completions of.
const std::vector<std::string>& shells();
std::string bash_completion(const CLI::App& program);
std::string zsh_completion(const CLI::App& program);
std::string fish_completion(const CLI::App& program);

}  // namespace penstock::cli
