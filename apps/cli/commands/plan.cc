#include "penstock/plan.h"

#include <fmt/format.h>

#include <algorithm>
#include <memory>

#include "commands/commands.h"
#include "options/load_model.h"
#include "options/options.h"
#include "penstock/penstock.h"
#include "terminal/describe.h"
#include "terminal/terminal.h"
#include "terminal/units.h"

namespace penstock::cli {
namespace {

struct PlanArguments {
  LayerQuestion question;
  std::string shape;
  bool json = false;
};

struct WhyArguments {
  std::string model, shape = "1x1024", chip;
  Execution execution;
  bool training = false, json = false;
};

Json alternative_json(const PlanAlternative& other) {
  Json json = {{"name", other.name}, {"possible", other.possible}, {"reason", other.reason}};
  if (other.microseconds > 0) json["microseconds"] = other.microseconds;
  if (!other.text.empty()) json["plan"] = other.text;
  if (!other.conflict.empty()) json["conflict"] = other.conflict;
  return json;
}

Json reports_json(const std::vector<PlanReport>& reports) {
  Json all = Json::array();
  for (const PlanReport& report : reports) {
    Json json = {{"work", report.work}, {"machine", report.machine}, {"why", report.why}};
    if (!report.algorithm.empty()) json["algorithm"] = report.algorithm;
    if (!report.plan.empty()) json["plan"] = report.plan;
    if (report.microseconds > 0) json["microseconds"] = report.microseconds;
    json["alternatives"] = Json::array();
    for (const PlanAlternative& other : report.alternatives) json["alternatives"].push_back(alternative_json(other));
    all.push_back(std::move(json));
  }
  return all;
}

/// A GPU is asked about by --chip or by --device.
void check_machine(const CLI::App& app, const Execution& execution, const std::string& chip) {
  if (!chip.empty() && app.count("--device") > 0 && !execution.device.is_cuda()) {
    fail(ErrorCode::invalid_argument, "--device cpu and --chip exclude each other: {} is a GPU", chip);
  }
  if (!chip.empty() || execution.device.is_cuda()) refuse_given(app, {"--threads"}, "is for a plan on the CPU");
}

/// Status 1 where something has no plan though it needs one.
int print_reports(const std::vector<PlanReport>& reports, bool json) {
  std::string machine;
  for (const PlanReport& report : reports) machine = machine.empty() ? report.machine : machine;
  print_answer(json ? json_line(reports_json(reports)) : "on " + printable(machine) + "\n" + to_text(reports));
  for (const PlanReport& report : reports) {
    if (report.plan.empty() && !report.alternatives.empty()) return 1;
  }
  return 0;
}

int run_plan(const CLI::App& app, const PlanArguments& arguments) {
  check_machine(app, arguments.question.execution, arguments.question.chip);
  require_given(arguments.shape, "--shape");
  const std::vector<Index> sizes = parse_sizes(arguments.shape, "BxTxIxH");
  LayerQuestion question = arguments.question;
  question.rows = sizes[0], question.steps = sizes[1], question.input = sizes[2], question.hidden = sizes[3];
  return print_reports(explain(question), arguments.json);
}

int run_why(const CLI::App& app, const WhyArguments& arguments) {
  check_machine(app, arguments.execution, arguments.chip);
  require_given(arguments.model, "MODEL");
  const std::vector<Index> sizes = parse_sizes(arguments.shape, "BxT");
  const Model model = load_model("why", arguments.model);
  return print_reports(explain(model, sizes[0], sizes[1], arguments.training, arguments.execution, arguments.chip),
                       arguments.json);
}

std::string chip_help() {
  return fmt::format("Plan for this GPU, which need not be installed: {}", fmt::join(chips(), ", "));
}

}  // namespace

Command add_plan(CLI::App& program) {
  CLI::App* app =
      program.add_subcommand("plan", "Show how a layer will run, the expected time, and why other plans lose");
  auto arguments = std::make_shared<PlanArguments>();
  LayerQuestion& question = arguments->question;
  Options options(*app);
  options.group("Layer");
  options.add("--cell", question.cell, "NAME", "The cell");
  options.add("--shape", arguments->shape, "BxTxIxH", "Batch rows, time steps, input and hidden size");
  options.add("--heads", question.heads, "N", "Heads of the recurrent matrix");
  options.flag("--training", question.training, "Plan a training step: forward and backward [forward only]");
  options.flag("--lengths", question.lengths, "Rows have different lengths");
  options.flag("--reset", question.reset, "Calls have a reset mask");
  options.group("Machine");
  options.device(question.execution);
  options.add("--chip", question.chip, "NAME", chip_help());
  options.add("--threads", question.execution.threads, "N", "CPU threads; 0: all");
  options.choice("--algorithm", question.execution.algorithm,
                 {{"auto", Algorithm::automatic}, {"sequential", Algorithm::sequential}, {"scan", Algorithm::scan}},
                 "Algorithm on the CPU [auto]");
  options.flag("--exact", question.execution.exact, "Equal bits for any batch and any split of a sequence");
  options.group("Options");
  options.flag("--json", arguments->json, "Print one JSON array");
  options.finish(
      "  penstock plan --cell lstm --shape 16x1024x256x512\n"
      "  penstock plan --cell lstm --shape 16x1024x768x768 --chip h100\n"
      "  penstock plan --cell mingru --shape 64x1000x100x100 --chip 'rtx 4090'\n"
      "  penstock plan --cell gru --shape 1x1024x512x512 --json | jq '.[].plan'\n"
      "\n"
      "Exit status: 1 if no plan is possible; the output then says what each\n"
      "algorithm would need.");
  return {app, [app, arguments] { return run_plan(*app, *arguments); }};
}

Command add_why(CLI::App& program) {
  CLI::App* app = program.add_subcommand("why", "Show how each node of a model runs, and why other plans lose");
  auto arguments = std::make_shared<WhyArguments>();
  Options options(*app);
  options.positional("MODEL", arguments->model, "A model or a checkpoint");
  options.group("Options");
  options.add("--shape", arguments->shape, "BxT", "Batch rows and time steps");
  options.flag("--training", arguments->training, "Plan a training step [a forward pass]");
  options.device(arguments->execution);
  options.add("--chip", arguments->chip, "NAME", chip_help());
  options.add("--threads", arguments->execution.threads, "N", "CPU threads; 0: all");
  options.flag("--json", arguments->json, "Print one JSON array");
  options.finish(
      "  penstock why model.safetensors\n"
      "  penstock why model.safetensors --shape 64x512 --training --chip h200\n"
      "  penstock why model.safetensors --json | jq '.[] | .alternatives'");
  return {app, [app, arguments] { return run_why(*app, *arguments); }};
}

}  // namespace penstock::cli
