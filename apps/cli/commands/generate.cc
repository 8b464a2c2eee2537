#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <memory>
#include <optional>
#include <random>
#include <string>
#include <string_view>
#include <vector>

#include "commands/commands.h"
#include "options/device_choice.h"
#include "options/load_model.h"
#include "options/options.h"
#include "options/output_file.h"
#include "penstock/penstock.h"
#include "terminal/describe.h"
#include "terminal/input.h"
#include "terminal/signals.h"
#include "terminal/terminal.h"
#include "terminal/units.h"

namespace penstock::cli {
namespace {

struct GenerateArguments {
  std::string model;
  std::optional<std::string> prompt, prompt_file;
  Index bytes = 500;
  Sampling sampling;
  std::optional<std::uint64_t> seed;
  Index streams = 1;
  Execution execution;
  bool automatic = false;  // the device
  bool json = false, stats = false, interactive = false;
};

std::string read_prompt(const GenerateArguments& arguments) {
  if (arguments.prompt && arguments.prompt_file) {
    throw Error(ErrorCode::invalid_argument, "--prompt and --prompt-file cannot be given both");
  }
  if (!arguments.prompt_file) return arguments.prompt.value_or("");
  constexpr std::size_t longest = std::size_t{1} << 26;
  return Input(*arguments.prompt_file).rest(longest);
}

/// Texts that are written side by side, stream i as by itself with the seed + i.
class Writers {
 public:
  Writers(const Model& model, const GenerateArguments& arguments, std::uint64_t seed)
      : batch_(model, arguments.streams, arguments.execution),
        sampling_(arguments.sampling),
        texts_(static_cast<std::size_t>(arguments.streams)) {
    for (Index row = 0; row < batch_.rows(); ++row) batch_.seed(row, seed + static_cast<std::uint64_t>(row));
  }

  void read(std::string_view text) {
    std::vector<std::int32_t> tokens(texts_.size());
    for (const char byte : text) {
      std::ranges::fill(tokens, static_cast<unsigned char>(byte));
      batch_.push(tokens);
    }
  }

  /// Writes so many bytes more in each stream.
  void write(Index bytes) {
    std::vector<std::int32_t> tokens(texts_.size() * static_cast<std::size_t>(bytes));
    batch_.generate(sampling_, bytes, tokens);
    auto token = tokens.begin();
    for (std::string& text : texts_) {
      for (Index i = 0; i < bytes; ++i) text += static_cast<char>(static_cast<unsigned char>(*token++));
    }
  }

  const std::vector<std::string>& texts() const { return texts_; }

