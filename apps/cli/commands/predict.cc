#include <fmt/ranges.h>
#include <unistd.h>

#include <algorithm>
#include <memory>
#include <string>
#include <utility>

#include "answers/input_findings.h"
#include "answers/long_answers.h"
#include "answers/step_answers.h"
#include "answers/text_score.h"
#include "commands/commands.h"
#include "options/data_options.h"
#include "options/device_choice.h"
#include "options/load_model.h"
#include "options/options.h"
#include "options/output_file.h"
#include "penstock/classify/labels.h"
#include "penstock/data/labelled_texts.h"
#include "penstock/penstock.h"
#include "penstock/sequence_run.h"
#include "penstock/stop.h"
#include "penstock/train/answer_rows.h"
#include "penstock/train/score_rows.h"
#include "terminal/describe.h"
#include "terminal/input.h"
#include "terminal/signals.h"
#include "terminal/terminal.h"
#include "terminal/units.h"

namespace penstock::cli {
namespace {

struct PredictArguments {
  std::vector<double> quantiles;
  std::string model, series, output;
  std::vector<std::string> data;
  RowOptions rows;
  TableOptions table;
  bool per_byte = false, last = false, long_table = false, force = false, json = false, allow_negative = false;
  TaskOptions task;
  Execution execution;
  bool automatic = false;  // the device
};

class Prediction {
 public:
  Prediction(const CLI::App& app, PredictArguments arguments, Model model)
      : app_(app), arguments_(std::move(arguments)), model_(std::move(model)), output_(arguments_.output) {
    if (arguments_.allow_negative) model_.allow_negative();
    arguments_.rows.format = arguments_.table.row_format();
    arguments_.rows.format.series = arguments_.series;
    std::erase(arguments_.rows.keep, model_.data().series.group_column);  // which is kept anyway
  }

  int run() {
    {
      const Stoppable on_a_signal(&interrupt());
      completes([&] { answer(); });
    }
    if (interrupted()) return stop();
    output_.finish();
    if (output_.is_file()) say_saved();
    return 0;
  }

 private:
  void answer() {
    if (arguments_.data.size() > 1 && !reads_many()) refuse_argument(app_, arguments_.data[1]);
    const std::vector<std::string> given = std::exchange(arguments_.data, files_of(arguments_.data));
    refuse_foreign(given);
    resolve_device(arguments_.automatic, arguments_.execution, model_, work());
    if (!task_name(arguments_.data.front()).empty()) {
      predict_task();
    } else if (data().task == Task::language) {
      predict_texts();
    } else if (data().labels_texts()) {
      label_texts();
    } else if (data().vocabulary > 0) {
      predict_tokens();
    } else if (data().task == Task::forecast) {
      forecast();
    } else {
      classify();
    }
  }

  /// Stops on a signal. Answers so far are printed, but a file is written whole or not at all.
  int stop() {
    if (!output_.is_file()) output_.flush();
    return interrupted_status();
  }

  void say_saved() const {
    print_answer(
        fmt::format("saved  {} ({})\n", printable(arguments_.output), byte_size(static_cast<double>(output_.size()))));
  }

  bool shows_progress() const { return output_.is_file() || !is_terminal(STDOUT_FILENO); }

  /// Returns the work as far as it is known before anything is read: bytes of texts; for other data, at least a piece.
  DeviceQuestion work() const {
    if (!task_name(source()).empty()) return {.rows = 64, .steps = arguments_.task.validation_length, .start = true};
    return reading_of(model_, arguments_.data);
  }

  const DataDescription& data() const { return model_.data(); }
  const std::string& source() const { return arguments_.data.front(); }

  /// `given` are the arguments of DATA, of which some may be folders.
  bool reads_many() const {
    return (data().task == Task::language && !arguments_.per_byte) || data().series.groups_are_files;
  }

