#include <fmt/format.h>

#include <memory>
#include <optional>
#include <string>

#include "answers/score_report.h"
#include "answers/step_answers.h"
#include "commands/commands.h"
#include "options/data_options.h"
#include "options/device_choice.h"
#include "options/load_model.h"
#include "options/options.h"
#include "penstock/penstock.h"
#include "terminal/terminal.h"
#include "terminal/units.h"

namespace penstock::cli {
namespace {

struct EvaluateArguments {
  std::string model;
  std::vector<std::string> data;
  Scoring scoring;
  TableOptions table;
  std::optional<Index> skip;
  std::vector<double> quantiles;
  bool json = false, allow_negative = false;
  bool automatic = false;  // of --device
};

/// Rows that are not scored: in the first ones a linear forecast has not seen as much as it reads.
Index lead_in(const Model& model, const EvaluateArguments& arguments) {
  return arguments.skip.value_or(model.spec().branch_fields().lags);
}

bool is_empty(const Score& score) {
  return score.columns.empty() && score.bytes == 0 && (!score.labels || score.labels->scored == 0);
}

/// Why a file has no score, and what gives it one.
std::string why_nothing(const Model& model, const EvaluateArguments& arguments, const Score& score) {
  if (model.data().task != Task::forecast) return "";
  const std::string rows =
      fmt::format("{} has {}", model.data().series.group_column.empty() ? "it" : "its longest series",
                  counted(score.longest, "row"));
  if (score.longest <= 1) return fmt::format(": {}, and forecasts are compared with later ones", rows);
  const Index lead = lead_in(model, arguments);
  const bool by_itself = lead > 0 && !arguments.skip;
  return fmt::format("{}{}: {}{}", lead > 0 ? fmt::format(" after row {}", lead) : "",
                     by_itself ? ", because the linear forecast reads that many" : "",
                     score.longest > lead ? "values to compare forecasts with are missing" : rows,
                     by_itself ? "; --skip 0 scores all rows" : "");
}

int evaluate_files(const CLI::App& app, EvaluateArguments arguments) {
  require_given(arguments.model, "MODEL");
  require_data("evaluate", arguments.model, arguments.data);
  Model model = load_model("evaluate", arguments.model, arguments.data);
  if (arguments.allow_negative) model.allow_negative();
  arguments.data = files_of(arguments.data);
  if (app.count("--skip") > 0) require_task(model, arguments.model, Task::forecast, "--skip");
  if (app.count("--label-column") > 0) require_task(model, arguments.model, Task::classify, "--label-column");
  if (app.count("--sequence-column") > 0) require_task(model, arguments.model, Task::classify, "--sequence-column");
  refuse_foreign_options(app, model, arguments.model);
  if (arguments.skip.value_or(0) < 0) {
    fail(ErrorCode::invalid_argument, "--skip must not be negative, not {}", *arguments.skip);
  }
  check_quantiles(model, arguments.model, arguments.quantiles);
  resolve_device(arguments.automatic, arguments.scoring.execution, model, reading_of(model, arguments.data));
  if (reads_task_only(model)) {
    fail(ErrorCode::invalid_argument, "{} is a model of a built-in task: 'penstock predict' scores those",
         printable(arguments.model));
  }
  arguments.scoring.rows.format = arguments.table.row_format();
  arguments.scoring.series.lead = lead_in(model, arguments);
  if (!arguments.quantiles.empty()) arguments.scoring.series.levels = arguments.quantiles;
  Output output;
  Json all = Json::array();
  for (const std::string& path : arguments.data) {
    const Score score = score_file(model, path, arguments.scoring);
    if (is_empty(score)) {
      fail(ErrorCode::bad_input, "{}: there is nothing to score{}", printable(path),
           why_nothing(model, arguments, score));
    }
    Json entry = {{"file", path}};
    entry.update(score_json(model, score));
    all.push_back(std::move(entry));
    const Index lags = model.spec().branch_fields().lags;
    if (!arguments.json && lags > 0 && !arguments.skip) {
      output.write(fmt::format("the first {} read but not scored (--skip 0 scores {} too)\n",
                               lags == 1 ? "row is" : with_commas(lags) + " rows are", lags == 1 ? "it" : "them"));
    }
    if (!arguments.json)
      output.write(score_lines(model, score, arguments.data.size() > 1 ? printable(path) + "  " : ""));
  }
  if (arguments.json) output.write(json_line({{"files", all}}));
  output.flush();
  return 0;
}

}  // namespace

Command add_evaluate(CLI::App& program) {
  CLI::App* app =
      program.add_subcommand("evaluate", "Score a model on data with known answers, compared with baselines");
  auto arguments = std::make_shared<EvaluateArguments>();
  Options options(*app);
  options.positional("MODEL", arguments->model, "A trained model or a checkpoint");
  options.positional("DATA", arguments->data,
                     "Data that the model was not trained on: texts, a CSV file of a series, or labelled sequences");
  options.group("Options");
  options.add("--skip", arguments->skip, "N",
              "A series: read the first N rows without scoring them [as many as the linear forecast reads]");
  options.add("--quantiles", arguments->quantiles, "A,B",
              "A series: quantiles of the forecasts to score, such as 0.05,0.5,0.95 [0.1,0.5,0.9]");
  add_scoring_options(options, arguments->scoring, arguments->table, arguments->allow_negative);
  options.device(arguments->scoring.execution, &arguments->automatic);
  options.flag("--json", arguments->json, "Print one JSON object");
  options.finish(
      "  penstock evaluate co2.safetensors co2.csv --skip 1827  # against drift\n"
      "  penstock evaluate gestures.safetensors test.csv   # confusion matrix\n"
      "  penstock evaluate book.safetensors chapter1.txt        # against gzip");
  return {app, [app, arguments] { return evaluate_files(*app, *arguments); }};
}

}  // namespace penstock::cli
