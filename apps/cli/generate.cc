#include <fmt/format.h>
#include <unistd.h>

#include <array>
#include <memory>
#include <optional>
#include <random>
#include <string>

#include "describe.h"
#include "input.h"
#include "options.h"
#include "penstock/penstock.h"
#include "signals.h"
#include "terminal.h"
#include "verbs.h"

namespace penstock::cli {
namespace {

struct GenerateArguments {
  std::string model;
  std::optional<std::string> prompt, prompt_file;
  Index bytes = 500;
  Sampling sampling;
  std::optional<std::uint64_t> seed;
  Execution execution;
  bool json = false;
};

std::string read_prompt(const GenerateArguments& arguments) {
  if (arguments.prompt && arguments.prompt_file) {
    throw Error(ErrorCode::invalid_argument, "--prompt and --prompt-file cannot be given both");
  }
  if (!arguments.prompt_file) return arguments.prompt.value_or("");
  Input file(*arguments.prompt_file);
  std::string prompt;
  for (std::string_view part = file.read(); !part.empty(); part = file.read()) prompt += part;
  return prompt;
}

int generate(const GenerateArguments& arguments) {
  require_given(arguments.model, "MODEL");
  if (arguments.bytes < 0) {
    throw Error(ErrorCode::invalid_argument, fmt::format("--bytes must not be negative, not {}", arguments.bytes));
  }
  sample(std::array{0.0f}, arguments.sampling, 0.0);  // refuses impossible options before anything is printed
  const std::string prompt = read_prompt(arguments);
  const Model model = Model::load(arguments.model);
  require_task(model, arguments.model, Task::language, "this verb");
  const std::uint64_t seed = arguments.seed.value_or(std::random_device()());

  catch_interrupts();
  Generator generator(model, arguments.sampling, seed, arguments.execution);
  generator.read(prompt);
  Output output;
  std::string text;
  if (!arguments.json) output.write(prompt);
  if (!arguments.json) output.flush();
  for (Index i = 0; i < arguments.bytes && !interrupted(); ++i) {
    text += generator.next();
    if (arguments.json) continue;
    output.write({&text.back(), 1});
    output.flush();
  }
  if (arguments.json) {
    output.write(json_line({{"prompt", prompt}, {"text", text}, {"bytes", text.size()}, {"seed", seed}}));
  } else if (is_terminal(STDOUT_FILENO) && !text.ends_with('\n')) {
    output.write("\n");  // so that the shell's prompt has a line of its own
  }
  output.flush();
  return interrupted() ? interrupted_status() : 0;
}

}  // namespace

Verb add_generate(CLI::App& program) {
  CLI::App* app = program.add_subcommand("generate", "Let a language model write");
  auto arguments = std::make_shared<GenerateArguments>();
  Options options(*app);
  options.positional("MODEL", arguments->model, "A model that was trained on a text");
  options.group("Options");
  options.add("-p,--prompt", arguments->prompt, "TEXT", "What the text begins with; it is printed first");
  options.add("--prompt-file", arguments->prompt_file, "FILE", "The same from a file, '-' is standard input");
  options.add("-n,--bytes", arguments->bytes, "N", "How many bytes to write behind the prompt");
  options.add("--temperature", arguments->sampling.temperature, "X",
              "Below 1 is tamer, above wilder; 0: the likeliest");
  options.add("--top-k", arguments->sampling.top_k, "K", "Draw from the K likeliest bytes only; 0: from all");
  options.add("--top-p", arguments->sampling.top_p, "P", "Draw from the likeliest bytes of this total probability");
  options.device(arguments->execution);
  options.add("--seed", arguments->seed, "N", "The same seed writes the same text [another one every time]");
  options.flag("--json", arguments->json, "Print one JSON object at the end; bytes that are not UTF-8 are replaced");
  options.finish(
      "  penstock generate model.safetensors --prompt 'In the beginning'\n"
      "  penstock generate model.safetensors -n 2000 --temperature 1 --seed 7 > text.txt\n"
      "  head -c 1000 book.txt | penstock generate model.safetensors --prompt-file -");
  return {app, [arguments] { return generate(*arguments); }};
}

}  // namespace penstock::cli