  void refuse_foreign(const std::vector<std::string>& given) const {
    const auto refuse = [&](const char* option, Task only) {
      if (app_.count(option) > 0) require_task(model_, arguments_.model, only, option);
    };
    refuse("--per-byte", Task::language);
    refuse("--last", Task::forecast);
    refuse("--long", Task::forecast);
    check_quantiles(model_, arguments_.model, arguments_.quantiles);
    refuse("--sequence-column", Task::classify);
    refuse_foreign_options(app_, model_, arguments_.model);
    if (task_name(source()).empty()) {
      refuse_given(app_, {"--length", "--modulus", "--copy-tokens", "--seed"},
                   fmt::format("is for built-in tasks, such as task:parity, and DATA is {}", printable(source())));
    }
    if (app_.count("--keep") > 0 && data().vocabulary > 0 && !data().labels_texts()) {
      throw Error(ErrorCode::invalid_argument, "--keep is for models that read the rows of a CSV file");
    }
    if (app_.count("--series") > 0 && (!data().series.groups_are_files || arguments_.data.size() > 1)) {
      throw Error(ErrorCode::invalid_argument, "--series is for one file and a model trained with --group-by-file");
    }
    if (arguments_.data.size() > 1 && !reads_many()) {
      fail(ErrorCode::invalid_argument,
           "DATA {} is a folder of {} files, and this model reads one: 'penstock predict {} {}'",
           printable(given.front()), arguments_.data.size(), shell_word(arguments_.model), shell_word(source()));
    }
  }

  void predict_texts() {
    using Style = ByteAnswers::Style;
    const Style style = !arguments_.per_byte ? Style::silent : arguments_.json ? Style::json : Style::table;
    Json all = Json::array();
    if (!arguments_.per_byte && !arguments_.json) output_.write("bits/byte       loss            bytes  file\n");
    for (const std::string& file : arguments_.data) {
      ByteAnswers answers(output_, style);
      answers.header();
      const TextScore score =
          score_text(model_, file, arguments_.execution, answers, shows_progress() || !answers.writes());
      if (interrupted()) return;
      if (arguments_.per_byte) continue;
      if (arguments_.json) all.push_back(score_json(score));
      if (!arguments_.json) output_.write(score_row(score));
      if (!arguments_.json) output_.flush();
    }
    if (arguments_.json && !arguments_.per_byte) output_.write(json_line({{"files", all}}));
  }

  void forecast() {
    for (const std::string& file : arguments_.data) forecast_file(file);
  }

  void forecast_file(const std::string& file) {
    Input input(file, Input::Holds::table);
    if (shows_progress()) input.show_progress();
    Rows rows(input, data(), arguments_.rows);
    if (arguments_.long_table || !data().series.group_column.empty() || data().reads_ahead()) {
      forecast_groups(rows);
      return;
    }
    RowAnswers answers(output_, data(), arguments_.rows.keep, arguments_.json, arguments_.quantiles);
    answers.header();
    struct Row {
      std::vector<std::string> kept;
      bool missing;  // in the file
    };
    Index rows_read = 0, answered = 0;
    bool ended = false;
    const auto answer = [&](const Row& row, auto, std::span<const float> forecasts, const IntervalTracker& tracker) {
      const bool is_last = ++answered == rows_read && ended;
      if (arguments_.last ? !is_last : row.missing) return;
      answers.of_distribution(tracker.distribution());
      answers.answer(row.kept, forecasts);
    };
    ForecastRun<Row> run(model_, data(), arguments_.execution, answer);
    for (auto kind = rows.next(); kind != Rows::Kind::end; kind = rows.next()) {
      if (kind == Rows::Kind::blank) continue;
      run.add(rows.features(), rows.target_values(), {rows.kept(), kind == Rows::Kind::missing});
      ++rows_read;
    }
    if (rows_read == 0) nothing_to_read("rows after the header");
    ended = true;
    run.finish();
    say_findings(rows);
  }

