// The option table in other forms than --help: manual pages, completions of shells, and the commands that print them.

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <unistd.h>

#include <cctype>
#include <cstdio>
#include <filesystem>
#include <memory>
#include <string>

#include "commands/commands.h"
#include "options/options.h"
#include "penstock/file_writer.h"
#include "penstock/output_files.h"
#include "penstock/recurrent.h"
#include "penstock/version.h"
#include "terminal/terminal.h"
#include "terminal/units.h"

namespace penstock::cli {
namespace {

const std::vector<std::string> shells = {"bash", "zsh", "fish"};

std::string upper(std::string text) {
  for (char& c : text) c = static_cast<char>(std::toupper(static_cast<unsigned char>(c)));
  return text;
}

/// Text as roff prints it: no hyphen becomes a dash, no line a request.
std::string roff(const std::string& text) {
  std::string out;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const bool line_start = i == 0 || text[i - 1] == '\n';
    if (line_start && (text[i] == '.' || text[i] == '\'')) out += "\\&";
    if (text[i] == '\\') {
      out += "\\e";
    } else if (text[i] == '-') {
      out += "\\-";
    } else {
      out += text[i];
    }
  }
  return out;
}

std::string with_placeholder(const CLI::Option& option) {
  std::string text = fmt::format(
      "\\fB{}\\fR", roff(fmt::format("{}", fmt::join(CLI::detail::split(option.get_name(false, true), ','), ", "))));
  const std::string& placeholder = option.get_option_text();
  return placeholder.empty() ? text : text + " \\fI" + roff(placeholder) + "\\fR";
}

void add_entries(std::string& page, const CLI::App& app) {
  for (const CLI::Option* option : app.get_options([](const CLI::Option* o) { return o->get_positional(); })) {
    page += fmt::format(".TP\n\\fI{}\\fR\n{}\n", roff(option->get_option_text()), roff(option->get_description()));
  }
  std::string group;
  for (const OptionEntry& entry : option_table(app)) {
    if (entry.option->get_group() != group) {
      group = entry.option->get_group();
      page += fmt::format(".SS {}\n", roff(group));
    }
    page += fmt::format(".TP\n{}\n{}\n", with_placeholder(*entry.option), roff(entry.option->get_description()));
  }
}

/// Escapes text for a shell's single quotes.
std::string single_quoted(const std::string& text) {
  std::string out = "'";
  for (const char c : text) out += c == '\'' ? std::string("'\\''") : std::string(1, c);
  return out + "'";
}

std::vector<std::string> names_of(const CLI::App& command) {
  std::vector<std::string> names;
  for (const OptionEntry& entry : option_table(command)) {
    names.push_back("--" + entry.name());
    for (const std::string& letter : entry.option->get_snames()) names.push_back("-" + letter);
  }
  return names;
}

/// Words that an option takes, as far as they are known; empty: any value.
std::vector<std::string> words_of(const OptionEntry& entry) {
  std::vector<std::string> words = entry.choices;
  if (entry.name() == "cell") {
    for (const CellInfo& cell : cells()) words.emplace_back(cell.name);
  }
  return words;
}

/// Returns the words that a command's argument without a name takes, as far as they are known; empty: files.
std::vector<std::string> argument_words(const CLI::App& program, const CLI::App& command) {
  std::vector<std::string> words;
  for (const CLI::Option* option : command.get_options([](const CLI::Option* o) { return o->get_positional(); })) {
    if (option->get_option_text() == "SHELL") words = shells;
    if (option->get_option_text() == "[COMMAND]") words = command_names(program);
  }
  return words;
}

/// A page of the manual, section 1, in roff: of the program, or of one command.
std::string manual_page(const CLI::App& app) {
  const bool program = app.get_parent() == nullptr;
  const std::string name = program ? "penstock" : "penstock-" + app.get_name();
  std::string page = fmt::format(".TH {} 1 \"\" \"penstock {}\" \"Penstock\"\n", upper(name), PENSTOCK_VERSION);
  page += fmt::format(".SH NAME\n{} \\- {}\n", roff(name), roff(app.get_description()));
  page += fmt::format(".SH SYNOPSIS\n.B {}\n", roff(usage_line(app)));
  if (program) {
    page += ".SH COMMANDS\n";
    for (const CLI::App* command : commands_of(app)) {
      page += fmt::format(".TP\n\\fB{}\\fR\n{}; see \\fBpenstock\\-{}\\fR(1)\n", roff(command->get_name()),
                          roff(command->get_description()), roff(command->get_name()));
    }
  }
  page += ".SH OPTIONS\n";
  add_entries(page, app);
  // The end of the help is laid out already.
  page += ".SH EXAMPLES AND NOTES\n.nf\n" + roff(app.get_footer()) + "\n.fi\n";
  page += program ? "" : ".SH SEE ALSO\n.BR penstock (1)\n";
  return page;
}

std::string bash_completion(const CLI::App& program) {
  std::string text =
      "# bash completion of penstock; put it into /usr/share/bash-completion/completions/penstock\n"
      "_penstock() {\n"
      "  local current=${COMP_WORDS[COMP_CWORD]} before=${COMP_WORDS[COMP_CWORD-1]} subcommand=${COMP_WORDS[1]}\n"
      "  local options=\"\" words=\"\"\n"
      "  COMPREPLY=()\n";
  text += fmt::format(
      "  if ((COMP_CWORD == 1)); then\n    COMPREPLY=($(compgen -W \"{} --help --version\" -- \"$current\"))\n"
      "    return\n  fi\n  case \"$subcommand $before\" in\n",
      fmt::join(command_names(program), " "));
  for (const CLI::App* command : commands_of(program)) {
    for (const OptionEntry& entry : option_table(*command)) {
      const std::vector<std::string> words = words_of(entry);
      if (words.empty()) continue;
      text += fmt::format("    \"{} --{}\") COMPREPLY=($(compgen -W \"{}\" -- \"$current\")); return ;;\n",
                          command->get_name(), entry.name(), fmt::join(words, " "));
    }
  }
  text += "  esac\n  case \"$subcommand\" in\n";
  for (const CLI::App* command : commands_of(program)) {
    text += fmt::format("    {}) options=\"{}\" words=\"{}\" ;;\n", command->get_name(),
                        fmt::join(names_of(*command), " "), fmt::join(argument_words(program, *command), " "));
  }
  text +=
      "  esac\n"
      "  if [[ $current == -* ]]; then\n"
      "    COMPREPLY=($(compgen -W \"$options\" -- \"$current\"))\n"
      "  elif [[ -n $words ]]; then\n"
      "    COMPREPLY=($(compgen -W \"$words\" -- \"$current\"))\n"
      "  else\n"
      "    compopt -o filenames 2>/dev/null\n"
      "    current=${current#[\\\"\\']}\n"  // as it is typed: in quotes, or with \ before each space
      "    mapfile -t COMPREPLY < <(compgen -f -- \"${current//\\\\/}\")\n"
      "  fi\n"
      "}\n"
      "complete -F _penstock penstock\n";
  return text;
}

std::string zsh_completion(const CLI::App& program) {
  // In [ ] of _arguments these have a meaning of their own.
  const auto plain = [](std::string text) {
    for (char& c : text) {
      if (c == '[' || c == ']') c = c == '[' ? '(' : ')';
      if (c == ':') c = ';';
    }
    return text;
  };
  std::string text = "#compdef penstock\n_penstock() {\n  local -a subcommands\n  subcommands=(\n";
  for (const CLI::App* command : commands_of(program)) {
    text += fmt::format("    {}\n", single_quoted(command->get_name() + ":" + plain(command->get_description())));
  }
  text +=
      "  )\n  if ((CURRENT == 2)); then\n    _describe command subcommands\n    return\n  fi\n"
      "  local subcommand=$words[2]\n  shift words\n  ((CURRENT--))\n  case $subcommand in\n";
  for (const CLI::App* command : commands_of(program)) {
    text += fmt::format("    {})\n      _arguments -s \\\n", command->get_name());
    for (const OptionEntry& entry : option_table(*command)) {
      std::string spec = fmt::format("[{}]", plain(entry.option->get_description()));
      if (!entry.is_flag) {
        const std::vector<std::string> words = words_of(entry);
        const std::string action = !words.empty()    ? fmt::format("({})", fmt::join(words, " "))
                                   : entry.is_file() ? "_files"
                                                     : " ";
        spec += fmt::format(":{}:{}", plain(entry.option->get_option_text()), action);
      }
      // One that was given under either name is not offered again under the other.
      std::string names = "--" + entry.name();
      for (const std::string& letter : entry.option->get_snames()) names += " -" + letter;
      for (const std::string& name : CLI::detail::split(names, ' ')) {
        text += fmt::format("        {} \\\n", single_quoted(fmt::format("({}){}{}", names, name, spec)));
      }
    }
    const std::vector<std::string> words = argument_words(program, *command);
    text += fmt::format("        {}\n      ;;\n",
                        words.empty() ? "'*:file:_files'" : fmt::format("'1:word:({})'", fmt::join(words, " ")));
  }
  return text +
         "  esac\n}\nif [[ $funcstack[1] == _penstock ]]; then _penstock \"$@\"; else compdef _penstock penstock; fi\n";
}

std::string fish_completion(const CLI::App& program) {
  std::string text = "# fish completion of penstock; put it into ~/.config/fish/completions/penstock.fish\n";
  for (const CLI::App* command : commands_of(program)) {
    text += fmt::format("complete -c penstock -n __fish_use_subcommand -a {} -f -d {}\n", command->get_name(),
                        single_quoted(command->get_description()));
  }
  for (const CLI::App* command : commands_of(program)) {
    for (const OptionEntry& entry : option_table(*command)) {
      text += fmt::format("complete -c penstock -n '__fish_seen_subcommand_from {}' -l {}", command->get_name(),
                          entry.name());
      for (const std::string& letter : entry.option->get_snames()) text += " -s " + letter;
      if (!entry.is_flag) text += entry.is_file() ? " -r -F" : " -x";
      const std::vector<std::string> words = words_of(entry);
      if (!words.empty()) text += fmt::format(" -a '{}'", fmt::join(words, " "));
      text += fmt::format(" -d {}\n", single_quoted(entry.option->get_description()));
    }
    const std::vector<std::string> words = argument_words(program, *command);
    if (words.empty()) continue;
    text += fmt::format("complete -c penstock -n '__fish_seen_subcommand_from {}' -f -a '{}'\n", command->get_name(),
                        fmt::join(words, " "));
  }
  return text;
}

std::string completion_of(const CLI::App& program, const std::string& shell) {
  if (shell == "bash") return bash_completion(program);
  if (shell == "zsh") return zsh_completion(program);
  if (shell == "fish") return fish_completion(program);
  require_given(shell, "SHELL");
  fail_choice("SHELL", shell, shells);
}

std::string manual_of(const CLI::App& program, const std::string& name) {
  if (name.empty()) return manual_page(program);
  for (const CLI::App* command : commands_of(program)) {
    if (command->get_name() == name) return manual_page(*command);
  }
  fail_choice("COMMAND", name, command_names(program));
}

/// A terminal gets the page as `man` shows it; without that program, as it stands in the help.
int show_page(const CLI::App& program, const std::string& name) {
  const std::string page = manual_of(program, name);
  if (!is_terminal(STDOUT_FILENO)) return print_answer(page);
  FILE* const man = popen("exec man -l - 2>/dev/null", "w");
  if (man != nullptr) {
    std::fwrite(page.data(), 1, page.size(), man);
    if (pclose(man) == 0) return 0;
  }
  return print_answer(help_text(name.empty() ? program : *program.get_subcommand(name)));
}

int write_pages(const CLI::App& program, const std::string& folder) {
  std::error_code error;
  std::filesystem::create_directories(folder, error);
  if (error) fail(ErrorCode::io_failure, "--folder {}: {}", printable(folder), why_not_written(folder, error.value()));
  std::vector<std::pair<std::string, const CLI::App*>> pages = {{folder + "/penstock.1", &program}};
  for (const CLI::App* command : commands_of(program)) {
    pages.emplace_back(fmt::format("{}/penstock-{}.1", folder, command->get_name()), command);
  }
  std::vector<OutputFile> files;
  for (const auto& [path, app] : pages) files.push_back({"--folder", path, FileKind::manual});
  check_outputs({}, files, advice_to_remove);
  for (const auto& [path, app] : pages) write_file(path, manual_page(*app));
  return 0;
}

}  // namespace

