#include "penstock/tune.h"

#include <fmt/format.h>

#include <algorithm>
#include <memory>

#include "commands/commands.h"
#include "options/load_model.h"
#include "options/options.h"
#include "options/output_file.h"
#include "penstock/penstock.h"
#include "terminal/bench_progress.h"
#include "terminal/describe.h"
#include "terminal/signals.h"
#include "terminal/terminal.h"
#include "terminal/terminal_table.h"
#include "terminal/units.h"

namespace penstock::cli {
namespace {

struct TuneArguments {
  std::string model, shape, output;
  LayerQuestion question;
  TuneOptions options;
  bool compare = false, plans_only = false, json = false, quiet = false;
};

/// Layers of --compare, of every algorithm of a device, with the shapes that decide between them: cell, B, T, I, H,
/// heads, and whether to train.
const std::vector<LayerQuestion> cpu_layers = {
    {"lstm", 1, 512, 64, 64, 1, false},     {"lstm", 1, 256, 128, 256, 1, false},
    {"lstm", 1, 64, 128, 768, 1, false},    {"lstm", 2, 256, 128, 128, 1, false},
    {"lstm", 5, 128, 100, 100, 1, false},   {"lstm", 16, 100, 128, 256, 1, false},
    {"lstm", 64, 64, 64, 128, 1, true},     {"lstm", 3, 64, 256, 512, 1, true},
    {"gru", 1, 512, 64, 96, 1, false},      {"gru", 4, 100, 128, 384, 1, false},
    {"gru", 16, 64, 128, 128, 1, true},     {"slstm", 4, 128, 128, 256, 4, false},
    {"slstm", 16, 64, 128, 128, 2, true},   {"elman", 1, 1000, 32, 64, 1, false},
    {"elman", 8, 128, 256, 512, 1, false},  {"mingru", 1, 16'384, 64, 64, 1, false},
    {"mingru", 1, 4096, 8, 8, 1, false},    {"mingru", 16, 512, 128, 128, 1, true},
    {"minlstm", 1, 8192, 16, 16, 1, false}, {"minlstm", 8, 512, 64, 256, 1, false},
};
const std::vector<LayerQuestion> gpu_layers = {
    {"lstm", 16, 512, 768, 768, 12, true},    {"lstm", 16, 512, 768, 768, 6, true},
    {"slstm", 16, 512, 512, 512, 4, true},    {"lstm", 256, 256, 768, 768, 12, true},
    {"lstm", 16, 512, 512, 512, 1, true},     {"lstm", 1, 512, 512, 512, 1, false},
    {"lstm", 16, 512, 768, 768, 1, true},     {"lstm", 64, 512, 768, 768, 1, true},
    {"lstm", 16, 512, 1024, 1024, 1, true},   {"lstm", 16, 256, 2048, 2048, 1, true},
    {"gru", 16, 512, 768, 768, 1, true},      {"gru", 33, 256, 300, 300, 1, false},
    {"elman", 16, 512, 768, 768, 1, true},    {"elman", 128, 64, 4096, 4096, 1, true},
    {"mingru", 8, 4096, 1024, 1024, 1, true}, {"mingru", 64, 50, 256, 256, 1, true},
    {"mingru", 1, 16'384, 64, 128, 1, true},  {"minlstm", 8, 1024, 512, 512, 1, true},
    {"minlstm", 64, 1000, 100, 100, 1, true}, {"minlstm", 512, 32, 128, 1024, 1, true},
};

std::vector<LayerQuestion> compared_layers(const Execution& execution) {
  std::vector<LayerQuestion> questions = execution.device.is_cuda() ? gpu_layers : cpu_layers;
  for (LayerQuestion& question : questions) question.execution = execution;
  return questions;
}

Json plan_json(const MeasuredPlan& plan) {
  Json json = {{"plan", plan.text}, {"microseconds", plan.microseconds}, {"low", plan.low}, {"high", plan.high}};
  if (plan.estimated > 0) json["estimated"] = plan.estimated;
  if (plan.rule.empty()) return json;
  json["rule"] = plan.rule;
  for (const auto& [name, value] : plan.variables) json["variables"][name] = value;
  return json;
}

Json works_json(const std::vector<TunedWork>& works) {
  Json all = Json::array();
  for (const TunedWork& work : works) {
    all.push_back({{"work", work.work},
                   {"machine", work.machine},
                   {"op", work.node},
                   {"tried", work.tried},
                   {"planned", plan_json(work.planned)},
                   {"best", plan_json(work.best)},
                   {"gain", work.gain()}});
  }
  return all;
}

std::string time_cell(const MeasuredPlan& plan) {
  return fmt::format("{:.1f} ({:.1f}-{:.1f})", plan.microseconds, plan.low, plan.high);
}

/// "cluster: cluster = 8, rows = 16"
std::string choice_cell(const MeasuredPlan& plan) {
  if (plan.rule.empty()) return "as planned";
  std::string text = plan.rule + ":";
  for (const auto& [name, value] : plan.variables)
    text += fmt::format("{} {} = {}", text.back() == ':' ? "" : ",", name, value);
  return text;
}

Json costs_json(const TunedCosts& costs) {
  Json changed = Json::object();
  for (const TunedCost& cost : costs.changed) changed[cost.name] = {{"before", cost.before}, {"after", cost.after}};
  return {{"off_before", costs.off_before}, {"off_after", costs.off_after}, {"changed", changed}};
}

std::string cost_table(const TunedCosts& costs) {
  if (costs.changed.empty()) return "";
  std::string text = fmt::format(
      "Costs of this machine: estimates differ from the measured times by {:.2f} x with the costs before, by {:.2f} x "
      "with the new ones.\n"
      "\n"
      "| cost | before | measured |\n"
      "|---|---|---|\n",
      costs.off_before, costs.off_after);
  for (const TunedCost& cost : costs.changed) {
    text += fmt::format("| {} | {:.4g} | {:.4g} |\n", cost.name, cost.before, cost.after);
  }
  return text + "\n";
}

std::string work_table(const std::vector<TunedWork>& works) {
  std::string text =
      "| layer | op | plans | planned, us | estimated, us | fastest, us | gain | fastest plan |\n"
      "|---|---|---|---|---|---|---|---|\n";
  for (const TunedWork& work : works) {
    text += fmt::format("| {} | {} | {} | {} | {} | {} | {:.2f} | {} |\n", work.work, work.node, work.tried,
                        time_cell(work.planned),
                        work.planned.estimated > 0 ? fmt::format("{:.1f}", work.planned.estimated) : "-",
                        time_cell(work.best), work.gain(), choice_cell(work.best));
  }
  return text;
}

/// How far what is chosen without measurements is from the quickest.
std::string summary(const std::vector<TunedWork>& works) {
  constexpr double near = 1.10;
  double worst = 1;
  std::size_t good = 0;
  for (const TunedWork& work : works) {
    worst = std::max(worst, work.gain());
    good += work.gain() <= near ? 1 : 0;
  }
  return fmt::format(
      "In {} of {} problems, the planner's choice takes at most {:.2f} times as long as the fastest plan; the largest "
      "ratio is {:.2f}.\n",
      good, works.size(), near, worst);
}

void print_markdown(const std::string& markdown) {
  print_answer(for_terminal(markdown, static_cast<std::size_t>(std::max(terminal_width(), 100))));
}

void add_new(std::vector<TunedWork>& all, std::vector<TunedWork> more) {
  for (TunedWork& work : more) {
    const bool known = std::ranges::find(all, work.work, &TunedWork::work) != all.end();
    if (!known) all.push_back(std::move(work));
  }
}

/// Works of all layers, each once; of those that were done before somebody interrupted it.
std::vector<TunedWork> tune_layers(const std::vector<LayerQuestion>& questions, const TuneOptions& options,
                                   BenchProgress& progress) {
  std::vector<TunedWork> all;
  for (std::size_t i = 0; i < questions.size(); ++i) {
    TuneOptions one = options;
    one.at = [&](const std::string& work, Index, Index) {
      progress.at(i, questions.size(), work);
      return !interrupted();
    };
    if (!completes([&] { add_new(all, tune(questions[i], one)); })) break;
  }
  return all;
}

std::vector<TunedWork> tune_asked(const TuneArguments& arguments, BenchProgress& progress) {
  TuneOptions options = arguments.options;
  if (arguments.compare) return tune_layers(compared_layers(arguments.question.execution), options, progress);
  options.at = [&](const std::string& work, Index done, Index total) {
    progress.at(static_cast<std::size_t>(done), static_cast<std::size_t>(total), work);
    return !interrupted();
  };
  if (!arguments.model.empty()) {
    const std::vector<Index> sizes = parse_sizes(arguments.shape.empty() ? "16x256" : arguments.shape, "BxT");
    const Model model = load_model("tune", arguments.model);
    return tune(model, sizes[0], sizes[1], arguments.question.training, arguments.question.execution, options);
  }
  require_given(arguments.shape, "MODEL or --shape");
  const std::vector<Index> sizes = parse_sizes(arguments.shape, "BxTxIxH");
  LayerQuestion question = arguments.question;
  question.rows = sizes[0], question.steps = sizes[1], question.input = sizes[2], question.hidden = sizes[3];
  return tune(question, options);
}

void refuse_foreign(const CLI::App& app, const TuneArguments& arguments) {
  if (arguments.question.execution.device.is_cuda()) refuse_given(app, {"--threads"}, "is for plans on the CPU");
  if (arguments.compare) {
    if (!arguments.model.empty()) fail(ErrorCode::invalid_argument, "MODEL and --compare exclude each other");
    refuse_given(app, {"--shape", "--cell", "--heads", "--training", "--lengths", "--reset"},
                 "and --compare exclude each other: it has layers of its own");
  } else if (!arguments.model.empty()) {
    refuse_given(app, {"--cell", "--heads", "--lengths", "--reset"}, "is for a layer, not for a model");
  }
}

int run_tune(const CLI::App& app, const TuneArguments& arguments) {
  refuse_foreign(app, arguments);
  // A comparison is a question about the planner: it changes nothing unless a file is named.
  const bool kept = !arguments.compare || !arguments.output.empty();
  refuse_standard_output("--output", arguments.output);
  check_files({{"MODEL", arguments.model}}, {{"--output", arguments.output}}, true);  // check_plans() knows its kind
  if (kept) check_plans(arguments.output);
  catch_interrupts();
  BenchProgress progress(arguments.quiet);
  const std::vector<TunedWork> works = tune_asked(arguments, progress);
  progress.finish();
  TunedCosts costs;
  if (!arguments.plans_only) costs = tune_costs(works, arguments.question.execution.device);
  std::string file;
  if (kept) file = save_plans(works, arguments.output, costs.changed);
  if (arguments.json) {
    print_answer(json_line({{"file", file}, {"works", works_json(works)}, {"costs", costs_json(costs)}}));
    return interrupted() ? interrupted_status() : 0;
  }
  if (works.empty()) {
    print_markdown("Nothing to tune: every layer has only one plan.\n");
    return interrupted() ? interrupted_status() : 0;
  }
  std::string text = fmt::format(
      "On {}; median times, with the middle half in brackets\n"
      "\n",
      works.front().machine);
  text += work_table(works) + "\n" + cost_table(costs) + summary(works);
  if (!file.empty())
    text += fmt::format(
        "\n"
        "Saved in {}\n",
        file);
  print_markdown(text);
  return interrupted() ? interrupted_status() : 0;
}

}  // namespace

Command add_tune(CLI::App& program) {
  CLI::App* app = program.add_subcommand("tune", "Time the plans of a layer or a model and keep the fastest");
  auto arguments = std::make_shared<TuneArguments>();
  LayerQuestion& question = arguments->question;
  Options options(*app);
  options.positional("[MODEL]", arguments->model, "A model or a checkpoint [tune one layer]");
  options.group("Measured");
  options.add("--shape", arguments->shape, "SIZES",
              "BxT for a model [16x256], BxTxIxH for a layer: batch rows, time steps, input and hidden size");
  options.add("--cell", question.cell, "NAME", "Cell of a layer");
  options.add("--heads", question.heads, "N", "Heads of a layer");
  options.flag("--training", question.training, "Time a training step: forward and backward [forward only]");
  options.flag("--lengths", question.lengths, "Rows of a layer have different lengths");
  options.flag("--reset", question.reset, "Calls of a layer have a reset mask");
  options.flag("--compare", arguments->compare,
               "Compare the planner's choice with the fastest plan, on twenty layers and all algorithms of the device");
  options.group("How");
  options.device(question.execution);
  options.add("--threads", question.execution.threads, "N", "CPU threads; 0: all");
  options.add("--seconds", arguments->options.seconds, "S", "Seconds of measurement per plan");
  options.add("--candidates", arguments->options.candidates, "N", "Plans to measure per algorithm");
  options.flag("--plans-only", arguments->plans_only,
               "Keep only plans; leave the planner's costs of this machine unchanged");
  options.group("Options");
  options.add("-o,--output", arguments->output, "FILE", "File for plans and costs [next to the compiled kernels]");
  options.flag("--json", arguments->json, "Print one JSON object");
  options.flag("-q,--quiet", arguments->quiet, "Print no progress");
  options.finish(
      "  penstock tune m.safetensors --shape 64x512 --training --device cuda\n"
      "  penstock tune --cell lstm --shape 16x1024x768x768 --device cuda\n"
      "  penstock tune --cell gru --shape 1x200x64x256 --output plans.json\n"
      "  PENSTOCK_PLANS=plans.json penstock plan --cell gru --shape 1x200x64x256\n"
      "  penstock tune --compare --device cuda --precision bf16\n"
      "\n"
      "The file keeps the fastest plan of each measured layer, and costs of this\n"
      "machine (rates, launches, barriers, copies), from which the planner\n"
      "estimates all other layers. Both hold for this machine, its driver and\n"
      "this version of Penstock. Every program uses them from its next start on;\n"
      "'plan' and 'why' print where the file is.");
  return {app, [app, arguments] { return run_tune(*app, *arguments); }};
}

}  // namespace penstock::cli