  /// Rows of a series that can be forecast from: of the others not all that should be known in advance is.
  Index count_answered(const GroupedRows& series) {
    const auto count = static_cast<Index>(series.kept.size());
    const Index lacking = series.lacking(count - 1);
    if (lacking > 0) lacking_.push_back(series.name);
    return std::max<Index>(0, count - lacking);
  }

  /// Forecasts of what follows the last row need what is known of as many rows as are forecast.
  void say_lacking() const {
    if (lacking_.empty()) return;
    std::vector<std::string> columns;
    for (const std::string& name : data().known_columns()) columns.push_back(printable(name));
    const std::string of = lacking_.front().empty() ? "" : fmt::format(" of {}", printable(lacking_.front()));
    const std::string text = fmt::format(
        "{}: after the last row{}{}, add {} more rows with the known values of {} and an empty {}", printable(source()),
        of, lacking_.size() > 1 ? fmt::format(" (and of {} more series)", lacking_.size() - 1) : "",
        data().series.horizon, fmt::join(columns, ", "), printable(data().targets.front().name));
    if (arguments_.last) throw Error(ErrorCode::bad_input, text);
    say("note: " + text + ", for forecasts from the last rows\n");
  }

  /// One series after the other, its name, if it has one, in front of each answer.
  void forecast_groups(Rows& rows) {
    const std::vector<GroupedRows> groups = read_groups(rows, data(), {});
    if (groups.empty()) nothing_to_read("rows after the header");
    say_new_groups(new_groups(groups), rows.name(), 0);
    lacking_.clear();
    std::vector<Index> counts;
    for (const GroupedRows& series : groups) counts.push_back(count_answered(series));
    say_lacking();
    if (arguments_.long_table) {
      const LongOptions options{arguments_.rows.keep, arguments_.quantiles, !arguments_.last, arguments_.json};
      LongAnswers answers(output_, data(), options, RowTimes(rows, groups, data()));
      write_groups(groups, counts, answers,
                   [&](std::size_t series, Index row, const ErrorDistribution& distribution, const auto& own) {
                     answers.answer(series, row, groups[series], distribution, own);
                   });
    } else {
      write_wide(groups, counts);
    }
    say_findings(rows);
  }

  void write_wide(const std::vector<GroupedRows>& groups, const std::vector<Index>& counts) {
    const bool named = !data().series.group_column.empty();
    const auto with_name = [&](const std::string& name, const std::vector<std::string>& kept) {
      return named ? with_first(name, kept) : kept;
    };
    RowAnswers answers(output_, data(), with_name(data().series.group_column, arguments_.rows.keep), arguments_.json,
                       arguments_.quantiles);
    write_groups(groups, counts, answers,
                 [&](std::size_t series, Index row, const ErrorDistribution& distribution, const auto& own) {
                   answers.of_series(groups[series].data);
                   answers.of_distribution(distribution);
                   answers.answer(with_name(groups[series].name, groups[series].kept[static_cast<std::size_t>(row)]),
                                  own);
                 });
  }

  /// Calls write(series, row, distribution, forecasts) for each row whose forecast is wanted, of the first `counts` of
  /// a series.
  template <class Answers, class Write>
  void write_groups(const std::vector<GroupedRows>& groups, const std::vector<Index>& counts, Answers& answers,
                    const Write& write) {
    if (!std::exchange(headed_, true)) answers.header();
    for (std::size_t number = 0; number < groups.size(); ++number) {
      const auto answer = [&](Index row, const ErrorDistribution& distribution, const auto& own) {
        const bool wanted =
            arguments_.last ? row + 1 == counts[number] : !groups[number].missing[static_cast<std::size_t>(row)];
        if (wanted) write(number, row, distribution, own);
      };
      forecast_rows(model_, groups[number], counts[number], arguments_.execution, answer);
    }
  }

