#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "answers/score_report.h"
#include "bench/suite/child_process.h"
#include "commands/commands.h"
#include "options/data_options.h"
#include "options/load_model.h"
#include "options/options.h"
#include "options/output_file.h"
#include "penstock/penstock.h"
#include "report/outcome.h"
#include "report/page.h"
#include "report/run.h"
#include "report/run_charts.h"
#include "terminal/signals.h"
#include "terminal/terminal.h"
#include "terminal/units.h"

namespace penstock::cli {
namespace reporting {
namespace {

struct ReportArguments {
  std::vector<std::string> runs;
  std::string output = "report.html", data, png, python = "python3";
  Scoring scoring;
  Index skip = 0;
  TableOptions table;
  bool force = false, json = false, allow_negative = false;
};

bool is_model(const std::string& path) {
  const auto kind = inspect_model_file(path).kind;
  return kind == ModelFile::Kind::model || kind == ModelFile::Kind::checkpoint;
}

/// A file that metrics name: as the run saw it, or where it lies now beside the metrics.
std::string find_file(const std::string& name, const std::string& metrics) {
  if (std::filesystem::exists(name)) return name;
  const auto neighbour = std::filesystem::path(metrics).parent_path() / std::filesystem::path(name).filename();
  if (!name.empty() && std::filesystem::exists(neighbour)) return neighbour.string();
  fail(ErrorCode::io_failure,
       "{}: its model '{}' was found neither here nor in the folder of the metrics; give the model itself as RUN",
       printable(metrics), printable(name));
}

class ReportMaker {
 public:
  ReportMaker(const CLI::App& app, ReportArguments arguments) : app_(app), arguments_(std::move(arguments)) {}

  int run() {
    check_arguments();
    for (const std::string& path : arguments_.runs) runs_.push_back(open_run(path));
    name_runs(runs_);
    training_ = training_charts(runs_);
    for (const Run& run : runs_) forecasts_.push_back(forecast_charts(run));
    if (!arguments_.png.empty()) check_clash(input_files("RUN", arguments_.runs));
    catch_interrupts();  // no half of a page shall stay behind
    write_page();
    if (!arguments_.png.empty()) draw();
    say_result();
    return 0;
  }

 private:
  void check_arguments() const {
    constexpr std::size_t most = 16;
    require_given(arguments_.runs.empty() ? "" : arguments_.runs.front(), "RUN");
    if (arguments_.runs.size() > most) {
      fail(ErrorCode::invalid_argument, "at most {} runs can be told apart on a page, not {}", most,
           arguments_.runs.size());
    }
    if (arguments_.skip < 0) {
      fail(ErrorCode::invalid_argument, "--skip must not be negative, not {}", arguments_.skip);
    }
    if (arguments_.data.empty()) {
      refuse_given(
          app_, {"--skip", "--label-column", "--sequence-column", "--delimiter", "--decimal", "--missing", "--undated"},
          "is for the data of --data");
    }
    check_clash(input_files("RUN", arguments_.runs));
    if (arguments_.output == "-") return;
    check_writable_file("--output", arguments_.output);
  }

  /// Refuses to write over what the page is made of, among it the model that metrics name.
  void check_clash(std::vector<InputFile> inputs) const {
    inputs.push_back({"--data", arguments_.data});
    std::vector<OutputFile> outputs = {{"--output", arguments_.output, FileKind::report}};
    for (const Chart& chart : all_charts()) outputs.push_back({"--png", picture_path(chart), FileKind::picture});
    check_files(std::move(inputs), outputs, arguments_.force);
  }

  Run open_run(const std::string& path) const {
    Run run;
    const bool model_itself = path != "-" && is_model(path);
    if (!model_itself) run = read_run(path);
    run.path = path;
    if (model_itself || !arguments_.data.empty()) {
      add_model(run, model_itself ? path : find_file(text_of(run.about, "model"), path));
    }
    return run;
  }

