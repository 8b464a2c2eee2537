#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <climits>
#include <clocale>
#include <cstdlib>
#include <filesystem>
#include <functional>
#include <new>
#include <string>
#include <string_view>
#include <system_error>
#include <vector>

#include "base/spin_turns.h"
#include "commands/commands.h"
#include "options/configuration.h"
#include "options/options.h"
#include "penstock/error.h"
#include "penstock/file_writer.h"
#include "penstock/version.h"
#include "terminal/signals.h"
#include "terminal/terminal.h"
#include "terminal/units.h"

namespace penstock::cli {
namespace {

constexpr const char *spin_count = "GOMP_SPINCOUNT", *started_anew = "PENSTOCK_STARTED_ANEW";

/// Returns whether a command keeps several threads at work. Commands that measure do not count: they measure the
/// machine as it is.
bool computes(const char* command) {
  constexpr std::array<std::string_view, 5> commands = {"train", "predict", "evaluate", "generate", "report"};
  return command != nullptr && std::ranges::find(commands, std::string_view(command)) != commands.end();
}

/// Starts the program anew with threads that wait for each other by spinning for kSpinMicroseconds at most, where
/// neither OMP_WAIT_POLICY nor GOMP_SPINCOUNT says for how long; returns in the program that has it so.
///
/// GNU's OpenMP has them spin for a millisecond. On a quiet machine that is no quicker; on one that has other work, the
/// thread that is waited for may be one that does not run, and training took ten times as long as with a short spin.
/// How long is read when the library is loaded, which is before main().
void limit_spinning(char** arguments) {
  if (std::getenv(started_anew) != nullptr) {
    // Not for programs that this one starts: the library has read it.
    unsetenv(started_anew);
    unsetenv(spin_count);
    return;
  }
  if (arguments[0] == nullptr || !computes(arguments[1])) return;
  if (std::getenv(spin_count) != nullptr || std::getenv("OMP_WAIT_POLICY") != nullptr) return;
  std::array<char, PATH_MAX> program;
  const ssize_t size = readlink("/proc/self/exe", program.data(), program.size() - 1);
  if (size <= 0) return;  // no such file system: threads spin as they do
  program[static_cast<std::size_t>(size)] = '\0';
  setenv(spin_count, std::to_string(spin_turns(kSpinMicroseconds)).c_str(), 0);
  setenv(started_anew, "1", 0);
  execv(program.data(), arguments);
  unsetenv(started_anew);
  unsetenv(spin_count);
}

constexpr const char* examples =
    "  penstock train book.txt              # one minute; model.safetensors\n"
    "  penstock generate model.safetensors --prompt 'In the beginning'\n"
    "  penstock train sensors.csv --output sensors.safetensors\n"
    "  tail -n +1 -f sensors.csv | penstock stream sensors.safetensors\n"
    "\n"
    "'penstock COMMAND --help' shows a command's options and more examples.\n"
    "\n"
    "Exit status:\n"
    "  0      success\n"
    "  1      failure: a file cannot be read or written, data cannot be used\n"
    "  2      wrong call: an option, its value, or a file that exists already\n"
    "  128+N  stopped by signal N (130: Ctrl-C); the model trained so far is\n"
    "         saved\n"
    "\n"
    "Environment:\n"
    "  PENSTOCK_ISA        instruction set of the CPU to use: baseline, avx2,\n"
    "                      avx512, amx, neon [the best one of this CPU]\n"
    "  PENSTOCK_CACHE_DIR  folder of compiled GPU kernels and of the results\n"
    "                      of 'penstock tune' [~/.cache/penstock]\n"
    "  PENSTOCK_CACHE_MB   megabytes of kernels to keep [256]\n"
    "  PENSTOCK_CUDA_PATH  folders to search for CUDA's libraries first\n"
    "  PENSTOCK_PLANS      file of 'penstock tune' to use\n"
    "  OMP_NUM_THREADS     CPU threads where --threads is not given\n"
    "  OMP_DYNAMIC         false: keep all threads while other programs delay\n"
    "                      them [use fewer]\n"
    "  GOMP_SPINCOUNT      turns of the loop in which a thread waits for\n"
    "                      another one before it sleeps [40 us]\n"
    "  SOURCE_DATE_EPOCH   creation time to write into models, in seconds\n"
    "                      since 1970, to make files reproducible";

/// The command's name in front, one line, and where to read on if the call was wrong.
int report(const CLI::App* command, ErrorCode code, const std::string& message) {
  const std::string name = command == nullptr ? "penstock" : "penstock " + command->get_name();
  const int status = exit_status(code);
  say(fmt::format("{}: {}{}\n", name, without_controls(message),
                  status == 2 ? fmt::format(" (see '{} --help')", name) : ""));
  return status;
}

/// Reports an error: settings in the words of the command, and the choice that was probably meant.
int report(const CLI::App* command, const Error& error) {
  std::string near = suggestion(error.fields().value, error.fields().choices);
  if (!near.empty()) near.front() = ';';
  return report(command, error.code(),
                error.message().text(command == nullptr ? SettingWords() : option_words(*command)) + near);
}

/// Does the work of a command, or of the program itself, and reports what it throws; 0 also when nobody reads the
/// output.
int guarded(const CLI::App* command, const std::function<int()>& work) {
  try {
    return work();
  } catch (const ClosedPipe&) {
    return 0;
  } catch (const Interrupted&) {
    return interrupted_status();
  } catch (const Error& error) {
    if (error.code() == ErrorCode::interrupted && interrupted()) return interrupted_status();
    return report(command, error);
  } catch (const std::bad_alloc&) {
    return report(command, ErrorCode::io_failure, "there is not enough memory");
  } catch (const std::filesystem::filesystem_error& error) {
    return report(command, ErrorCode::io_failure,
                  fmt::format("{}: {}", printable(error.path1().string()),
                              why_not_written(error.path1().string(), error.code().value())));
  } catch (const std::system_error& error) {
    const bool thread = error.code() == std::errc::resource_unavailable_try_again;
    return report(
        command, ErrorCode::io_failure,
        printable(error.what()) + (thread ? ": a thread cannot be started (see 'ulimit -u', 'ulimit -v')" : ""));
  } catch (const std::exception& error) {
    return report(command, ErrorCode::io_failure, printable(error.what()));
  }
}

int print(const std::string& text) {
  return guarded(nullptr, [&] { return print_answer(text); });
}

int run_command(const Command& command) {
  return guarded(command.app, [&] {
    refuse_extras(*command.app);
    return command.app->count("--print-config") > 0 ? print(configuration_text(*command.app)) : command.run();
  });
}

const CLI::App* chosen_command(const CLI::App& program) {
  const auto chosen = program.get_subcommands();
  return chosen.empty() ? nullptr : chosen.front();
}

/// `penstock help train` is `penstock train --help`, `penstock version` is `penstock --version`. Options from files
/// stand in front.
std::vector<std::string> arguments(const CLI::App& program, int argc, char** argv) {
  std::vector<std::string> all(argv + 1, argv + argc);
  if (!all.empty() && all.front() == "help") {
    all.erase(all.begin());
    all.emplace_back("--help");
  }
  if (!all.empty() && all.front() == "version") all.front() = "--version";
  all = with_configuration(program, all);
  return {all.rbegin(), all.rend()};  // CLI11 reads them from the back
}

int run(int argc, char** argv) {
  CLI::App program("Penstock trains gated recurrent networks and runs them on whole files or on streams.");
  Options options(program);
  options.group("Options");
  program.set_version_flag("-V,--version", "penstock " PENSTOCK_VERSION, "Show the version");
  const std::vector<Command> commands = {
      add_train(program),  add_generate(program), add_predict(program),    add_evaluate(program), add_report(program),
      add_export(program), add_quantize(program), add_import(program),     add_stream(program),   add_bench(program),
      add_info(program),   add_profile(program),  add_csp(program),        add_plan(program),     add_why(program),
      add_tune(program),   add_demo(program),     add_completion(program), add_man(program)};
  options.finish(examples);
  program.require_subcommand(0, 1);

  if (argc < 2) {
    say(help_text(program));
    return 2;
  }
  try {
    program.parse(arguments(program, argc, argv));
    const CLI::App* chosen = chosen_command(program);
    for (const Command& command : commands) {
      if (command.app == chosen) return run_command(command);
    }
    refuse_extras(program);
    return report(nullptr, ErrorCode::invalid_argument, "missing command");
  } catch (const CLI::CallForHelp&) {
    const CLI::App* chosen = chosen_command(program);
    return print(help_text(chosen == nullptr ? program : *chosen));
  } catch (const CLI::CallForVersion&) {
    return print("penstock " PENSTOCK_VERSION "\n");
  } catch (const CLI::ParseError& error) {
    return report(chosen_command(program), ErrorCode::invalid_argument, parse_message(error));
  } catch (const Error& error) {
    return report(chosen_command(program), error);
  }
}

}  // namespace
}  // namespace penstock::cli

int main(int argc, char** argv) {
  penstock::cli::limit_spinning(argv);
  std::setlocale(LC_CTYPE, "");  // whether a bar may be drawn with block characters
  penstock::cli::ignore_write_signals();
  try {
    return penstock::cli::run(argc, argv);
  } catch (const std::bad_alloc&) {
    penstock::cli::say("penstock: there is not enough memory\n");
    return 1;
  } catch (const std::exception& error) {
    penstock::cli::say("penstock: ");
    penstock::cli::say(penstock::cli::without_controls(error.what()));
    penstock::cli::say("\n");
    return 1;
  }
}
