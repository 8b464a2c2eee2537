#include <fmt/format.h>

#include <filesystem>
#include <memory>
#include <string>

#include "options/manual.h"
#include "options/options.h"
#include "penstock/file_writer.h"
#include "terminal/terminal.h"
#include "terminal/units.h"
#include "verbs/verbs.h"

namespace penstock::cli {
namespace {

std::string completion_of(const CLI::App& program, const std::string& shell) {
  if (shell == "bash") return bash_completion(program);
  if (shell == "zsh") return zsh_completion(program);
  if (shell == "fish") return fish_completion(program);
  require_given(shell, "SHELL");
  fail_choice("SHELL", shell, shells());
}

std::string manual_of(const CLI::App& program, const std::string& name) {
  if (name.empty()) return manual_page(program);
  std::vector<std::string> names;
  for (const CLI::App* verb : verbs_of(program)) {
    if (verb->get_name() == name) return manual_page(*verb);
    names.push_back(verb->get_name());
  }
  fail_choice("VERB", name, names);
}

int write_pages(const CLI::App& program, const std::string& folder) {
  std::error_code error;
  std::filesystem::create_directories(folder, error);
  if (error) fail(ErrorCode::io_failure, "--folder {}: {}", printable(folder), why_not_written(folder, error.value()));
  const auto write = [&](const std::string& name, const std::string& page) {
    write_file(folder + "/" + name + ".1", page);
  };
  write("penstock", manual_page(program));
  for (const CLI::App* verb : verbs_of(program)) write("penstock-" + verb->get_name(), manual_page(*verb));
  return 0;
}

}  // namespace

Verb add_completion(CLI::App& program) {
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

Verb add_man(CLI::App& program) {
  CLI::App* app = program.add_subcommand("man", "Print the manual page of the program or of a verb");
  auto name = std::make_shared<std::string>(), folder = std::make_shared<std::string>();
  Options options(*app);
  options.positional("[VERB]", *name, "The verb [the program]");
  options.group("Options");
  options.add("--folder", *folder, "FOLDER", "Write all manual pages to this folder");
  options.finish(
      "  penstock man train | man -l -\n"
      "  penstock man --folder /usr/share/man/man1\n"
      "  penstock man train > /usr/share/man/man1/penstock-train.1");
  return {app, [&program, name, folder] {
            return folder->empty() ? print_answer(manual_of(program, *name)) : write_pages(program, *folder);
          }};
}

}  // namespace penstock::cli
