#include "penstock/quantize.h"

#include <fmt/format.h>

#include <cmath>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "answers/quantized_layers.h"
#include "answers/score_report.h"
#include "answers/step_answers.h"
#include "commands/commands.h"
#include "commands/quantize_network.h"
#include "options/data_options.h"
#include "options/load_model.h"
#include "options/options.h"
#include "options/output_file.h"
#include "penstock/penstock.h"
#include "terminal/describe.h"
#include "terminal/input.h"
#include "terminal/terminal.h"
#include "terminal/units.h"

namespace penstock::cli {
namespace {

struct QuantizeArguments {
  std::string model, data, output;
  Scoring scoring;
  TableOptions table;
  QuantizeOptions options;
  Frames frames;
  bool force = false, json = false, allow_negative = false;
};

/// How well a model does on the data.
struct Measured {
  double error = 0.0;         ///< Bits a byte, the root mean square of errors in units of the scale, or the share of
                              ///< wrong labels.
  std::vector<double> steps;  ///< Bits of each byte, or forecasts of all rows in units of the scale; empty for labels.
};

/// Bits that each byte of a text but the first takes.
std::vector<double> surprises(const Model& model, const std::string& path, const Execution& execution) {
  Input input(path);
  input.show_progress();
  constexpr std::size_t most = 1 << 30;
  const std::string text = input.rest(most);
  SequenceRun run(model, execution);
  const auto outputs = static_cast<std::size_t>(model.data().output_size());
  std::vector<double> bits;
  for (std::size_t begin = 0; begin + 1 < text.size(); begin += SequenceRun::piece) {
    const std::string_view piece = std::string_view(text).substr(begin, SequenceRun::piece);
    for (const char byte : piece) run.add(static_cast<std::int32_t>(static_cast<unsigned char>(byte)));
    const std::span<const float> logits = run.run();
    for (std::size_t i = 0; i < piece.size() && begin + i + 1 < text.size(); ++i) {
      bits.push_back(surprise(logits.subspan(i * outputs, outputs), static_cast<unsigned char>(text[begin + i + 1])));
    }
  }
  return bits;
}

Measured measure(const Model& model, const std::string& path, Scoring scoring) {
  Measured found;
  if (model.data().task == Task::language) {
    found.steps = surprises(model, path, scoring.execution);
    for (const double bits : found.steps) found.error += bits / static_cast<double>(found.steps.size());
    if (found.steps.empty()) found.error = std::nan("");
  } else {
    scoring.series.watch = [&](const std::string&, const DataDescription& data, std::span<const double>,
                               std::span<const double> forecasts, std::optional<double>, Index) {
      for (std::size_t i = 0; i < forecasts.size(); ++i) {
        found.steps.push_back(forecasts[i] / data.targets[i % data.targets.size()].scale);
      }
    };
    const Score score = score_file(model, path, scoring);
    for (std::size_t c = 0; c < score.columns.size(); ++c) {
      found.error +=
          score.columns[c].model.rmse / model.data().targets[c].scale / static_cast<double>(score.columns.size());
    }
    if (score.labels && score.labels->scored > 0) found.error = 1.0 - score.labels->accuracy;
    if (score.columns.empty() && (!score.labels || score.labels->scored == 0)) found.error = std::nan("");
  }
  if (std::isnan(found.error)) fail(ErrorCode::bad_input, "{}: there is nothing to score", printable(path));
  return found;
}

/// The step whose answer changed most: a byte that takes more bits, or a row whose forecasts differ.
struct WorstStep {
  Index step = 0;
  double change = 0.0;
};
std::optional<WorstStep> worst_step(const Model& model, const Measured& before, const Measured& after) {
  if (before.steps.empty() || before.steps.size() != after.steps.size()) return std::nullopt;
  const bool text = model.data().task == Task::language;
  const Index each = text ? 1 : model.data().output_size();
  WorstStep worst;
  for (std::size_t i = 0; i < before.steps.size(); ++i) {
    const double rise = after.steps[i] - before.steps[i], change = text ? rise : std::abs(rise);
    if (change > worst.change) worst = {static_cast<Index>(i) / each + (text ? 2 : 1), change};
  }
  if (worst.change == 0.0) return std::nullopt;
  return worst;
}

std::string error_text(const Model& model, double error) {
  switch (model.data().task) {
    case Task::language:
      return fmt::format("{:.4f} bits/byte", error);
    case Task::classify:
      return fmt::format("{:.2f} % right", 100.0 * (1.0 - error));
    case Task::forecast:
      break;
  }
  return fmt::format("RMSE {:.4f} in units of the scale", error);
}

/// The result of the command, as text and as JSON.
struct Answer {
  const QuantizeArguments& arguments;
  const Model& model;
  const Quantized& made;
  Measured before, after;
  FileSizes sizes;

