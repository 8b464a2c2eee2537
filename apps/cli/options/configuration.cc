#include "options/configuration.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <sstream>

#include "options/options.h"
#include "penstock/error.h"
#include "terminal/input.h"
#include "terminal/units.h"

namespace penstock::cli {
namespace {

using CLI::detail::trim_copy;

constexpr const char* option_name = "--config";

/// Up to a '#' that stands at the start or behind a blank, and outside quotes.
std::string without_comment(const std::string& line) {
  char quote = 0;
  for (std::size_t i = 0; i < line.size(); ++i) {
    if (quote != 0) {
      if (line[i] == quote) quote = 0;
    } else if (line[i] == '"' || line[i] == '\'') {
      quote = line[i];
    } else if (line[i] == '#' && (i == 0 || line[i - 1] == ' ' || line[i - 1] == '\t')) {
      return line.substr(0, i);
    }
  }
  return line;
}

std::string unquoted(const std::string& text) {
  const bool quoted = text.size() >= 2 && (text.front() == '"' || text.front() == '\'') && text.back() == text.front();
  return quoted ? text.substr(1, text.size() - 2) : text;
}

std::vector<std::string>& files_read() {
  static std::vector<std::string> files;
  return files;
}

class ConfigurationReader {
 public:
  ConfigurationReader(const CLI::App& program, const CLI::App& command, std::string path)
      : program_(program), command_(command), path_(std::move(path)) {}

  std::vector<std::string> read() {
    std::error_code unreadable;
    if (std::filesystem::is_directory(path_, unreadable)) {
      fail(ErrorCode::io_failure, "--config {}: it is a folder; name a file in it", printable(path_));
    }
    constexpr std::size_t longest = 1 << 20;
    std::istringstream file(read_option_file("--config", path_, longest));
    std::string line;
    while (std::getline(file, line)) {
      ++number_;
      take(trim_copy(without_comment(line)));
    }
    return arguments_;
  }

 private:
  [[noreturn]] void refuse(const std::string& problem) const {
    fail(ErrorCode::invalid_argument, "--config {}:{}: {}", printable(path_), number_, problem);
  }

  void take(const std::string& line) {
    if (line.empty()) return;
    if (line.front() == '[') return begin_section(line);
    const std::size_t equals = line.find('=');
    if (equals == line.npos) refuse(fmt::format("a line must be NAME = VALUE, not '{}'", printable(line)));
    if (mine_) add(trim_copy(line.substr(0, equals)), unquoted(trim_copy(line.substr(equals + 1))));
  }

  void begin_section(const std::string& line) {
    const std::string name = line.back() == ']' ? trim_copy(line.substr(1, line.size() - 2)) : "";
    const std::vector<std::string> commands = command_names(program_);
    if (std::find(commands.begin(), commands.end(), name) == commands.end()) {
      refuse(fmt::format("there is no command '{}'{}", printable(line), suggestion(name, commands)));
    }
    mine_ = name == command_.get_name();
  }

  void add(const std::string& name, const std::string& value) {
    const auto& table = option_table(command_);
    const auto entry =
        std::find_if(table.begin(), table.end(), [&](const auto& e) { return e.value && e.name() == name; });
    if (entry == table.end()) {
      const std::string option = "--" + name;
      refuse(fmt::format("there is no option '{}'{}", printable(name), suggestion(option, option_names(command_))));
    }
    if (!entry->is_flag) return arguments_.push_back(fmt::format("--{}={}", name, value));
    if (value != "true" && value != "false") {
      refuse(fmt::format("{} must be true or false, not '{}'", name, printable(value)));
    }
    if (value == "true") arguments_.push_back("--" + name);
  }

  const CLI::App& program_;
  const CLI::App& command_;
  std::string path_;
  long number_ = 0;
  bool mine_ = true;
  std::vector<std::string> arguments_;
};

}  // namespace

std::vector<std::string> with_configuration(const CLI::App& program, std::vector<std::string> arguments) {
  const auto commands = commands_of(program);
  if (arguments.empty()) return arguments;
  const auto command = std::find_if(commands.begin(), commands.end(),
                                    [&](const CLI::App* v) { return v->get_name() == arguments.front(); });
  if (command == commands.end()) return arguments;
  std::vector<std::string> from_files;
  for (std::size_t i = 1; i < arguments.size() && arguments[i] != "--";) {
    const bool joined = arguments[i].starts_with(std::string(option_name) + "=");
    if (!joined && (arguments[i] != option_name || i + 1 == arguments.size())) {
      ++i;
      continue;
    }
    const std::string path = joined ? arguments[i].substr(arguments[i].find('=') + 1) : arguments[i + 1];
    files_read().push_back(path);
    for (std::string& argument : ConfigurationReader(program, **command, path).read()) {
      from_files.push_back(std::move(argument));
    }
    const auto begin = arguments.begin() + static_cast<std::ptrdiff_t>(i);
    arguments.erase(begin, begin + (joined ? 1 : 2));
  }
  arguments.insert(arguments.begin() + 1, from_files.begin(), from_files.end());
  return arguments;
}

const std::vector<std::string>& configuration_files() { return files_read(); }

std::string configuration_text(const CLI::App& command) {
  std::string text = fmt::format("[{}]\n", command.get_name());
  std::string group;
  for (const OptionEntry& entry : option_table(command)) {
    if (!entry.value) continue;
    if (entry.option->get_group() != group) {
      group = entry.option->get_group();
      text += fmt::format("\n# {}\n", group);
    }
    const std::string value = entry.value();
    const bool quoted = value.find_first_of("#'\" ") != value.npos || value == "\t";
    const std::string shown = quoted ? fmt::format("\"{}\"", value) : value;
    // Options that were not given stay comments: some options suit only some data.
    const char* const comment = entry.option->count() > 0 && !value.empty() ? "" : "#";
    const std::string line = fmt::format("{}{} ={}{}", comment, entry.name(), value.empty() ? "" : " ", shown);
    text += fmt::format("{:<31} # {}\n", line, entry.option->get_description());
  }
  return text;
}

}  // namespace penstock::cli
