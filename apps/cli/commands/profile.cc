#include "penstock/train/kernel_profile.h"
#include "penstock/train/layer_profile.h"

#include <fmt/format.h>

#include <algorithm>
#include <memory>

#include "commands/commands.h"
#include "options/load_model.h"
#include "options/options.h"
#include "terminal/describe.h"
#include "terminal/terminal.h"
#include "terminal/units.h"

namespace penstock::cli {
namespace {

struct ProfileArguments {
  std::string model, shape;
  RecurrentSpec layer{.cell = ""};
  bool training = false;
  Index passes = 20;
  Execution execution;
  bool json = false;
};

/// The least time for what an op moves and multiplies, as a share of what it took.
double share_of_limit(const Profile& profile, const ProfileEntry& entry) {
  if (entry.seconds <= 0.0) return 0.0;
  return std::max(entry.bytes / profile.copied, entry.operations / profile.products) / entry.seconds;
}

std::string rate(double per_second, const char* unit) {
  if (per_second <= 0.0) return "-";
  constexpr double kilo = 1e3, giga = 1e9;
  const double value = per_second / giga;
  return value < kilo ? fmt::format("{:.3g} G{}", value, unit) : fmt::format("{:.3g} T{}", value / kilo, unit);
}

std::string milliseconds(double seconds) { return fmt::format("{:.3f}", 1e3 * seconds); }

double sum_of(const Profile& profile) {
  double sum = 0.0;
  for (const ProfileEntry& entry : profile.entries) sum += entry.seconds;
  return sum;
}

/// Returns a warning if an op multiplies faster than a large product. Nothing can: the limit was measured too low.
std::string wrong_limit(const Profile& profile) {
  constexpr double most = 1.25;  // rates differ by that much between sizes
  const auto wrong = std::ranges::find_if(profile.entries, [&](const ProfileEntry& entry) {
    return entry.operations > most * profile.products * entry.seconds;
  });
  if (wrong == profile.entries.end()) return "";
  return fmt::format(
      "\n"
      "The limit is wrong: {} was faster than the large product that sets the limit, so the machine was busy. Run "
      "again on an idle machine.\n",
      wrong->op);
}

std::string table(const Profile& profile, const ProfileArguments& arguments) {
  const double sum = sum_of(profile);
  const std::string& cell = arguments.layer.cell;
  const std::string of = cell.empty() ? arguments.shape + " rows and steps"
                                      : fmt::format("{}, {} rows, steps, inputs and units", cell, arguments.shape);
  std::string text =
      fmt::format("{} of {} on {}, {}: {} ms, the median of {} passes\n\n",
                  arguments.training ? "A training step" : "A forward pass", of, to_string(arguments.execution.device),
                  to_string(arguments.execution.precision), milliseconds(profile.seconds), profile.passes);
  text += fmt::format("{:<26} {:>5} {:>8} {:>10} {:>6}  {:>9}  {:>13}  {:>8}\n", "op", "nodes", "launches", "ms",
                      "share", "moves", "multiplies at", "of limit");
  for (const ProfileEntry& entry : profile.entries) {
    text += fmt::format("{:<26} {:>5} {:>8} {:>10} {:>5.1f}%  {:>9}  {:>13}  {:>7.0f}%\n", entry.op, entry.nodes,
                        entry.launches, milliseconds(entry.seconds), 100.0 * entry.seconds / sum,
                        rate(entry.bytes / entry.seconds, "B/s"), rate(entry.operations / entry.seconds, "FLOP/s"),
                        100.0 * share_of_limit(profile, entry));
  }
  text += fmt::format("{:<26} {:>5} {:>8} {:>10}\n", "total", "", "", milliseconds(sum));
  text += wrong_limit(profile);
  return text + fmt::format(
                    "\n"
                    "Limits, measured in the same run: {} for a copy, {} for a large product. Data in a cache may move "
                    "faster.\n",
                    rate(profile.copied, "B/s"), rate(profile.products, "FLOP/s"));
}

std::string kernel_table(const std::vector<KernelProfile>& kernels) {
  if (kernels.empty()) return "";
  std::string text = fmt::format("\n{:<26} {:<26} {:>8} {:>10}\n", "kernel", "of", "launches", "ms");
  for (const auto& [op, kernel, launches, seconds] : kernels) {
    text += fmt::format("{:<26} {:<26} {:>8} {:>10}\n", kernel, op, launches, milliseconds(seconds));
  }
  return text;
}

Json json_of(const std::vector<KernelProfile>& profile) {
  Json kernels = Json::array();
  for (const auto& [op, kernel, launches, seconds] : profile) {
    kernels.push_back({{"kernel", kernel}, {"op", op}, {"launches", launches}, {"seconds", seconds}});
  }
  return kernels;
}

Json json_of(const Profile& profile, const ProfileArguments& arguments) {
  Json ops = Json::array();
  for (const ProfileEntry& entry : profile.entries) {
    ops.push_back({{"op", entry.op},
                   {"nodes", entry.nodes},
                   {"launches", entry.launches},
                   {"seconds", entry.seconds},
                   {"bytes", entry.bytes},
                   {"operations", entry.operations},
                   {"of_limit", share_of_limit(profile, entry)}});
  }
  return {{arguments.layer.cell.empty() ? "model" : "cell",
           arguments.layer.cell.empty() ? arguments.model : arguments.layer.cell},
          {"shape", arguments.shape},
          {"training", arguments.training},
          {"device", to_string(arguments.execution.device)},
          {"precision", to_string(arguments.execution.precision)},
          {"seconds", profile.seconds},
          {"passes", profile.passes},
          {"copied_bytes_per_second", profile.copied},
          {"product_operations_per_second", profile.products},
          {"ops", ops}};
}

/// Returns what `function` measures of the model or the layer: penstock::profile() or profile_kernels().
auto measured(const ProfileArguments& arguments, const auto& function) {
  const ProfiledPass pass = arguments.training ? ProfiledPass::training : ProfiledPass::forward;
  const bool layer = !arguments.layer.cell.empty();
  const std::vector<Index> sizes = parse_sizes(arguments.shape, layer ? "BxTxIxH" : "BxT");
  if (!layer) {
    const Model model = load_model("profile", arguments.model);
    return function(model, sizes[0], sizes[1], pass, arguments.execution, arguments.passes);
  }
  RecurrentSpec spec = arguments.layer;
  spec.input_size = sizes[2], spec.hidden_size = sizes[3];
  return function(spec, sizes[0], sizes[1], pass, arguments.execution, arguments.passes);
}

int profile_command(const CLI::App& app, ProfileArguments arguments) {
  const bool layer = !arguments.layer.cell.empty();
  if (layer && !arguments.model.empty()) {
    fail(ErrorCode::invalid_argument,
         "MODEL and --cell exclude each other: name a model, or a cell for a single layer");
  }
  if (!layer) {
    require_given(arguments.model, "MODEL or --cell");
    refuse_given(app, {"--heads", "--layers"}, "is for a layer, not for a model: --cell names one");
  }
  if (arguments.execution.device.is_cuda()) refuse_given(app, {"--threads"}, "is for a pass on the CPU");
  if (arguments.shape.empty()) arguments.shape = layer ? "16x256x256x256" : "16x256";
  const Profile profile = measured(arguments, [](const auto&... given) { return penstock::profile(given...); });
  std::vector<KernelProfile> kernels;
  if (arguments.execution.device.is_cuda()) {
    kernels = measured(arguments, [](const auto&... given) { return profile_kernels(given...); });
  }
  if (!arguments.json) return print_answer(table(profile, arguments) + kernel_table(kernels));
  Json json = json_of(profile, arguments);
  json["kernels"] = json_of(kernels);
  return print_answer(json_line(json));
}

}  // namespace

Command add_profile(CLI::App& program) {
  CLI::App* app = program.add_subcommand("profile", "Measure the time of each operation of a model");
  auto arguments = std::make_shared<ProfileArguments>();
  Options options(*app);
  options.positional("MODEL", arguments->model, "A model or a checkpoint; its inputs are generated");
  options.group("Layer");
  options.add("--cell", arguments->layer.cell, "NAME", "Measure a layer of this cell instead of a model");
  options.add("--heads", arguments->layer.heads, "N", "Heads of its recurrent matrix");
  options.add("--layers", arguments->layer.layers, "N", "Layers on top of each other");
  options.group("Options");
  options.add("--shape", arguments->shape, "BxT",
              "Batch rows and time steps of a pass; with --cell BxTxIxH, "
              "also input and hidden size [16x256, 16x256x256x256]");
  options.flag("--training", arguments->training, "Measure training steps on a copy of the model [forward passes]");
  options.add("--passes", arguments->passes, "N", "Passes to measure");
  options.device(arguments->execution);
  options.add("--threads", arguments->execution.threads, "N", "CPU threads; 0: all");
  options.flag("--json", arguments->json, "Print one JSON object");
  options.finish(
      "  penstock profile model.safetensors --shape 1x1000\n"
      "  penstock profile model.safetensors --training --device cuda\n"
      "  penstock profile --cell lstm --shape 64x128x256x256 --threads 1\n"
      "  penstock profile model.safetensors --json | jq '.ops[0]'");
  return {app, [app, arguments] { return profile_command(*app, *arguments); }};
}

}  // namespace penstock::cli
