#include <charconv>
#include <fstream>
#include <memory>
#include <string>
#include <vector>

#include "commands/commands.h"
#include "options/options.h"
#include "options/output_file.h"
#include "penstock/network.h"
#include "terminal/describe_network.h"
#include "terminal/terminal.h"
#include "terminal/units.h"

namespace penstock::cli {
namespace {

struct ImportArguments {
  std::string file, output;
  std::vector<std::string> fixed, states;
  std::string time;
  bool force = false, json = false, stream = false;
};

/// Splits "name=value" at its last "=".
std::pair<std::string, std::string> split_pair(const std::string& option, const std::string& text, const char* form) {
  const std::size_t middle = text.rfind('=');
  if (middle == std::string::npos || middle == 0 || middle + 1 == text.size()) {
    fail(ErrorCode::invalid_argument, "{} must be {}, not '{}'", option, form, printable(text));
  }
  return {text.substr(0, middle), text.substr(middle + 1)};
}

NetworkImport options_of(const ImportArguments& arguments) {
  NetworkImport options{.stream = arguments.stream || !arguments.time.empty(), .time = arguments.time};
  for (const std::string& each : arguments.fixed) {
    const auto [name, text] = split_pair("--set", each, "INPUT=NUMBER");
    double number = 0;
    parse_value("--set " + name, text, number);
    options.fixed[name] = {number};
  }
  for (const std::string& each : arguments.states) {
    if (each == "none") {
      options.find_states = false;
    } else {
      options.states.push_back(split_pair("--state", each, "INPUT=OUTPUT or none"));
    }
  }
  return options;
}

/// Whether a file is JSON; no ONNX file begins with a brace.
bool is_json(const std::string& path) {
  char first = 0;
  return std::ifstream(path, std::ios::binary) >> first && first == '{';
}

penstock::Network read_network(const CLI::App& app, const ImportArguments& arguments) {
  if (!is_json(arguments.file)) return penstock::Network::import_onnx(arguments.file, options_of(arguments));
  refuse_given(app, {"--set", "--state", "--stream", "--time"},
               "is for ONNX files: a model of an amplifier or effect becomes a stream by itself");
  return penstock::Network::import_audio(arguments.file);
}

int import_network(const CLI::App& app, ImportArguments arguments) {
  require_given(arguments.file, "FILE");
  arguments.output = resolve_output(arguments.output, {{"FILE", arguments.file}}, ".safetensors", arguments.force);
  const penstock::Network network = read_network(app, arguments);
  network.save(arguments.output);
  if (arguments.json) {
    Json json = {{"output", arguments.output}};
    json.update(network_json(network));
    return print_answer(json_line(json));
  }
  return print_answer(fmt::format("{:<13}{}\n", "file", printable(arguments.output)) + network_text(network));
}

}  // namespace

Command add_import(CLI::App& program) {
  CLI::App* app = program.add_subcommand("import", "Make a network of a published model");
  auto arguments = std::make_shared<ImportArguments>();
  Options options(*app);
  options.positional("FILE", arguments->file,
                     "An ONNX model, or an amplifier of RTNeural, GuitarML (.json) or NAM (.nam)");
  options.group("Files");
  options.add("-o,--output", arguments->output, "FILE", "File to write [FILE with the extension .safetensors]");
  options.flag("--force", arguments->force, "Overwrite an existing file");
  options.flag("--json", arguments->json, "Describe the network in one JSON object");
  options.group("Network");
  options.add("--set", arguments->fixed, "INPUT=NUMBER,...", "Fix inputs, such as a sampling rate");
  options.gives("fixed");
  options.add("--state", arguments->states, "INPUT=OUTPUT,...",
              "Inputs whose next values are outputs, besides those that are found; 'none': find no others");
  options.flag("--stream", arguments->stream, "Take a sequence in chunks of any length, with its history as state");
  options.add("--time", arguments->time, "NAME", "Extent that is time in a stream, or 'axis 1' [the one that couples]");
  options.finish(
      "  penstock import vad.onnx --set sr=16000    # writes vad.safetensors\n"
      "  penstock import model.onnx --state past=present\n"
      "  penstock import denoiser.onnx --stream    # frames one at a time\n"
      "  penstock import model.onnx -o small.safetensors --force\n"
      "  penstock import amplifier.nam    # or JSON of RTNeural or GuitarML\n"
      "  penstock info vad.safetensors\n"
      "\n"
      "C++ and Python run the network with its state inside: see\n"
      "docs/published_models.md.");
  return {app, [app, arguments] { return import_network(*app, *arguments); }};
}

}  // namespace penstock::cli
