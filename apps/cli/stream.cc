#include <fmt/format.h>

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "answers.h"
#include "describe.h"
#include "input.h"
#include "latency.h"
#include "options.h"
#include "penstock/penstock.h"
#include "rows.h"
#include "signals.h"
#include "terminal.h"
#include "units.h"
#include "verbs.h"

namespace penstock::cli {
namespace {

struct StreamArguments {
  std::string model;
  RowOptions rows;
  Execution execution;
  bool bits = false, json = false, reset_on_blank_line = false, stats = false;
};

/// Reads standard input and answers every step before it reads on.
class Stream {
 public:
  Stream(const CLI::App& app, StreamArguments arguments)
      : arguments_(std::move(arguments)),
        model_(Model::load(arguments_.model)),
        session_(model_, arguments_.execution),
        input_("-") {
    if (arguments_.bits) require_task(model_, arguments_.model, Task::language, "--bits");
    if (app.count("--sequence-column") > 0) {
      require_task(model_, arguments_.model, Task::classify, "--sequence-column");
    }
    if (app.count("--keep") > 0 && model_.data().vocabulary > 0) {
      throw Error(ErrorCode::invalid_argument, "--keep is for models that read the rows of a CSV file");
    }
  }

  int run() {
    if (model_.data().task == Task::language) {
      answer_bytes();
    } else if (model_.data().vocabulary > 0) {
      answer_tokens();
    } else {
      answer_rows();
    }
    if (arguments_.stats) say(latency_.summary() + "\n");
    return interrupted() ? interrupted_status() : 0;
  }

 private:
  template <class Step>
  std::span<const float> push(const Step& step) {
    const auto start = Latency::Clock::now();
    const auto outputs = session_.push(step);
    latency_.record(Latency::Clock::now() - start);
    return outputs;
  }

  void answer_bytes() {
    using Style = ByteAnswers::Style;
    ByteAnswers answers(output_, arguments_.json ? Style::json : arguments_.bits ? Style::bits : Style::table);
    answers.header();
    output_.flush();
    char before = '\n';
    for (std::string_view text = input_.read(); !text.empty(); text = input_.read()) {
      for (const char c : text) {
        const auto byte = static_cast<unsigned char>(c);
        answers.answer(byte, push(static_cast<std::int32_t>(byte)));
        output_.flush();
        if (arguments_.reset_on_blank_line && c == '\n' && before == '\n') {
          session_.reset();
          answers.restart();
        }
        before = c;
      }
    }
    if (answers.scored() == 0 || arguments_.json) return;
    say(fmt::format("{:.1f} bits for {} bytes, {:.4f} bits/byte\n", answers.bits(), with_commas(answers.scored()),
                    answers.bits() / static_cast<double>(answers.scored())));
  }

  void answer_rows() {
    Rows rows(input_, model_.data(), arguments_.rows);
    RowAnswers answers(output_, model_.data(), arguments_.rows.keep, arguments_.json);
    answers.header();
    output_.flush();
    for (auto kind = rows.next(); kind != Rows::Kind::end; kind = rows.next()) {
      if (kind == Rows::Kind::blank) {
        if (arguments_.reset_on_blank_line) session_.reset();
        continue;
      }
      if (rows.starts_sequence()) session_.reset();
      answers.answer(rows.kept(), push(std::span<const float>(rows.features())));
      output_.flush();
    }
  }

  void answer_tokens() {
    RowAnswers answers(output_, model_.data(), {}, arguments_.json);
    answers.header();
    output_.flush();
    std::string line;
    for (Index number = 1; input_.line(line); ++number) {
      const auto tokens = parse_tokens(line, model_.data().vocabulary, "-", number);
      if (tokens.empty() && arguments_.reset_on_blank_line) session_.reset();
      for (const std::int32_t token : tokens) {
        answers.answer({}, push(token));
        output_.flush();
      }
    }
  }

  StreamArguments arguments_;
  Model model_;
  Session session_;
  Input input_;
  Output output_;
  Latency latency_;
};

}  // namespace

Verb add_stream(CLI::App& program) {
  CLI::App* app = program.add_subcommand("stream", "Answer standard input, byte by byte or row by row, as it comes");
  auto arguments = std::make_shared<StreamArguments>();
  Options options(*app);
  options.positional("MODEL", arguments->model, "A trained model, or a checkpoint");
  options.group("Options");
  options.device(arguments->execution);
  options.flag("--bits", arguments->bits, "A text: print only the surprise of each byte, in bits");
  options.add("--keep", arguments->rows.keep, "A,B",
              "Rows: copy these columns of the input to the front of the output");
  options.add("--sequence-column", arguments->rows.sequence_column, "NAME",
              "Labels: start anew when the value of this column changes");
  options.flag("--reset-on-blank-line", arguments->reset_on_blank_line, "Start anew behind every blank line");
  options.flag("--stats", arguments->stats, "At the end, print how long the model took for a step");
  options.flag("--json", arguments->json, "Answer in JSON lines");
  options.finish(
      "  tail -n +1 -f sensors.csv | penstock stream sensors.safetensors\n"
      "  penstock stream book.safetensors < letter.txt               # what each byte says\n"
      "  penstock stream book.safetensors --bits < letter.txt | sort -g | tail\n"
      "  echo '1 0 1 1' | penstock stream parity.safetensors --json");
  return {app, [app, arguments] {
            require_given(arguments->model, "MODEL");
            catch_interrupts();
            return Stream(*app, *arguments).run();
          }};
}

}  // namespace penstock::cli
