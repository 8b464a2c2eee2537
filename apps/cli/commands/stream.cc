#include <fmt/format.h>

#include <exception>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "answers/group_streams.h"
#include "answers/input_findings.h"
#include "answers/sound_stream.h"
#include "answers/step_answers.h"
#include "answers/stream_state.h"
#include "commands/commands.h"
#include "options/data_options.h"
#include "options/device_choice.h"
#include "options/load_model.h"
#include "options/options.h"
#include "options/output_file.h"
#include "penstock/data/labelled_texts.h"
#include "penstock/network.h"
#include "penstock/penstock.h"
#include "terminal/describe.h"
#include "terminal/input.h"
#include "terminal/latency.h"
#include "terminal/signals.h"
#include "terminal/terminal.h"
#include "terminal/units.h"

namespace penstock::cli {
namespace {

struct StreamArguments {
  std::string model, input, output, target, series;
  RowOptions rows;
  Execution execution;
  bool automatic = false;  // the device
  TableOptions table;
  std::string state;
  bool force = false;
  std::vector<double> quantiles;
  bool bits = false, json = false, reset_on_blank_line = false, stats = false, allow_negative = false;
};

/// Streams a sound through an imported network, one sample in and one out. Returns the exit status.
int stream_network(const StreamArguments& arguments) {
  const std::string path = printable(arguments.model);
  if (arguments.input.empty()) {
    fail(ErrorCode::invalid_argument,
         "{} is an imported network, which streams sound: 'penstock stream {} IN.wav OUT.wav'", path,
         shell_word(arguments.model));
  }
  require_given(arguments.output, "OUT.wav");
  const auto network = penstock::Network::load(arguments.model);
  NetworkShapes shapes;
  for (const NetworkTensor& input : network.inputs()) {
    shapes[input.name] = input.shape;
    for (Index& extent : shapes[input.name]) extent = extent < 0 ? 1 : extent;
  }
  NetworkSession session(network, shapes);
  if (session.inputs().size() != 1 || session.inputs()[0].type != "f32" || session.input(0).size() != sizeof(float) ||
      session.outputs().size() != 1 || session.outputs()[0].type != "f32" ||
      session.output(0).size() != sizeof(float)) {
    fail(ErrorCode::unsupported,
         "{} does not answer one sample with one sample: C++, Python and C run any network (docs/published_models.md)",
         path);
  }
  SoundStream sound(arguments.input, network.sample_rate());
  Latency latency;
  float& in = session.input<float>(session.inputs()[0].name)[0];
  const float& out = session.output<float>(session.outputs()[0].name)[0];
  const bool done = sound.run(arguments.output, [&](float sample) {
    const auto start = Latency::Clock::now();
    in = sample;
    session.run();
    latency.record(Latency::Clock::now() - start);
    return out;
  });
  if (!done) return interrupted_status();
  sound.report(arguments.target, 0, arguments.stats ? &latency : nullptr);
  return 0;
}

/// Reads standard input and answers every step before it reads on.
class Stream {
 public:
  Stream(const CLI::App& app, StreamArguments arguments)
      : arguments_(std::move(arguments)),
        model_(load_model("stream", arguments_.model, {arguments_.input})),
        session_(model_, settled_execution()),
        input_("-") {
    if (arguments_.allow_negative) model_.allow_negative();
    if (arguments_.bits) require_task(model_, arguments_.model, Task::language, "--bits");
    if (app.count("--sequence-column") > 0) require_task(model_, arguments_.model, Task::classify, "--sequence-column");
    refuse_foreign_options(app, model_, arguments_.model);
    if (app.count("--keep") > 0 && model_.data().vocabulary > 0) {
      throw Error(ErrorCode::invalid_argument, "--keep is for models that read the rows of a CSV file");
    }
    if (model_.data().reads_ahead()) {
      fail(ErrorCode::invalid_argument,
           "{} reads values of later rows (--known), which a stream does not have yet: use 'penstock predict' with a "
           "file",
           printable(arguments_.model));
    }
    check_quantiles(model_, arguments_.model, arguments_.quantiles);
    std::erase(arguments_.rows.keep, model_.data().series.group_column);  // which is kept anyway
    // A stream has no second chance: what cannot be read is replaced and counted, unless it is to be refused.
    RowFormat& format = arguments_.rows.format;
    format = arguments_.table.row_format();
    format.missing = format.missing.value_or(Missing::carry);
    format.replace_bad = format.missing != Missing::refuse;
    format.series = arguments_.series;
    if (model_.data().series.groups_are_files) {
      require_given(arguments_.series, "--series NAME, as the model is one of many files,");
    } else if (!arguments_.series.empty()) {
      throw Error(ErrorCode::invalid_argument, "--series is for a model trained with --group-by-file");
    }
    if (!arguments_.state.empty()) state_.emplace(arguments_.state, arguments_.model);
  }