  /// One answer a sequence: rows of one value in the sequence column, or rows up to a blank line without such a column.
  void classify() {
    Input input(source(), Input::Holds::table);
    if (shows_progress()) input.show_progress();
    Rows rows(input, data(), arguments_.rows);
    RowAnswers answers(output_, data(), with_first("sequence", arguments_.rows.keep), arguments_.json);
    answers.header();
    Index sequences = 0;
    std::string name;
    std::vector<std::string> kept;
    const auto seen = [&] {
      name = rows.sequence();
      kept = rows.kept();
    };
    label_rows(model_, rows, arguments_.execution, seen, [&](std::span<const float> logits) {
      ++sequences;
      answers.answer(with_first(name.empty() ? fmt::format("{}", sequences) : name, kept), logits);
    });
    if (sequences == 0) nothing_to_read("rows after the header");
    say_findings(rows);
  }

  static std::vector<std::string> with_first(const std::string& first, std::vector<std::string> rest) {
    rest.insert(rest.begin(), first);
    return rest;
  }

  /// One answer a row of a table, in its order.
  void label_texts() {
    const auto& keep = arguments_.rows.keep;
    const auto rows = read_text_rows(Sources{source()}, data(), arguments_.table.format(), keep);
    if (rows.empty()) nothing_to_read("rows after the header");
    RowAnswers answers(output_, data(), with_first("row", keep), arguments_.json);
    answers.header();
    const auto classes = static_cast<std::size_t>(data().output_size());
    constexpr std::size_t part = 1024;  // are answered before the next are looked at
    for (std::size_t first = 0; first < rows.size(); first += part) {
      std::vector<std::string_view> texts;
      for (std::size_t i = first; i < std::min(rows.size(), first + part); ++i) texts.emplace_back(rows[i].text);
      const std::vector<float> logits = penstock::label_texts(model_, texts, arguments_.execution);
      for (std::size_t i = 0; i < texts.size(); ++i) {
        answers.answer(with_first(fmt::format("{}", first + i + 1), rows[first + i].kept),
                       std::span(logits).subspan(i * classes, classes));
      }
    }
  }

  /// Tokens with blanks between them, one sequence a line.
  void predict_tokens() {
    Input input(source());
    if (shows_progress()) input.show_progress();
    RowAnswers answers(output_, data(), {"sequence"}, arguments_.json);
    answers.header();
    SequenceRun sequence(model_, arguments_.execution);
    Index sequences = 0;
    std::string line;
    for (Index number = 1; input.line(line); ++number) {
      for (const auto token : parse_tokens(line, data().vocabulary, input.name(), number)) {
        sequence.add_for_last(token);
      }
      if (sequence.waiting() == 0) continue;
      answers.answer(std::vector{fmt::format("{}", ++sequences)}, sequence.end());
    }
    if (sequences == 0) nothing_to_read("tokens");
  }

  void predict_task() {
    TaskOptions task = arguments_.task;
    task.length = task.validation_length;  // nothing is trained here
    const auto dataset = open_task(task_name(source()), task);
    TrainOptions options;
    options.batch = 64;
    options.validation_batches = 0;
    options.execution = arguments_.execution;
    const Evaluation score = evaluate(model_, *dataset, options);
    if (arguments_.json) {
      Json json = {{"task", source()}, {"length", task.validation_length}};
      json.update(evaluation_json(data(), score));
      output_.write(json_line(json));
    } else {
      output_.write(fmt::format("accuracy {:.2f} %, loss {} on {} in sequences of {}\n", 100.0 * score.accuracy,
                                short_number(score.loss), counted(score.scored, "answer"),
                                counted(task.validation_length, "step")));
    }
  }

  void nothing_to_read(const char* what) const {
    if (interrupted()) return;
    fail(ErrorCode::bad_input, "{}: there are no {}", printable(source()), what);
  }

