#include "commands/train/options.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <optional>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include "penstock/cell.h"
#include "penstock/recurrent.h"
#include "penstock/train/fields.h"
#include "terminal/input.h"

namespace penstock::cli {

namespace {

/// Options about layers and their training, besides the settings of the library.
constexpr const char* layer_options[] = {
    "--cell",  "--width",   "--blocks",    "--hidden-size", "--heads",           "--conv",  "--ffn",
    "--norms", "--dropout", "--keep-last", "--seeds",       "--initial-weights", "--chrono"};

void add_model_options(Options& options, ModelOptions& model) {
  std::vector<std::string> names;
  for (const CellInfo& cell : cells()) names.emplace_back(cell.name);
  options.group("Model");
  options.add("--cell", model.cell, "NAME",
              fmt::format("Recurrent cell: {}; or FILE.json, a cell of your own [mingru; gru for labelled sequences]",
                          fmt::join(names, ", ")));
  options.add("--width", model.width, "N",
              "Width of the model: number of values between layers [128 for a text, on a GPU 256 from 1 MB and 512 "
              "from 16 MB; 48 for a series with mingru or minlstm; 16 for sound; 64 otherwise]");
  options.add(
      "--blocks", model.blocks, "N",
      "Number of blocks: a norm and a recurrent layer with a residual connection, and --conv and --ffn if given [3 for "
      "a text, on a GPU 4 from 1 MB and 6 from 16 MB; 4 for a series with mingru or minlstm; 2 otherwise]");
  options.add("--norms", model.norms, "WHERE",
              "all: a norm before each layer and the head; between: only between layers, so the input's magnitude is "
              "kept [all; between for a series without a linear forecast]");
  options.add("--hidden-size", model.hidden_size, "N", "Hidden size of the recurrent layers [the width]");
  options.add("--heads", model.heads, "N", "Heads of the recurrent matrix, for cells that have one [1]");
  options.add(
      "--conv", model.convolution, "N",
      "Taps of a causal convolution before each recurrent layer; 0: none [4 for texts, labelled or not; 0 otherwise]");
  options.gives("convolution");
  options.add(
      "--ffn", model.feed_forward, "X",
      "Gated feed-forward of X times the width after each recurrent layer; 0: none [2 for a text, 0 otherwise]");
  options.gives("feed_forward");
  options.add("--dropout", model.dropout, "P",
              "Dropout probability on the output of every sub-layer, in training only [0.2; 0 for a text from 1 MB on "
              "a CPU; 0.1 for a text from 16 MB on a GPU; 0 for sound and tasks]");
  options.add("--initial-weights", model.initial_weights, "NAME",
              "Initial weights of the recurrent layers: standard, uniform, orthogonal (recurrent matrices) or identity "
              "(for elman-relu) [standard]");
  options.add("--chrono", model.chrono, "T",
              "Draw biases of gates so that units remember over 1 to T steps at first; 0: standard biases");
  options.flag("--no-changes", model.no_changes,
               "A series: read and forecast values instead of their changes from row to row");
  options.flag("--no-linear", model.no_linear, "A series: use no linear forecast next to the recurrent layers");
  options.flag("--no-filters", model.no_filters,
               "Labelled sequences: use no convolution filters next to the recurrent layers");
}

/// Returns the values of an enumeration as the program writes them, without "auto", which is not to be given.
template <class E>
std::vector<std::pair<std::string, E>> choices_of(const auto& names) {
  std::vector<std::pair<std::string, E>> all;
  for (std::size_t i = 0; i < names.size(); ++i) {
    std::string name = names[i].name;
    std::ranges::replace(name, '_', '-');
    if (name != "auto") all.emplace_back(std::move(name), static_cast<E>(i));
  }
  return all;
}

/// Declares the option of a training setting with a list of values.
template <class E>
requires std::is_enum_v<E>
void add_setting(Options& options, FitRequest& fit, const Setting<E>& setting) {
  const char* const usual = *setting.usual == 0 ? choice_of(E()).name : setting.usual;
  options.choice(option_named(setting.argument), fit.train.*setting.member, choices_of<E>(names_of(E())),
                 fmt::format("{} [{}]", setting.help, usual));
}

/// Declares the option of a training setting, for the field of the request or of its options.
template <class T>
void add_setting(Options& options, FitRequest& fit, const Setting<T>& setting) {
  const std::string usual = *setting.usual == 0 ? "" : fmt::format(" [{}]", setting.usual);
  const auto add = [&](auto& value) {
    options.add(option_named(setting.argument), value, setting.placeholder, setting.help + usual);
  };
  bool is_open = false;
  const auto add_open = [&]<class Given>(std::string_view name, Given& given) {
    if constexpr (std::is_same_v<Given, std::optional<T>>) {
      if (name != setting.name) return;
      add(given);
      is_open = true;
    }
  };
  visit_open_options(add_open, fit);
  if (!is_open) add(fit.train.*setting.member);
  options.gives(setting.name);
}

void add_settings(Options& options, FitRequest& fit, SettingGroup group) {
  for_each_setting([&]<class T>(const Setting<T>& setting) {
    if constexpr (!std::is_same_v<T, bool>) {  // those are flags
      if (setting.group == group) add_setting(options, fit, setting);
    }
  });
}

void add_training_options(Options& options, TrainArguments& arguments) {
  FitRequest& fit = arguments.fit;
  TrainOptions& train = fit.train;
  options.group("How long (the first limit that is reached)");
  add_settings(options, fit, SettingGroup::duration);
  options.flag("--keep-last", arguments.keep_last,
               "Keep the model of the last step instead of the best one on the hold-out set");
  options.group("Training");
  options.add("--init", arguments.init, "FILE",
              "Start from the weights of this model, with its columns, scaling and labels");
  add_settings(options, fit, SettingGroup::training);
  options.flag("--no-carry", arguments.no_carry,
               "Start every sequence of a text or series from a zero state instead of carrying it");
  options.add("--seeds", fit.seeds, "N",
              "Train an ensemble of N models with the seeds --seed, --seed + 1, ...; the file holds all of them, and "
              "answers are their mean");
  options.add("--threads", train.execution.threads, "N", "CPU threads; 0: all");
  options.device(train.execution, &fit.automatic, "f32; bf16 for a text on a GPU");
  options.flag("--exact", train.execution.exact,
               "Compute equal bits for any batch and any split of a sequence; slower");
}

void add_output_options(Options& options, TrainArguments& arguments) {
  options.group("Files and reports");
  options.add("-o,--output", arguments.output, "FILE", "File of the trained model");
  add_settings(options, arguments.fit, SettingGroup::files);
  options.flag("--resume", arguments.fit.resume, "Continue from the checkpoint; give the options of the first run");
  options.flag("--force", arguments.force, "Overwrite an existing model or checkpoint");
  options.flag("--json", arguments.json, "Print the result as one JSON object");
  options.flag("-q,--quiet", arguments.quiet, "Print only warnings and errors");
}

}  // namespace

void read_custom_cell(ModelOptions& model) {
  if (!model.cell || !model.cell->ends_with(".json")) return;
  const std::string& path = model.cell_file = *model.cell;
  constexpr std::size_t longest = 1 << 24;
  model.cell = define_cell_json(read_option_file("--cell", path, longest), printable(path)).name;
}

void TrainArguments::complete_request(const CLI::App& app) {
  fit.train.carry_state = !no_carry;
  if (keep_last) fit.keep_best = false;
  if (app.count("--precision") > 0) fit.precision = fit.train.execution.precision;
  fit.filters = !model.no_filters;
  fit.layers = !given_for_layers(app).empty();
  fit.continues = !init.empty();
  fit.initial = model.initial();
  if (fit.train.checkpoint_path.empty()) fit.train.checkpoint_path = output + ".checkpoint";
}

std::vector<std::string> given_for_layers(const CLI::App& app) {
  std::vector<std::string> names(std::begin(layer_options), std::end(layer_options));
  for_each_setting([&](const auto& setting) {
    if (setting.of_layers()) names.push_back(option_named(setting.argument));
  });
  std::erase_if(names, [&](const std::string& name) { return app.count(name) == 0; });
  return names;
}

void add_train_options(Options& options, TrainArguments& arguments) {
  add_training_options(options, arguments);
  add_model_options(options, arguments.model);
  add_data_options(options, arguments.data);
  add_output_options(options, arguments);
}

}  // namespace penstock::cli