Command add_completion(CLI::App& program) {
  CLI::App* app = program.add_subcommand("completion", "Print a completion script for bash, zsh or fish");
  auto shell = std::make_shared<std::string>();
  Options options(*app);
  options.positional("SHELL", *shell, "The shell: bash, zsh or fish");
  options.group("Options");
  options.finish(
      "  source <(penstock completion bash)\n"
      "  penstock completion bash > /etc/bash_completion.d/penstock\n"
      "  penstock completion zsh > ~/.zfunc/_penstock\n"
      "  penstock completion fish > ~/.config/fish/completions/penstock.fish");
  return {app, [&program, shell] { return print_answer(completion_of(program, *shell)); }};
}

Command add_man(CLI::App& program) {
  CLI::App* app = program.add_subcommand(
      "man", "Show the manual page of the program or of a command; in a pipe or a file, its source");
  auto name = std::make_shared<std::string>(), folder = std::make_shared<std::string>();
  Options options(*app);
  options.positional("[COMMAND]", *name, "The command [the program]");
  options.group("Options");
  options.add("--folder", *folder, "FOLDER", "Write all manual pages to this folder");
  options.finish(
      "  penstock man train | man -l -\n"
      "  penstock man --folder /usr/share/man/man1\n"
      "  penstock man train > /usr/share/man/man1/penstock-train.1");
  return {app, [&program, name, folder] {
            return folder->empty() ? show_page(program, *name) : write_pages(program, *folder);
          }};
}

}  // namespace penstock::cli