  int run() {
    if (!arguments_.input.empty()) return answer_sound();
    if (state_) state_->restore(session_);
    try {
      answer();
    } catch (const Interrupted&) {  // before the first line
    }
    if (state_) state_->save(session_);
    if (arguments_.stats) say(latency_.summary() + "\n");
    if (failure_) std::rethrow_exception(failure_);
    return interrupted() ? interrupted_status() : 0;
  }

 private:
  void answer() {
    if (model_.data().task == Task::language) return answer_bytes();
    if (model_.data().labels_texts()) return answer_texts();
    if (model_.data().vocabulary > 0) return answer_tokens();
    answer_rows();
  }

  /// Writes a header and runs a loop that answers. If nobody takes the answers any more, or they cannot be written, the
  /// state of what was read is still to be saved.
  template <class Answers, class Loop>
  void answer_while_read(Answers& answers, const Loop& loop) {
    try {
      answers.header();
      output_.flush();
      loop();
    } catch (const ClosedPipe&) {
    } catch (const Interrupted&) {
    } catch (const Error& error) {
      if (error.code() != ErrorCode::io_failure) throw;
      failure_ = std::current_exception();
    }
  }

  /// Returns the execution. The length of a stream is unknown, so one step decides about the device.
  const Execution& settled_execution() {
    resolve_device(arguments_.automatic, arguments_.execution, model_, {});
    return arguments_.execution;
  }

  template <class Step>
  std::span<const float> push(const Step& step) {
    return push(step, session_);
  }
  template <class Step>
  std::span<const float> push(const Step& step, Session& session) {
    const auto start = Latency::Clock::now();
    const auto outputs = push_finite(step, session);
    latency_.record(Latency::Clock::now() - start);
    return outputs;
  }

  /// Pushes a step. If the state is not finite, begins a new sequence and says so once.
  template <class Step>
  std::span<const float> push_finite(const Step& step, Session& session) {
    try {
      return session.push(step);
    } catch (const Error& error) {
      if (error.code() != ErrorCode::numerical) throw;
      if (!said_anew_) say("note: the model's answer was not finite; its state was reset\n");
      said_anew_ = true;
      return session.push(step);
    }
  }

