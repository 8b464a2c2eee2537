#include <fmt/format.h>
#include <unistd.h>

#include <fstream>
#include <memory>
#include <string>
#include <vector>

#include "bench/suite/report.h"
#include "commands/commands.h"
#include "options/options.h"
#include "options/output_file.h"
#include "penstock/penstock.h"
#include "terminal/bench_progress.h"
#include "terminal/signals.h"
#include "terminal/terminal.h"
#include "terminal/terminal_table.h"
#include "terminal/units.h"

namespace penstock::cli {
namespace {

struct BenchArguments {
  std::string table;
  std::vector<std::string> cells, shapes, passes, dtypes, threads, peers;
  bench::Settings settings;
  bool quick = false, quiet = false, force = false;
  std::string json, markdown, plot;
};

bench::Choice choice_of(const BenchArguments& arguments) {
  bench::Choice choice;
  choice.cells = arguments.cells;
  choice.dtypes = arguments.dtypes;
  choice.quick = arguments.quick;
  for (const std::string& shape : arguments.shapes) choice.shapes.push_back(bench::parse_shape(shape));
  for (const std::string& pass : arguments.passes) choice.passes.push_back(bench::parse_pass(pass));
  for (const std::string& count : arguments.threads) parse_value("--threads", count, choice.threads.emplace_back());
  return choice;
}

std::vector<const bench::Table*> tables_of(const std::string& name, const std::string& device) {
  require_given(name, "TABLE");
  std::vector<const bench::Table*> wanted;
  for (const bench::Table& table : bench::tables(device)) {
    if (name == "all") wanted.push_back(&table);
  }
  if (wanted.empty()) wanted.push_back(&bench::find_table(name, device));
  return wanted;
}

/// Checks before minutes of measuring that the file can be written. An existing one keeps its content until then.
void check_writable(const std::string& path) {
  if (!path.empty() && path != "-") check_can_write(path);
}

/// Returns the command line as it was typed, so that a report can be repeated.
std::string command_line() {
  std::ifstream file("/proc/self/cmdline", std::ios::binary);
  std::string line = "penstock", word;
  std::getline(file, word, '\0');
  while (std::getline(file, word, '\0')) line += " " + shell_word(word);
  return line;
}

void write_text(Output& output, const std::string& path, const std::string& text) {
  if (path == "-") return output.write(text);
  write_file(path, text);
}

void say_missing(const bench::Report& report) {
  for (const bench::Peer& peer : report.peers) {
    if (!peer.missing.empty()) {
      say(fmt::format("penstock bench: {} is left out: {}\n", peer.name, printable(peer.missing)));
    }
  }
}

void warn_of_limits(const bench::Report& report) {
  for (const bench::Measured& measured : report.tables) {
    const std::string text = bench::wrong_limits(measured);
    if (!text.empty()) say(fmt::format("warning: {}: {}\n", measured.table->name, text));
  }
}

/// Prints everything that a report calls wrong or failed to standard error, so that users of a pipe see it, too.
void say_wrong(const bench::Report& report) {
  using Outcome = bench::Entry::Outcome;
  for (const bench::Measured& measured : report.tables) {
    for (const bench::Line& line : measured.lines) {
      for (const bench::Entry& entry : line.entries) {
        if (entry.outcome != Outcome::wrong && entry.outcome != Outcome::failed) continue;
        say(fmt::format("penstock bench: {} {} in {}, no time: {}\n", entry.name,
                        entry.outcome == Outcome::wrong ? "is wrong" : "failed", line.test.label(),
                        printable(entry.note)));
      }
    }
  }
}

/// A picture needs matplotlib, which nobody has to install: without it the rest of the report counts.
void write_plot(const bench::Report& report, const std::string& path) {
  std::string picture;
  try {
    picture = bench::plot(report, path, [&] { return !report.interrupted && interrupted(); });
  } catch (const Error& error) {
    if (error.code() == ErrorCode::interrupted) throw;
    say(fmt::format("penstock bench: there is no plot: {}\n", printable(error.what())));
    return;
  }
  write_file(path, picture);
}

int bench_command(BenchArguments arguments) {
  for (std::string* const path : {&arguments.json, &arguments.markdown}) {
    if (is_standard_output(*path)) *path = "-";
  }
  const std::vector<const bench::Table*> wanted = tables_of(arguments.table, arguments.settings.device);
  bench::Settings settings = arguments.settings;
  constexpr double quick_seconds = 0.05, longest = 3600.0;
  if (arguments.quick) settings.seconds = std::min(settings.seconds, quick_seconds);
  if (!(settings.seconds > 0.0) || settings.seconds > longest) {
    fail(ErrorCode::invalid_argument, "--seconds must be above 0 and at most {}, not {}", longest, settings.seconds);
  }
  if (arguments.peers == std::vector<std::string>{"none"}) {
    settings.peers.emplace();
  } else if (!arguments.peers.empty()) {
    settings.peers = arguments.peers;
  }
  settings.peers_folder = bench::find_peers_folder();
  refuse_standard_output("--plot", arguments.plot);
  check_files({},
              {{"--json", arguments.json, FileKind::benchmark},
               {"--markdown", arguments.markdown, FileKind::tables},
               {"--plot", arguments.plot, FileKind::picture}},
              arguments.force);
  check_writable(arguments.json);
  check_writable(arguments.markdown);
  check_writable(arguments.plot);

  catch_interrupts();
  BenchProgress progress(arguments.quiet);
  bench::Report report = bench::run(wanted, choice_of(arguments), settings, progress);
  progress.finish();
  report.command = command_line();
  if (!arguments.quiet) say_missing(report);
  say_wrong(report);
  warn_of_limits(report);

  Output output;
  if (!arguments.json.empty()) write_text(output, arguments.json, bench::report_json(report));
  if (!arguments.markdown.empty()) write_text(output, arguments.markdown, bench::report_markdown(report));
  if (arguments.json != "-" && arguments.markdown != "-") {
    output.write(is_terminal(STDOUT_FILENO)
                     ? for_terminal(bench::report_markdown(report, 0), static_cast<std::size_t>(terminal_width()))
                     : bench::report_markdown(report));
  }
  output.flush();
  if (!arguments.plot.empty()) write_plot(report, arguments.plot);
  if (report.interrupted) return interrupted_status();
  return report.all_right() ? 0 : 1;
}

}  // namespace

Command add_bench(CLI::App& program) {
  CLI::App* app =
      program.add_subcommand("bench", "Time layers and compare them with peers and the limits of the machine");
  auto arguments = std::make_shared<BenchArguments>();
  Options options(*app);
  std::string tables;
  for (const bench::Table& table : bench::tables()) tables += fmt::format("\n  {:<11} {}", table.name, table.title);
  options.positional("TABLE", arguments->table, "The table to measure, see below; all: every table");
  options.group("Cases");
  options.add("--device", arguments->settings.device, "DEVICE", "cpu, or cuda (the first GPU, for some tables)");
  options.add("--cells", arguments->cells, "NAMES", "Cells, separated by commas [those of the table]");
  options.add("--shapes", arguments->shapes, "BxTxIxH,...",
              "Batch rows, time steps, input and hidden size; with several heads BxTxIxHxHEADS [those of the table]");
  options.add("--passes", arguments->passes, "NAMES", "forward, training [those of the table]");
  options.add("--dtypes", arguments->dtypes, "NAMES",
              "Data types. CPU: f32, bf16-weights, bf16; GPU: f32, bf16, f16 [f32; GPU: those of the table]");
  options.add("--threads", arguments->threads, "N,...", "Numbers of CPU threads; 0: all [1,0]");
  options.flag("--quick", arguments->quick, "Only the first two shapes of each cell, with --seconds 0.05 at most");
  options.group("Peers");
  options.add(
      "--peers", arguments->peers, "NAMES",
      fmt::format("Peers to compare with: {}, or none [all that are installed]", fmt::join(bench::peer_names(), ", ")));
  options.add("--python", arguments->settings.python, "PROGRAM", "The Python that has the peers installed");
  options.group("Measuring");
  options.add("--seconds", arguments->settings.seconds, "S", "Seconds of timed calls per contender and case");
  options.add("--seed", arguments->settings.seed, "N", "Seed of weights and inputs");
  options.group("Reports");
  options.add("--json", arguments->json, "FILE", "Write all results as JSON; '-': to standard output");
  options.add("--markdown", arguments->markdown, "FILE",
              "Write the tables as Markdown; '-': to standard output. Without it, a terminal gets tables of its width");
  options.add("--plot", arguments->plot, "FILE", "Draw the ratios with matplotlib (.svg, .png)");
  options.flag("--force", arguments->force, "Overwrite files that are not such reports");
  options.flag("-q,--quiet", arguments->quiet, "Print no progress and no notes on missing peers");
  options.finish(
      "  penstock bench layer --cells lstm --shapes 16x200x256x256 --threads 1,2\n"
      "  penstock bench scan --cells scan-log --threads 1\n"
      "  penstock bench stream --python venv/bin/python\n"
      "  penstock bench batch --peers none                # over batch sizes\n"
      "  penstock bench latency --cells lstm --threads 1  # single calls\n"
      "  penstock bench fused --peers torch,torch-loop\n"
      "  penstock bench cuda_rnn --peers numpy\n"
      "  penstock bench recurrent --device cuda --shapes 16x1024x768x768x12\n"
      "  penstock bench cs179 --cells mingru --shapes 8x4096x256x256\n"
      "  penstock bench layer --device cuda --python venv/bin/python\n"
      "  penstock bench all --markdown page.md --json all.json --plot all.svg\n"
      "\n"
      "Tables (docs/benchmarks.md says what each one measures):" +
      tables);
  return {app, [arguments] { return bench_command(*arguments); }};
}

}  // namespace penstock::cli