  const CLI::App& app_;
  PredictArguments arguments_;
  Model model_;
  Output output_;
  bool headed_ = false;               // the names of the columns are written
  std::vector<std::string> lacking_;  // series of which too little is known in advance
};

int predict(const CLI::App& app, const PredictArguments& arguments) {
  require_given(arguments.model, "MODEL");
  require_data("predict", arguments.model, arguments.data);
  std::vector<InputFile> inputs = input_files("DATA", arguments.data);
  inputs.push_back({"MODEL", arguments.model});
  const bool prints = arguments.output.empty() || arguments.output == "-";
  check_files(inputs, {{prints ? "standard output" : "--output", prints ? "-" : arguments.output}}, arguments.force);
  if (!prints) check_new_output(arguments.output, arguments.force);
  catch_interrupts();
  return Prediction(app, arguments, load_model("predict", arguments.model, arguments.data)).run();
}

}  // namespace

Command add_predict(CLI::App& program) {
  CLI::App* app = program.add_subcommand("predict", "Forecast a series, label sequences or score a text");
  auto arguments = std::make_shared<PredictArguments>();
  Options options(*app);
  options.positional("MODEL", arguments->model, "A trained model or a checkpoint");
  options.positional("DATA", arguments->data,
                     "Data that fit the model: texts, a CSV file with the model's columns, a .ts file, lines of "
                     "tokens, or task:NAME to score a built-in task; '-': standard input");
  options.group("Options");
  options.flag("--per-byte", arguments->per_byte, "A text: one line per byte, as 'penstock stream' prints it");
  options.flag("--last", arguments->last, "A series: print only the forecast after the last row (of each group)");
  options.flag("--long", arguments->long_table,
               "A series: print one row per forecast date and column, instead of columns 'sales+1', 'sales+2', ...");
  options.add("--quantiles", arguments->quantiles, "A,B",
              "A series: add quantiles of each forecast, such as 0.1,0.9 for an 80 % prediction interval");
  options.flag("--allow-negative", arguments->allow_negative,
               "A series: let forecasts be negative that are at least 0 otherwise, as in a model of rain");
  options.add("--keep", arguments->rows.keep, "A,B", "Copy these input columns to the front of the output");
  options.add("--sequence-column", arguments->rows.sequence_column, "NAME",
              "Column that names the sequence of a row to be labelled");
  options.add("--series", arguments->series, "NAME",
              "A model of --group-by-file: the series that the rows belong to [the file's name]");
  add_table_options(options, arguments->table,
                    "Empty values. refuse: an error; all others: the last value of their column [as in training]",
                    "as in training");
  options.add("--length", arguments->task.validation_length, "T", "task:NAME: time steps of the sequences");
  options.add("--modulus", arguments->task.modulus, "M", "task:modular: the modulus of training [5]");
  options.add("--copy-tokens", arguments->task.copy_tokens, "N", "task:copying, task:recall: what to remember [10]");
  options.add("--seed", arguments->task.seed, "N", "task:NAME: seed of the sequences");
  options.add("--threads", arguments->execution.threads, "N", "CPU threads; 0: all");
  options.device(arguments->execution, &arguments->automatic);
  options.flag("--exact", arguments->execution.exact, "Compute the same bits as 'penstock stream --exact'; slower");
  options.flag("--json", arguments->json, "Print JSON: one object for texts, otherwise one per line");
  options.add("-o,--output", arguments->output, "FILE", "File for the answers [standard output]");
  options.flag("--force", arguments->force, "Overwrite an existing file");
  options.finish(
      "  penstock predict book.safetensors chapter1.txt chapter2.txt\n"
      "  penstock predict co2.safetensors co2.csv --keep week > forecast.csv\n"
      "  penstock predict co2.safetensors co2.csv --last --json\n"
      "  penstock predict shops.safetensors shops.csv --last --long -o next.csv\n"
      "  penstock predict gestures.safetensors new.csv  # one label per sequence\n"
      "  penstock predict parity.safetensors task:parity --length 1000");
  return {app, [app, arguments] { return predict(*app, *arguments); }};
}

}  // namespace penstock::cli