  void answer_bytes() {
    using Style = ByteAnswers::Style;
    ByteAnswers answers(output_, arguments_.json ? Style::json : arguments_.bits ? Style::bits : Style::table);
    if (state_ && !state_->expected.empty()) answers.expect(state_->expected);
    answer_while_read(answers, [&] {
      char before = '\n';
      for (std::string_view text = input_.read(); !text.empty(); text = input_.read()) {
        for (const char c : text) {
          if (interrupted()) return;
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
    });
    if (state_) state_->expected = answers.expected();
    if (answers.scored() == 0 || arguments_.json) return;
    say(fmt::format("{:.1f} bits for {}, {:.4f} bits/byte\n", answers.bits(), counted(answers.scored(), "byte"),
                    answers.bits() / static_cast<double>(answers.scored())));
  }

  /// The next row, or the end: calls reset() for each blank line on the way, if those shall do that.
  template <class Reset>
  Rows::Kind next_row(Rows& rows, const Reset& reset) const {
    for (;;) {
      const Rows::Kind kind = rows.next();
      if (kind != Rows::Kind::blank) return kind;
      if (!arguments_.reset_on_blank_line) continue;
      rows.reader().restart();
      reset();
    }
  }

  /// Rows of one series or of many, each with a state of its own; the name of one of many stands in front of its
  /// answers.
  void answer_rows() {
    const DataDescription& data = model_.data();
    const bool grouped = !data.series.group_column.empty();
    RowOptions options = arguments_.rows;
    if (grouped) options.keep.insert(options.keep.begin(), data.series.group_column);
    Rows rows(input_, data, options);
    RowAnswers answers(output_, data, options.keep, arguments_.json, arguments_.quantiles);
    GroupStreams streams(session_, model_, arguments_.execution);
    if (state_) {
      IntervalTracker any(data);
      state_->restore(any);  // which says what is wrong with it
      streams.restore(*state_, rows);
      state_->restore(rows.reader());
    }
    const auto inputs = static_cast<std::size_t>(data.input_size()), targets = data.targets.size();
    answer_while_read(answers, [&] {
      const auto reset = [&] { streams.reset_all(); };
      for (auto kind = next_row(rows, reset); kind != Rows::Kind::end; kind = next_row(rows, reset)) {
        if (!grouped && rows.starts_sequence()) reset();
        if (const auto ready = streams.take(rows)) {
          std::span<const float> features(ready->rows.features), forecast;
          std::span<const double> values(ready->rows.target_values);
          for (; !features.empty(); features = features.subspan(inputs), values = values.subspan(targets)) {
            forecast = push(features.first(inputs), ready->session);
            ready->tracker.add(features.first(inputs), forecast, values.first(targets));
          }
          if (kind == Rows::Kind::missing) continue;
          answers.of_series(ready->data);
          answers.of_distribution(ready->tracker.distribution());
          answers.answer(rows.kept(), forecast);
          output_.flush();
        }
        say_first_findings(rows);
      }
    });
    say_findings(rows, true);
    if (state_) streams.save(*state_);
    if (state_) state_->last_rows = rows.reader().last_rows();
  }

  /// Reports the first row that was left out or changed, once: a stream has no end at which to report more.
  void say_first_findings(const Rows& rows) {
    const auto say_once = [](bool& said, const Message& text, const char* what) {
      if (!text.empty() && !std::exchange(said, true)) say(fmt::format("note: {}; {}\n", printable(text.text()), what));
    };
    const RowFindings& found = rows.reader().findings();
    say_once(said_undated_, found.undated.first, "left out");
    say_once(said_earlier_, found.earlier.first, "earlier than the row before");
    say_once(said_repeated_, found.repeated.first, "the date of the row before, too");
    say_once(said_returning_, found.returning_sequences.first, "its state is reset");
    if (rows.replaced() > 0 && !said_replaced_)
      say_once(said_replaced_, first_replaced(rows),
               "replaced by the last value; --missing refuse ends the stream instead");
  }

  int answer_sound() {
    const Index rate = model_.data().sample_rate;
    if (rate == 0) {
      fail(ErrorCode::invalid_argument,
           "{} is not a model of sound: it reads standard input, 'penstock stream {} < {}'",
           printable(arguments_.model), shell_word(arguments_.model), shell_word(arguments_.input));
    }
    require_given(arguments_.output, "OUT.wav");
    SoundStream sound(arguments_.input, static_cast<double>(rate));
    if (state_) state_->restore(session_);
    const auto in_scale = static_cast<float>(model_.data().inputs[0].scale);
    const auto out_scale = static_cast<float>(model_.data().targets[0].scale);
    const bool done = sound.run(arguments_.output, [&](float sample) {
      const float value = sample / in_scale;
      return out_scale * push(std::span(&value, 1))[0];
    });
    if (!done) return interrupted_status();
    if (state_) state_->save(session_);
    sound.report(arguments_.target, model_.data().latency, arguments_.stats ? &latency_ : nullptr);
    return 0;
  }

  /// One text a line, and its label.
  void answer_texts() {
    RowAnswers answers(output_, model_.data(), {}, arguments_.json);
    answer_while_read(answers, [&] {
      std::string line;
      while (input_.line(line)) {
        session_.reset();
        std::span<const float> logits;
        for (const std::int32_t token : text_tokens(model_.data(), line)) logits = push(token);
        answers.answer({}, logits);
        output_.flush();
      }
    });
  }

  void answer_tokens() {
    RowAnswers answers(output_, model_.data(), {}, arguments_.json);
    answer_while_read(answers, [&] {
      std::string line;
      for (Index number = 1; input_.line(line); ++number) {
        const auto tokens = parse_tokens(line, model_.data().vocabulary, "-", number);
        if (tokens.empty() && arguments_.reset_on_blank_line) session_.reset();
        for (const std::int32_t token : tokens) {
          if (interrupted()) return;
          answers.answer({}, push(token));
          output_.flush();
        }
      }
    });
  }

  StreamArguments arguments_;
  Model model_;
  Session session_;
  std::optional<StreamState> state_;
  bool said_anew_ = false;  // that the state was not finite
  bool said_replaced_ = false, said_undated_ = false, said_returning_ = false;
  bool said_earlier_ = false, said_repeated_ = false;
  Input input_;
  Output output_;
  Latency latency_;
  std::exception_ptr failure_;  // answers could not be written
};

}  // namespace

Command add_stream(CLI::App& program) {
  CLI::App* app = program.add_subcommand("stream", "Answer each byte or row of standard input as it arrives");
  auto arguments = std::make_shared<StreamArguments>();
  Options options(*app);
  options.positional("MODEL", arguments->model, "A trained model, a checkpoint, or an imported network of sound");
  options.positional("[IN.wav]", arguments->input, "Sound: the file to read instead of standard input");
  options.positional("[OUT.wav]", arguments->output, "Sound: the file to write");
  options.group("Options");
  options.device(arguments->execution, &arguments->automatic);
  options.flag("--exact", arguments->execution.exact,
               "On a GPU: compute the same bits as 'penstock predict --exact'; slower. On a CPU they always are");
  options.flag("--bits", arguments->bits,
               "A text: print only how unexpected each byte is: -log2 of its probability, in bits");
  options.add("--keep", arguments->rows.keep, "A,B", "Rows: copy these input columns to the front of the output");
  options.add("--quantiles", arguments->quantiles, "A,B",
              "A series: add quantiles of each forecast, such as 0.1,0.9 for an 80 % prediction interval");
  options.flag("--allow-negative", arguments->allow_negative,
               "Rows of a series: let forecasts be negative that are at least 0 otherwise, as in a model of rain");
  options.add("--sequence-column", arguments->rows.sequence_column, "NAME",
              "Labels: reset the state when this column changes");
  add_table_options(options, arguments->table,
                    "Empty or unreadable values of rows. refuse: end the stream; all others: use the last value of the "
                    "column, and count them [carry]",
                    "as in training");
  options.add("--series", arguments->series, "NAME", "A model of --group-by-file: the series that the rows belong to");
  options.add("--state", arguments->state, "FILE",
              "Load the state from this file if it exists, and save it there at the end");
  options.add("--target", arguments->target, "FILE", "Sound: print the error of the output against this file");
  options.flag("--force", arguments->force, "Sound: overwrite a file that is not a sound file");
  options.flag("--reset-on-blank-line", arguments->reset_on_blank_line, "Reset the state after every blank line");
  options.flag("--stats", arguments->stats, "Print the latency per time step at the end");
  options.flag("--json", arguments->json, "Print one JSON object per line");
  options.finish(
      "  tail -n +1 -f sensors.csv | penstock stream sensors.safetensors\n"
      "  penstock stream book.safetensors < letter.txt    # one line per byte\n"
      "  penstock stream book.safetensors --bits < letter.txt | sort -g | tail\n"
      "  penstock stream amplifier.safetensors guitar.wav out.wav\n"
      "  echo '1 0 1 1' | penstock stream parity.safetensors --json");
  return {app, [app, arguments] {
            require_given(arguments->model, "MODEL");
            check_files({{"MODEL", arguments->model}, {"IN.wav", arguments->input}, {"--target", arguments->target}},
                        {{"OUT.wav", arguments->output, FileKind::sound}, {"--state", arguments->state}},
                        arguments->force);
            if (arguments->input.empty()) {
              refuse_given(*app, {"--target"}, "is for sound: 'penstock stream MODEL IN.wav OUT.wav'");
              check_files({{"standard input", "-"}}, {{"standard output", "-"}}, true);
            }
            catch_interrupts();
            if (is_network(arguments->model)) {
              refuse_others(*app, {"--target", "--force", "--stats"}, "does not apply to imported networks");
              return stream_network(*arguments);
            }
            return Stream(*app, *arguments).run();
          }};
}

}  // namespace penstock::cli