  std::string text() const {
    std::string out = fmt::format("score    {}, {} with int8: {}\n", error_text(model, before.error),
                                  error_text(model, after.error), share_text(made.loss));
    if (const auto worst = worst_step(model, before, after)) {
      const bool bytes = model.data().task == Task::language;
      out += fmt::format("worst    {} {}: {}\n", bytes ? "byte" : "scored row", with_commas(worst->step),
                         bytes ? fmt::format("{:.3f} bits more", worst->change)
                               : fmt::format("a forecast differs by {:.4f} of the scale", worst->change));
    }
    out += layers_text(made.layers, arguments.options.each_layer);
    return out + sizes.text(arguments.output);
  }

  std::string json() const {
    Json json = {{"output", arguments.output},        {"bytes", sizes.after},       {"bytes_before", sizes.before},
                 {"error_before", before.error},      {"error_after", after.error}, {"loss", made.loss},
                 {"layers", layers_json(made.layers)}};
    if (const auto worst = worst_step(model, before, after)) {
      json["worst"] = {{"step", worst->step}, {"change", worst->change}};
    }
    return json_line(json);
  }
};

/// Refuses the options of a group that were given.
void refuse_group(const CLI::App& app, const std::string& group, const std::string& of) {
  for (const CLI::Option* const option : app.get_options()) {
    if (option->get_group() != group || option->count() == 0) continue;
    fail(ErrorCode::invalid_argument, "{} applies to {}; MODEL is none", option->get_name(), of);
  }
}

int quantize_model(const CLI::App& app, QuantizeArguments arguments) {
  require_given(arguments.model, "MODEL");
  require_given(arguments.data, "--data");
  if (arguments.data == "-") {
    fail(ErrorCode::invalid_argument, "--data must be a file, not -: it is read once for each model that is scored");
  }
  const bool network = is_network(arguments.model);
  std::optional<Model> loaded;
  if (!network) loaded = load_model("quantize", arguments.model);
  arguments.output = resolve_output(arguments.output, {{"MODEL", arguments.model}, {"--data", arguments.data}},
                                    ".int8.safetensors", arguments.force);
  refuse_group(app, network ? "Data" : "Imported networks",
               network ? "a model of 'penstock train'" : "an imported network");
  if (network) {
    return quantize_network(
        {arguments.model, arguments.data, arguments.output, arguments.frames, arguments.options, arguments.json});
  }
  Model& model = *loaded;
  if (arguments.allow_negative) model.allow_negative();
  refuse_foreign_options(app, model, arguments.model);
  if (reads_task_only(model)) {
    fail(ErrorCode::invalid_argument, "{} is a model of a built-in task, which no file can score",
         printable(arguments.model));
  }
  arguments.scoring.rows.format = arguments.table.row_format();
  arguments.scoring.series.lead = model.spec().branch_fields().lags;
  const Measured before = measure(model, arguments.data, arguments.scoring);
  Measured after;  // of the last model that was scored, which is the one that quantize() returns
  const Quantized made = quantize(
      model,
      [&](const Model& changed) {
        after = measure(changed, arguments.data, arguments.scoring);
        return loss_between(model, before.error, after.error);
      },
      arguments.options);
  save_model(made.model, arguments.output, inspect_model_file(arguments.model).history.value_or(History()));
  const Answer answer{arguments, model, made, before, after, {arguments.model, arguments.output}};
  return print_answer(arguments.json ? answer.json() : answer.text());
}

}  // namespace

Command add_quantize(CLI::App& program) {
  CLI::App* app = program.add_subcommand("quantize", "Store the matrices of a model as int8, and say what that loses");
  auto arguments = std::make_shared<QuantizeArguments>();
  Options options(*app);
  options.positional("MODEL", arguments->model,
                     "A model or a checkpoint of 'penstock train', or a network of 'penstock import'");
  options.group("Files");
  options.add("--data", arguments->data, "FILE",
              "Data with known answers on which the model is scored, before and after: held out from training");
  options.add("-o,--output", arguments->output, "FILE", "File to write [MODEL with the extension .int8.safetensors]");
  options.flag("--force", arguments->force, "Overwrite an existing file");
  options.flag("--json", arguments->json, "Print one JSON object");
  options.group("What is lost");
  options.add("--max-loss", arguments->options.max_loss, "SHARE",
              "Most that may be lost, 0.005 for half a percent: layers that lose most stay in float [any loss]");
  options.flag("--report", arguments->options.each_layer, "Also score each layer as int8 by itself");
  options.group("Imported networks");
  options.add("--shape", arguments->frames.shape, "EXTENTS",
              "Shape of the input, 1,576 for example: so many samples of --data [that of the network]");
  options.add("--hop", arguments->frames.hop, "SAMPLES", "Samples from one input to the next, 0: all of an input");
  options.group("Data");
  add_scoring_options(options, arguments->scoring, arguments->table, arguments->allow_negative);
  options.finish(
      "  penstock quantize book.safetensors --data held_out.txt --report\n"
      "  penstock quantize co2.safetensors --data co2.csv --max-loss 0.005\n"
      "  penstock quantize digits.safetensors --data digits_sequences.csv\n"
      "  penstock quantize vad.safetensors --data a.wav --shape 1,576 --hop 512");
  return {app, [app, arguments] { return quantize_model(*app, *arguments); }};
}

}  // namespace penstock::cli