  /// Adds a model. Its results on --data replace those noted at the end of its training.
  void add_model(Run& run, const std::string& path) const {
    check_clash({{"the model of RUN", path}});
    std::optional<History> history;
    Model model = Model::load(path, history);
    if (arguments_.skip > 0) require_task(model, path, Task::forecast, "--skip");
    if (!arguments_.scoring.label_column.empty()) require_task(model, path, Task::classify, "--label-column");
    if (arguments_.allow_negative) model.allow_negative();
    if (run.about.empty()) about_model(run, model, history);
    std::vector<Json> records;
    if (!arguments_.data.empty()) {
      records = score_records(model, path);
      run.score = nullptr;
      run.scored_on = arguments_.data;
      run.forecasts.clear();
    }
    if (model.data().task == Task::language && reads_bytes(model) && run.samples.empty()) {
      records.push_back(sample_record(model, arguments_.scoring.execution));
    }
    // By way of text, which makes sure that it is UTF-8.
    for (const Json& record : records) add_record(run, Json::parse(json_line(record)), printable(path));
  }

  /// Describes a run by the file of its model, if there are no metrics of its training.
  static void about_model(Run& run, const Model& model, const std::optional<History>& history) {
    run.about = {{"task", to_string(model.data().task)}, {"description", describe_model(model)}};
    if (!history) return;
    run.about["summary"] = printable(history->data);
    run.about["trained"] = printable(history->trained);
    run.about["steps"] = history->steps;
    run.about["score"] = printable(history->score);
    run.weight = printable(history->weight);
    run.layers_count =
        !run.weight.starts_with("the linear forecast alone") && !run.weight.starts_with("the filters alone");
  }

  std::vector<Json> score_records(const Model& model, const std::string& path) const {
    if (reads_task_only(model)) {
      fail(ErrorCode::invalid_argument, "--data: {} is a model of a built-in task, which reads no file",
           printable(path));
    }
    ForecastTraces trace;
    Scoring scoring = arguments_.scoring;
    scoring.rows.format = arguments_.table.row_format();
    scoring.series.lead = arguments_.skip > 0 ? arguments_.skip : model.spec().branch_fields().lags;
    scoring.series.watch = [&](const auto&... row) { trace.add(row...); };
    const Score score = score_file(model, arguments_.data, scoring);
    std::vector<Json> records = trace.records(score.groups);
    records.push_back(score_record(model, score, arguments_.data));
    return records;
  }

  void write_page() {
    const std::string text = page(runs_, training_, forecasts_);
    Output output(arguments_.output);
    output.write(text);
    output.finish();
    size_ = output.size();
  }

  std::string picture_path(const Chart& chart) const {
    return arguments_.png.empty() ? "" : fmt::format("{}/{}.png", arguments_.png, file_name(chart.id));
  }

  std::vector<Chart> all_charts() const {
    std::vector<Chart> all = training_;
    for (const auto& charts : forecasts_) all.insert(all.end(), charts.begin(), charts.end());
    return all;
  }

  /// Each chart is drawn by matplotlib in one Python, and written here.
  void draw() {
    std::error_code error;
    std::filesystem::create_directories(arguments_.png, error);
    if (error) {
      fail(ErrorCode::io_failure, "--png {}: {}", printable(arguments_.png),
           why_not_written(arguments_.png, error.value()));
    }
    bench::ChildProcess python({arguments_.python, "-c", draw_text}, {}, "/dev/null", interrupted);
    for (const Chart& chart : all_charts()) {
      if (interrupted()) throw Error(ErrorCode::interrupted, "interrupted");
      pictures_.push_back(picture_path(chart));
      write_file(pictures_.back(), picture_of(chart, python));
    }
  }

