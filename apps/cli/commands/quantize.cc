#include "penstock/quantize.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "answers/score_report.h"
#include "answers/step_answers.h"
#include "commands/commands.h"
#include "options/data_options.h"
#include "options/load_model.h"
#include "options/options.h"
#include "options/output_file.h"
#include "penstock/data/sound.h"
#include "penstock/penstock.h"
#include "terminal/describe.h"
#include "terminal/input.h"
#include "terminal/terminal.h"
#include "terminal/units.h"

namespace penstock::cli {
namespace {

/// The bytes of the files that were read and written.
struct FileSizes {
  FileSizes(const std::string& read, const std::string& written)
      : before(static_cast<Index>(std::filesystem::file_size(read))),
        after(static_cast<Index>(std::filesystem::file_size(written))) {}

  /// The line on the file that was written.
  std::string text(const std::string& written) const {
    return fmt::format("file     {}, {} instead of {}\n", printable(written), byte_size(static_cast<double>(after)),
                       byte_size(static_cast<double>(before)));
  }

  Index before, after;
};

/// "0.20 % lost", of a share.
std::string share_text(double loss) {
  return loss >= 0.0 ? fmt::format("{:.2f} % lost", 100.0 * loss) : fmt::format("{:.2f} % gained", -100.0 * loss);
}

/// Lines on what became of each layer. If all are int8, they say nothing unless `with_all`.
std::string layers_text(const std::vector<QuantizedLayer>& layers, bool with_all) {
  std::string out;
  if (std::ranges::all_of(layers, &QuantizedLayer::int8) && !with_all) return out;
  for (const QuantizedLayer& layer : layers) {
    out += fmt::format("{:<8} {:<30} {}{}\n", &layer == layers.data() ? "layers" : "", printable(layer.name),
                       layer.int8 ? "int8" : "left in float",
                       layer.loss ? fmt::format(", {} by itself", share_text(*layer.loss)) : "");
  }
  return out;
}

Json layers_json(const std::vector<QuantizedLayer>& layers) {
  Json all = Json::array();
  for (const QuantizedLayer& layer : layers) {
    Json entry = {{"name", layer.name}, {"int8", layer.int8}};
    if (layer.loss) entry["loss"] = *layer.loss;
    all.push_back(std::move(entry));
  }
  return all;
}

/// How the sound of --data becomes inputs of an imported network.
struct Frames {
  std::vector<double> shape = {};  ///< Of the input; empty: as the network has it.
  Index hop = 0;                   ///< Samples from one input to the next; 0: all of an input.
};

struct QuantizeArguments {
  std::string model, data, output;
  Scoring scoring;
  TableOptions table;
  QuantizeOptions options;
  Frames frames;
  bool force = false, json = false, allow_negative = false;
};

/// The only input of a network, whose values are samples.
NetworkTensor sound_input(const penstock::Network& network, const QuantizeArguments& arguments) {
  const std::string path = printable(arguments.model);
  if (network.inputs().size() != 1) {
    fail(ErrorCode::unsupported,
         "{} has {} inputs: the command scores networks with one input of samples; penstock.quantize() in Python takes "
         "any inputs",
         path, network.inputs().size());
  }
  NetworkTensor input = network.inputs().front();
  if (input.type != "f32") {
    fail(ErrorCode::unsupported,
         "input '{}' of {} has the type {}, expected f32, samples; penstock.quantize() in Python takes any inputs",
         printable(input.name), path, input.type);
  }
  for (std::size_t i = 0; i < arguments.frames.shape.size(); ++i) {
    const double extent = arguments.frames.shape[i];
    if (extent < 1.0 || extent != std::floor(extent) || extent > 1e9) {
      fail(ErrorCode::invalid_argument, "--shape must be whole numbers of at least 1, not {}", extent);
    }
    if (i == 0) input.shape.clear();
    input.shape.push_back(static_cast<Index>(extent));
  }
  if (std::ranges::any_of(input.shape, [](Index extent) { return extent < 1; })) {
    fail(ErrorCode::invalid_argument, "give the shape of input '{}' by --shape, such as --shape 1,512",
         printable(input.name));
  }
  return input;
}

/// The outputs of a network along a sound, from the zero state on.
std::vector<float> outputs_of(const penstock::Network& network, const NetworkTensor& input, Index hop,
                              std::span<const float> samples) {
  NetworkSession session(network, {{input.name, input.shape}});
  const std::span<float> frame = session.input<float>(input.name);
  std::vector<float> all;
  for (std::size_t at = 0; at + frame.size() <= samples.size(); at += static_cast<std::size_t>(hop)) {
    std::ranges::copy(samples.subspan(at, frame.size()), frame.begin());
    session.run();
    for (const NetworkTensor& output : session.outputs()) {
      if (output.type != "f32") continue;
      const std::span<const float> values = session.output<float>(output.name);
      all.insert(all.end(), values.begin(), values.end());
    }
  }
  return all;
}

/// The mean difference as a share of the mean size.
double difference_of(std::span<const float> want, std::span<const float> got) {
  double difference = 0.0, size = 0.0;
  for (std::size_t i = 0; i < want.size(); ++i) {
    difference += std::abs(static_cast<double>(got[i]) - static_cast<double>(want[i]));
    size += std::abs(static_cast<double>(want[i]));
  }
  return size > 0.0 ? difference / size : difference;
}

/// Writes an imported network with int8 weights, and prints what its outputs lose on a sound.
int quantize_network(const QuantizeArguments& arguments) {
  if (!is_sound_file(arguments.data)) {
    fail(ErrorCode::invalid_argument,
         "--data must be a sound for an imported network, such as speech.wav, not {}: penstock.quantize() in Python "
         "takes arrays",
         printable(arguments.data));
  }
  const penstock::Network network = penstock::Network::load(arguments.model);
  const NetworkTensor input = sound_input(network, arguments);
  Index size = 1;
  for (const Index extent : input.shape) size *= extent;
  if (arguments.frames.hop < 0) {
    fail(ErrorCode::invalid_argument, "--hop must be 0 or more, not {}", arguments.frames.hop);
  }
  const Index hop = arguments.frames.hop == 0 ? size : arguments.frames.hop;
  const Sound sound = read_sound(arguments.data);
  const std::vector<float> want = outputs_of(network, input, hop, sound.samples);
  if (static_cast<Index>(sound.samples.size()) < size) {
    fail(ErrorCode::bad_input, "{} has {} samples, and one input of the network takes {}", printable(arguments.data),
         sound.samples.size(), size);
  }
  if (want.empty()) {
    fail(ErrorCode::unsupported,
         "{} has no values of the type f32 among its outputs, whose change would be the loss; penstock.quantize() in "
         "Python takes any outputs",
         printable(arguments.model));
  }
  const QuantizedNetwork made = quantize(
      network,
      [&](const penstock::Network& changed) {
        return difference_of(want, outputs_of(changed, input, hop, sound.samples));
      },
      arguments.options);
  made.network.save(arguments.output);
  const FileSizes sizes(arguments.model, arguments.output);
  if (arguments.json) {
    return print_answer(json_line({{"output", arguments.output},
                                   {"bytes", sizes.after},
                                   {"bytes_before", sizes.before},
                                   {"loss", made.loss},
                                   {"layers", layers_json(made.layers)}}));
  }
  return print_answer(fmt::format("score    outputs differ by {:.3f} % of their mean size\n", 100.0 * made.loss) +
                      layers_text(made.layers, arguments.options.each_layer) + sizes.text(arguments.output));
}

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

/// What a file needs for a score.
std::string least_data(const Model& model) {
  if (model.data().task == Task::language) return "a text of at least 2 bytes";
  if (model.data().task == Task::classify) return "sequences with labels";
  return fmt::format("more than the {} rows that the first forecast reads", model.spec().branch_fields().lags + 1);
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
  if (std::isnan(found.error)) {
    fail(ErrorCode::bad_input, "{}: there is nothing to score: give {}", printable(path), least_data(model));
  }
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
  if (network) return quantize_network(arguments);
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
  options.flag("--round-inputs", arguments->options.round_inputs,
               "Also round the inputs of large convolutions and products, which then multiply bytes");
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
