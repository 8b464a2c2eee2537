#include "penstock/csp.h"

#include <fmt/format.h>

#include <algorithm>

#include "commands/commands.h"
#include "options/options.h"
#include "terminal/describe.h"
#include "terminal/input.h"
#include "terminal/signals.h"
#include "terminal/terminal.h"
#include "terminal/units.h"

namespace penstock::cli {
namespace {

constexpr int limit_reached = 3;  // exit status

struct CspArguments {
  std::string file;
  std::optional<Index> most;
  double seconds = 600;
  Index megabytes = 1024, solutions = 1'000'000;
  bool all = false, first = false, explain = false, json = false;
};

void refuse_contradictions(const CspArguments& arguments) {
  const auto refuse = [](const char* a, const char* b) {
    fail(ErrorCode::invalid_argument, "{} and {} exclude each other", a, b);
  };
  if (arguments.first && arguments.all) refuse("--first", "--all");
  if (arguments.first && arguments.most) refuse("--first", "--max");
  if (arguments.all && arguments.most) refuse("--all", "--max");
  if (arguments.explain && arguments.first) refuse("--explain", "--first");
  if (arguments.explain && (arguments.all || arguments.most)) refuse("--explain", arguments.all ? "--all" : "--max");
  const auto at_least_1 = [](const char* option, auto value) {
    if (!(value > 0)) fail(ErrorCode::invalid_argument, "{} must be above 0, not {}", option, value);
  };
  at_least_1("--limit-seconds", arguments.seconds);
  at_least_1("--limit-memory", arguments.megabytes);
  at_least_1("--limit-solutions", arguments.solutions);
  if (arguments.most && *arguments.most < 1) {
    fail(ErrorCode::invalid_argument, "--max must be at least 1, not {}", *arguments.most);
  }
}

/// A mistake in the text is wrong use, like one in an option.
csp::Model read_model(const std::string& path) {
  constexpr std::size_t longest = 1 << 24;
  const std::string text = Input(path).rest(longest);
  if (interrupted()) throw Interrupted();  // the text has not come to its end
  try {
    return csp::parse(text);
  } catch (const Error& error) {
    if (error.code() != ErrorCode::bad_input) throw;
    fail(ErrorCode::invalid_argument, "{}:{}", printable(path), error.what());
  }
}

/// Returns the exact value of the problem's objective, if it has one.
std::optional<csp::Integer> cost_of(const csp::Model& model, const csp::Solution& solution) {
  const auto cost = model.cost();
  return cost ? std::optional(solution[*cost]) : std::nullopt;
}

Json solution_json(const csp::Model& model, const csp::Solution& solution) {
  Json variables = Json::object();
  const auto names = model.variables();
  for (std::size_t x = 0; x < names.size(); ++x) variables[names[x]] = solution.values()[x];
  Json json = {{"variables", variables}};
  if (const auto cost = cost_of(model, solution)) json["cost"] = *cost;
  return json;
}

std::string solution_text(const csp::Model& model, const csp::Solution& solution) {
  const std::string text = model.variables().empty() ? "nothing to choose, all holds" : solution.text();
  const auto cost = cost_of(model, solution);
  return cost ? fmt::format("{}, cost {}\n", text, *cost) : text + "\n";
}

Json conflict_json(const csp::Model& model, const std::vector<std::string>& conflict) {
  Json all = Json::array();
  for (const std::string& name : conflict) all.push_back({{"name", name}, {"constraint", model.constraint_text(name)}});
  return {{"satisfiable", false}, {"conflict", all}};
}

/// Names and constraints in quotes hold whatever the problem has; an end of a line is none of theirs.
std::string harmless(std::string_view lines) {
  std::string text;
  while (!lines.empty()) {
    const std::size_t end = std::min(lines.find('\n'), lines.size());
    text += without_controls(lines.substr(0, end)) + (end < lines.size() ? "\n" : "");
    lines.remove_prefix(std::min(end + 1, lines.size()));
  }
  return text;
}

std::string conflict_text(const csp::Model& model, const std::vector<std::string>& conflict) {
  std::string text =
      conflict.size() == 1 ? "no solution; this cannot hold:\n" : "no solution; these cannot hold together:\n";
  for (const std::string& name : conflict) {
    const std::string constraint = model.constraint_text(name);
    text += name == constraint ? fmt::format("  {}\n", name) : fmt::format("  {}: {}\n", name, constraint);
  }
  return text;
}

Json alternatives_json(const csp::Explanation& explanation) {
  Json all = Json::array();
  for (const csp::Alternative& alternative : explanation.alternatives) {
    Json json = {{"variable", alternative.variable}, {"value", alternative.value}};
    if (!alternative.excluded_by.empty()) {
      json["excluded_by"] = alternative.excluded_by;
    } else if (explanation.has_cost) {
      json["cost"] = alternative.cost;
    }
    all.push_back(json);
  }
  return all;
}

/// The solutions that were asked for.
std::vector<csp::Solution> solve(const csp::Model& model, const CspArguments& arguments) {
  if (arguments.all || arguments.most) return model.all(arguments.most.value_or(csp::largest));
  const auto one = arguments.first ? model.first() : model.solve();
  return one ? std::vector{*one} : std::vector<csp::Solution>{};
}

int print_conflict(const csp::Model& model, const CspArguments& arguments, const std::vector<std::string>& conflict) {
  print_answer(arguments.json ? json_line(conflict_json(model, conflict)) : harmless(conflict_text(model, conflict)));
  return 1;
}

int explain(const csp::Model& model, const CspArguments& arguments) {
  const csp::Explanation explanation = model.explain();
  if (!explanation.best) return print_conflict(model, arguments, explanation.conflict);
  if (!arguments.json) return print_answer(harmless(explanation.text()));
  Json json = {{"satisfiable", true}, {"solutions", {solution_json(model, *explanation.best)}}};
  json["alternatives"] = alternatives_json(explanation);
  return print_answer(json_line(json));
}

int run_csp(const CspArguments& arguments) {
  require_given(arguments.file, "FILE");
  refuse_contradictions(arguments);
  catch_interrupts();
  csp::Model model = read_model(arguments.file);
  model.stop_when([] { return interrupted(); });
  constexpr Index most_megabytes = csp::largest >> 20, megabyte = 1 << 20;
  model.limit({.seconds = arguments.seconds,
               .bytes = std::min(arguments.megabytes, most_megabytes) * megabyte,
               .solutions = arguments.solutions});
  if (interrupted()) return interrupted_status();
  if (arguments.explain) return explain(model, arguments);
  const std::vector<csp::Solution> solutions = solve(model, arguments);
  if (solutions.empty()) return print_conflict(model, arguments, model.conflict());
  Json all = Json::array();
  std::string text;
  for (const csp::Solution& solution : solutions) {
    all.push_back(solution_json(model, solution));
    text += harmless(solution_text(model, solution));
  }
  return print_answer(arguments.json ? json_line({{"satisfiable", true}, {"solutions", all}}) : text);
}

}  // namespace

Command add_csp(CLI::App& program) {
  CLI::App* app = program.add_subcommand("csp", "Solve constraints over integers");
  auto arguments = std::make_shared<CspArguments>();
  Options options(*app);
  options.positional("FILE", arguments->file, "The problem (docs/csp.md describes the format); '-': standard input");
  options.group("Solutions");
  options.flag("--first", arguments->first, "Print any solution, whatever it costs [the best one]");
  options.flag("--all", arguments->all, "Print all solutions, the best first");
  options.add("--max", arguments->most, "N", "Print the N best solutions; without a cost, any N");
  options.group("Options");
  options.flag("--explain", arguments->explain,
               "For every other value of each variable, print what excludes it or what it would cost");
  options.flag("--json", arguments->json, "Print one JSON object");
  options.group("Limits");
  options.add("--limit-seconds", arguments->seconds, "S", "Give up after S seconds");
  options.add("--limit-memory", arguments->megabytes, "MB", "Give up if the search needs more than MB megabytes");
  options.add("--limit-solutions", arguments->solutions, "N", "Give up if --all or --max finds more than N solutions");
  options.finish(
      "  penstock csp plan.csp\n"
      "  echo 'x in 1..9; y in 1..9; x * y == 12; x < y' | penstock csp - --all\n"
      "  penstock csp plan.csp --explain\n"
      "  penstock csp plan.csp --json | jq '.solutions[0].variables'\n"
      "\n"
      "A problem has one statement per line, or several separated by ';':\n"
      "  warps in {1, 2, 4, 8}                      a variable and its values\n"
      "  tile in divisors(768)                      or powers_of_two(1..64)\n"
      "  step in 8..64 step 8                       or 1..64\n"
      "  let bytes = tile * 768 * 2                 a name for an expression\n"
      "  shared memory fits: bytes <= 99 * 1024     a constraint with a name\n"
      "  warps == 1 -> tile % 16 == 0               or without one; also and,\n"
      "                                             or, not, min, max, ceil_div,\n"
      "                                             if\n"
      "  minimise ceil_div(768, tile) * 10 + warps  or maximise\n"
      "\n"
      "Exit status:\n"
      "  0  a solution was found\n"
      "  1  there is none; constraints that cannot hold together are printed\n"
      "  2  a mistake in the problem, with its line and column\n"
      "  3  a limit was reached before the search was finished");
  return {app, [arguments] {
            try {
              return run_csp(*arguments);
            } catch (const csp::LimitReached& error) {
              say(fmt::format("penstock csp: {} (see the limits in 'penstock csp --help')\n", error.what()));
              return limit_reached;
            }
          }};
}

}  // namespace penstock::cli