  std::string picture_of(const Chart& chart, bench::ChildProcess& python) const {
    const std::string line = json_line(chart_json(chart));
    std::string answer;
    try {
      answer = python.ask(line.substr(0, line.size() - 1));
    } catch (const Error& error) {
      if (error.code() == ErrorCode::interrupted) throw;
      answer = fmt::format("'{}' cannot be started, or ended without an answer", printable(arguments_.python));
    }
    try {
      return bench::bytes_of(answer);
    } catch (const Error& error) {
      fail(ErrorCode::io_failure, "--png: {}", printable(error.what()));
    }
  }

  /// Letters, digits and '-' of it: names of runs and columns may hold anything.
  static std::string file_name(const std::string& id) {
    std::string name;
    for (const char c : id) {
      const bool plain = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9');
      name += plain ? c : '-';
    }
    return name;
  }

  void say_result() const {
    const auto model =
        std::ranges::find_if(runs_, [](const Run& run) { return run.path != "-" && is_model(run.path); });
    if (arguments_.data.empty() && model != runs_.end()) {
      say(fmt::format(
          "note: {} is a model, so the report has no scores and no forecasts of it; --data FILE adds them\n",
          printable(model->path)));
    }
    Output output;
    if (arguments_.json && arguments_.output != "-") {
      Json names = Json::array();
      for (const Run& run : runs_) names.push_back(run.name);
      output.write(json_line({{"output", arguments_.output}, {"bytes", size_}, {"runs", names}, {"png", pictures_}}));
    } else if (arguments_.output != "-") {
      output.write(fmt::format("saved  {} ({}), {} run{}\n", printable(arguments_.output),
                               byte_size(static_cast<double>(size_)), runs_.size(), runs_.size() == 1 ? "" : "s"));
      if (!pictures_.empty())
        output.write(fmt::format("saved  {} pictures in {}\n", pictures_.size(), printable(arguments_.png)));
    }
    output.flush();
  }

  const CLI::App& app_;
  ReportArguments arguments_;
  std::vector<Run> runs_;
  std::vector<Chart> training_;
  std::vector<std::vector<Chart>> forecasts_;  // of each run
  std::size_t size_ = 0;
  std::vector<std::string> pictures_;
};

}  // namespace
}  // namespace reporting

Command add_report(CLI::App& program) {
  CLI::App* app = program.add_subcommand("report", "Write an HTML page on training runs: curves, scores, forecasts");
  auto arguments = std::make_shared<reporting::ReportArguments>();
  Options options(*app);
  options.positional("RUN", arguments->runs,
                     "A file of 'penstock train --metrics FILE', also while the run goes on; or a model");
  options.group("Files");
  options.add("-o,--output", arguments->output, "FILE",
              "HTML page to write; it needs only a browser. '-': standard output");
  options.add("--png", arguments->png, "FOLDER", "Also write every chart as a picture, with matplotlib");
  options.add("--python", arguments->python, "PROGRAM", "The Python that has matplotlib installed");
  options.flag("--force", arguments->force, "Overwrite a file even if it is not a report");
  options.flag("--json", arguments->json, "Describe the report in one JSON object");
  options.group("Scores on other data");
  options.add("--data", arguments->data, "FILE", "Score the models on this file [the hold-out set of training]");
  options.add("--skip", arguments->skip, "N", "A series: read the first N rows without scoring them");
  add_scoring_options(options, arguments->scoring, arguments->table, arguments->allow_negative);
  options.device(arguments->scoring.execution);
  options.finish(
      "  penstock train co2.csv --horizon 12 --metrics co2.jsonl\n"
      "  penstock report co2.jsonl                           # report.html\n"
      "  penstock report gru.jsonl lstm.jsonl -o cells.html  # side by side\n"
      "  penstock report co2.jsonl --png pictures --python venv/bin/python\n"
      "  penstock report co2.safetensors --data new.csv      # other data");
  return {app, [app, arguments] { return reporting::ReportMaker(*app, *arguments).run(); }};
}

}  // namespace penstock::cli
