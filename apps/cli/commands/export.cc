#include <fmt/ranges.h>

#include <memory>
#include <string>
#include <vector>

#include "commands/commands.h"
#include "options/load_model.h"
#include "options/options.h"
#include "options/output_file.h"
#include "penstock/model.h"
#include "penstock/network.h"
#include "penstock/onnx.h"
#include "penstock/rtneural.h"
#include "terminal/describe.h"
#include "terminal/terminal.h"
#include "terminal/units.h"

namespace penstock::cli {
namespace {

struct ExportArguments {
  std::string model, output;
  OnnxOptions onnx;
  bool force = false, json = false, allow_negative = false;
};

/// "float [batch, time, 3]  In the units of the data: ..."
std::string tensor_lines(const char* heading, const std::vector<OnnxTensor>& tensors) {
  std::string text;
  for (const OnnxTensor& tensor : tensors) {
    const std::string shape = fmt::format("{} [{}]", tensor.type, fmt::join(tensor.shape, ", "));
    text += fmt::format("{:<8} {:<11} {:<30} {}\n", text.empty() ? heading : "", tensor.name, shape,
                        printable(tensor.description));
  }
  return text;
}

Json tensors_json(const std::vector<OnnxTensor>& tensors) {
  Json all = Json::array();
  for (const OnnxTensor& tensor : tensors) {
    all.push_back(
        {{"name", tensor.name}, {"type", tensor.type}, {"shape", tensor.shape}, {"description", tensor.description}});
  }
  return all;
}

int print_rtneural(const ExportArguments& arguments, const std::string& text) {
  return print_answer(arguments.json ? json_line({{"output", arguments.output}, {"format", "rtneural"}}) : text);
}

int export_rtneural(const CLI::App& app, const Model& model, const ExportArguments& arguments) {
  refuse_given(app, {"--normalised", "--allow-negative", "--group"}, "is for ONNX files, not for the JSON of RTNeural");
  save_rtneural(model, arguments.output);
  return print_rtneural(
      arguments, fmt::format("{:<8} {}\n{:<8} {}, JSON of RTNeural, {} Hz\n", "model", describe_model(model), "file",
                             printable(arguments.output), model.data().sample_rate));
}

int export_network(const CLI::App& app, ExportArguments arguments) {
  refuse_given(app, {"--normalised", "--allow-negative", "--group"}, "is for models of 'penstock train'");
  const penstock::Network network = penstock::Network::load(arguments.model);
  arguments.output = resolve_output(arguments.output, {{"MODEL", arguments.model}}, ".json", arguments.force);
  save_rtneural(network, arguments.output);
  return print_rtneural(arguments, fmt::format("file {}, JSON of RTNeural\n", printable(arguments.output)));
}

int export_model(const CLI::App& app, ExportArguments arguments) {
  require_given(arguments.model, "MODEL");
  if (arguments.output.ends_with(".json") && is_network(arguments.model)) return export_network(app, arguments);
  Model model = load_model("export", arguments.model);
  if (arguments.allow_negative) {
    require_task(model, arguments.model, Task::forecast, "--allow-negative");
    model.allow_negative();
  }
  arguments.output = resolve_output(arguments.output, {{"MODEL", arguments.model}}, ".onnx", arguments.force);
  if (arguments.output.ends_with(".json")) return export_rtneural(app, model, arguments);
  const OnnxModel onnx = save_onnx(model, arguments.output, arguments.onnx);
  if (arguments.json) {
    return print_answer(json_line({{"output", arguments.output},
                                   {"bytes", onnx.file.size()},
                                   {"opset", OnnxModel::opset},
                                   {"inputs", tensors_json(onnx.inputs)},
                                   {"outputs", tensors_json(onnx.outputs)}}));
  }
  const std::string text =
      fmt::format("{:<8} {}\n{:<8} {}, ONNX opset {}, {}\n", "model", describe_model(model), "file",
                  printable(arguments.output), OnnxModel::opset, byte_size(static_cast<double>(onnx.file.size())));
  return print_answer(text + tensor_lines("inputs", onnx.inputs) + tensor_lines("outputs", onnx.outputs));
}

}  // namespace

Command add_export(CLI::App& program) {
  CLI::App* app = program.add_subcommand("export", "Write a model as ONNX, or as JSON of RTNeural, for other programs");
  auto arguments = std::make_shared<ExportArguments>();
  Options options(*app);
  options.positional("MODEL", arguments->model,
                     "A model or a checkpoint of 'penstock train'; for JSON also an imported network");
  options.group("Files");
  options.add("-o,--output", arguments->output, "FILE",
              "File to write; .json: JSON of RTNeural [MODEL with the extension .onnx]");
  options.flag("--force", arguments->force, "Overwrite an existing file");
  options.flag("--json", arguments->json, "Describe the written file in one JSON object");
  options.group("Numbers");
  options.flag("--normalised", arguments->onnx.normalised,
               "Inputs and outputs are normalised instead of in the units of the data");
  options.flag("--allow-negative", arguments->allow_negative,
               "Let forecasts be negative that are at least 0 otherwise, as in a model of rain");
  options.add("--group", arguments->onnx.group, "NAME", "A model of many series: the series whose units the file uses");
  options.finish(
      "  penstock export co2.safetensors            # writes co2.onnx\n"
      "  penstock export book.safetensors -o book.onnx --json\n"
      "  penstock export amplifier.safetensors -o amplifier.json    # RTNeural\n"
      "  penstock export shops.safetensors --group Berlin -o berlin.onnx\n"
      "\n"
      "Inputs of the ONNX model: 'tokens' or 'features', with any number of rows\n"
      "and steps, and 'state', which is zero at the start. Outputs: 'logits' or\n"
      "'forecast', and 'next_state', the 'state' of the next call.");
  return {app, [app, arguments] { return export_model(*app, *arguments); }};
}

}  // namespace penstock::cli