 private:
  SessionBatch batch_;
  Sampling sampling_;
  std::vector<std::string> texts_;
};

/// How many bytes to write before anybody sees them: one by one where each takes a while.
Index bytes_at_a_time(const GenerateArguments& arguments) {
  constexpr Index unseen = 64;
  return arguments.streams == 1 && !arguments.json && !arguments.execution.device.is_cuda() ? 1 : unseen;
}

void print_text(Output& output, const GenerateArguments& arguments, std::string_view prompt, std::string_view text,
                std::uint64_t seed, Index stream) {
  if (arguments.json) {
    output.write(json_line({{"prompt", prompt}, {"text", text}, {"bytes", text.size()}, {"seed", seed}}));
    return;
  }
  if (stream > 0) output.write("\n");
  output.write(fmt::format("==> stream {}, seed {} <==\n", stream, seed));
  output.write(prompt);
  output.write(text);
  if (!text.ends_with('\n')) output.write("\n");
}

/// Prints the throughput of many streams.
void print_rate(const GenerateArguments& arguments, Index bytes, double seconds) {
  const double all = static_cast<double>(bytes * arguments.streams);
  fmt::print(stderr, "{} in each of {} in {:.3f} s: {:.0f} bytes a second\n", counted(bytes, "byte"),
             counted(arguments.streams, "stream"), seconds, seconds > 0.0 ? all / seconds : 0.0);
}

/// Every line of standard input goes to the model, which goes on from it up to the end of a paragraph. It remembers
/// what was said before.
int converse(const GenerateArguments& arguments, Generator& generator) {
  Input input("-");
  Output output;
  const bool prompts = is_terminal(STDIN_FILENO) && is_terminal(STDOUT_FILENO);
  const auto ask = [&] {
    output.write(prompts ? "> " : "");
    output.flush();
  };
  std::string line;
  for (ask(); input.line(line); ask()) {
    generator.read(line + "\n");
    std::string text;
    while (static_cast<Index>(text.size()) < arguments.bytes && !interrupted() && !text.ends_with("\n\n")) {
      text += generator.next();
      output.write({&text.back(), 1});
      output.flush();
    }
    if (!text.ends_with('\n')) output.write("\n");
    output.flush();
    if (interrupted()) break;
  }
  return interrupted() ? interrupted_status() : 0;
}

void check(const GenerateArguments& arguments) {
  require_given(arguments.model, "MODEL");
  if (arguments.interactive && (arguments.json || arguments.streams != 1 || arguments.prompt_file == "-")) {
    throw Error(
        ErrorCode::invalid_argument,
        "--interactive reads standard input line by line and goes with none of --json, --streams and --prompt-file -");
  }
  if (arguments.bytes < 0) fail(ErrorCode::invalid_argument, "--bytes must not be negative, not {}", arguments.bytes);
  if (arguments.streams < 1) {
    fail(ErrorCode::invalid_argument, "--streams must be at least 1, not {}", arguments.streams);
  }
  check_files({{"MODEL", arguments.model},
               {"--prompt-file", arguments.prompt_file.value_or("")},
               {"standard input", arguments.interactive ? "-" : ""}},
              {{"standard output", "-"}}, true);
  sample(std::array{0.0f}, arguments.sampling, 0.0);  // refuses impossible options before anything is printed
}

int generate(GenerateArguments arguments) {
  check(arguments);
  const std::string prompt = read_prompt(arguments);
  const Model model = load_model("generate", arguments.model);
  if (model.data().task != Task::language) {
    fail(ErrorCode::invalid_argument,
         "this command is for language models, and {} is a {} model: 'penstock predict {} FILE'",
         printable(arguments.model), to_string(model.data().task), shell_word(arguments.model));
  }
  // Tokens are drawn where the model computes, and fetched many at once.
  resolve_device(arguments.automatic, arguments.execution, model,
                 {.rows = arguments.streams,
                  .calls = std::max<Index>(1, arguments.bytes),
                  .copied_every = arguments.interactive ? 1 : 64,
                  .start = true});
  const std::uint64_t seed = arguments.seed.value_or(std::random_device()());

  // Nothing is lost while a prompt is read: a signal ends the program then.
  if (arguments.interactive) {
    Generator generator(model, arguments.sampling, seed, arguments.execution);
    if (!prompt.empty()) generator.read(prompt);
    catch_interrupts();
    return converse(arguments, generator);
  }
  Writers writers(model, arguments, seed);
  // Without a prompt the text starts as if a line had just ended.
  writers.read(prompt.empty() ? "\n" : prompt);
  catch_interrupts();
  Output output;
  const bool one = arguments.streams == 1 && !arguments.json;
  if (one) output.write(prompt);
  if (one) output.flush();
  writers.write(0);  // all that is prepared only once
  const auto start = std::chrono::steady_clock::now();
  Index written = 0;
  while (written < arguments.bytes && !interrupted()) {
    const Index now = std::min(bytes_at_a_time(arguments), arguments.bytes - written);
    writers.write(now);
    if (one) output.write(std::string_view(writers.texts()[0]).substr(static_cast<std::size_t>(written)));
    if (one) output.flush();
    written += now;
  }
  const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  if (one && is_terminal(STDOUT_FILENO) && !writers.texts()[0].ends_with('\n')) {
    output.write("\n");  // so that the shell's prompt has a line of its own
  }
  for (Index stream = 0; !one && stream < arguments.streams; ++stream) {
    print_text(output, arguments, prompt, writers.texts()[static_cast<std::size_t>(stream)],
               seed + static_cast<std::uint64_t>(stream), stream);
  }
  output.flush();
  if (arguments.stats) print_rate(arguments, written, seconds);
  return interrupted() ? interrupted_status() : 0;
}

}  // namespace

Command add_generate(CLI::App& program) {
  CLI::App* app = program.add_subcommand("generate", "Generate text with a language model");
  auto arguments = std::make_shared<GenerateArguments>();
  Options options(*app);
  options.positional("MODEL", arguments->model, "A model that was trained on a text");
  options.group("Options");
  options.add("-p,--prompt", arguments->prompt, "TEXT", "Text to continue; it is printed first");
  options.add("--prompt-file", arguments->prompt_file, "FILE", "Read the prompt from a file; '-': standard input");
  options.flag("-i,--interactive", arguments->interactive,
               "Answer every line of standard input with one paragraph of at most --bytes bytes");
  options.add("-n,--bytes", arguments->bytes, "N", "Bytes to generate after the prompt");
  options.add("--temperature", arguments->sampling.temperature, "X",
              "Sampling temperature: below 1 favours likely bytes, above 1 unlikely ones; 0 takes the likeliest");
  options.add("--top-k", arguments->sampling.top_k, "K", "Sample from the K likeliest bytes; 0: from all");
  options.add("--top-p", arguments->sampling.top_p, "P", "Sample from the likeliest bytes with this total probability");
  options.device(arguments->execution, &arguments->automatic);
  options.add("--seed", arguments->seed, "N",
              "Random seed; equal seeds generate equal texts [another one in every run]");
  options.add("--streams", arguments->streams, "N",
              "Generate N texts in one batch, with the seeds --seed, --seed + 1, ...");
  options.flag("--json", arguments->json,
               "Print one JSON object per text at the end; bytes that are not UTF-8 are replaced");
  options.flag("--stats", arguments->stats, "Print the time and speed to standard error");
  options.finish(
      "  penstock generate model.safetensors --prompt 'In the beginning'\n"
      "  penstock generate model.safetensors -n 2000 --seed 7 > text.txt\n"
      "  penstock generate model.safetensors --streams 100 --json > texts.jsonl\n"
      "  penstock generate model.safetensors -i -n 300\n"
      "  head -c 999 book.txt | penstock generate m.safetensors --prompt-file -");
  return {app, [arguments] { return generate(*arguments); }};
}

}  // namespace penstock::cli
