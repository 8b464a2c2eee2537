#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "answers/score_report.h"
#include "commands/commands.h"
#include "commands/train/files.h"
#include "commands/train/options.h"
#include "commands/train/summary.h"
#include "options/data_options.h"
#include "options/load_model.h"
#include "options/options.h"
#include "penstock/penstock.h"
#include "penstock/sources.h"
#include "penstock/stop.h"
#include "report/outcome.h"
#include "terminal/describe.h"
#include "terminal/progress.h"
#include "terminal/signals.h"
#include "terminal/terminal.h"
#include "terminal/units.h"

namespace penstock::cli {
namespace {

/// Where the model cannot be written, as on a full disk, there may be room in a while: as long as training took, it is
/// worth to wait for, up to ten minutes. Throws Error(io_failure) after that.
void save_patiently(const Model& model, const std::string& path, const History& history, double seconds_of_training) {
  constexpr double least = 5.0, most = 600.0;
  const double patience = std::clamp(seconds_of_training, least, most);
  const auto begin = std::chrono::steady_clock::now();
  for (bool first = true;; first = false) {
    try {
      return save_model(model, path, history);
    } catch (const Error& error) {
      const double waited = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
      if (error.code() != ErrorCode::io_failure || waited >= patience || interrupted()) throw;
      if (first) {
        say(fmt::format("warning: {}; trying again for {}: make room, or end this with Ctrl-C\n",
                        printable(error.what()), clock_time(patience)));
      }
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(500));
  }
}

Score score_held_out_series(const RunStart& run, const Model& model, reporting::ForecastTraces& trace) {
  Score score;
  score.groups = score_groups_held_out(model, *run.data.dataset, run.options.execution,
                                       [&](const auto&... row) { trace.add(row...); });
  score.columns = score_all(score.groups);
  if (model.data().series.groups.empty()) score.groups.clear();
  return score;
}

std::string held_out_text(const Dataset& data) {
  constexpr Index piece = 1 << 16;
  std::string text;
  Example part;
  for (Index i = 0; data.validation(i, 1, piece, part); ++i) text.append(part.labels.begin(), part.labels.end());
  return text;
}

std::optional<Score> score_held_out_text(const Dataset& data, const Evaluation& validation) {
  if (data.description().vocabulary != 256) return std::nullopt;  // compressors know no tokens
  Score score;
  score.bits_per_byte = validation.bits_per_step;
  score.bytes = validation.scored;
  constexpr Index most = 64 << 20;  // beyond that nobody waits for a compressor
  if (validation.scored <= most) score.compressors = compress(held_out_text(data));
  return score;
}

/// The errors of a trained model on what was held out, in the data's own units, beside those of baselines; nothing for
/// built-in tasks, whose loss says it. Of a series, `trace` takes the forecasts.
std::optional<Score> score_held_out(const RunStart& run, const Model& model, const Evaluation& validation,
                                    std::optional<reporting::ForecastTraces>& trace) {
  switch (run.data.kind) {
    case DataKind::series:
      return score_held_out_series(run, model, trace.emplace());
    case DataKind::labelled:
    case DataKind::labelled_texts:
      return score_held_out_labels(model, *run.data.dataset, run.options.execution);
    case DataKind::text:
      return score_held_out_text(*run.data.dataset, validation);
    case DataKind::sound:
      return score_held_out_sound(model, *run.data.dataset, run.options.execution);
    case DataKind::task:
      break;
  }
  return std::nullopt;
}

class TrainingRun {
 public:
  TrainingRun(const CLI::App& app, TrainArguments arguments) : app_(app), arguments_(std::move(arguments)) {}

  int run() {
    arguments_.data.source = arguments_.data.sources.empty() ? "" : arguments_.data.sources.front();
    require_given(arguments_.data.source, "DATA");
    read_custom_cell(arguments_.model);
    if (!arguments_.data.bytes) refuse_models(arguments_.data.sources);
    static_cast<void>(utc_time());  // which the model will note: a wrong one is said before training
    kind_ = kind_of(arguments_.data);
    refuse_foreign_options(app_, arguments_.data, kind_);
    require_sources();
    own_checkpoint_ = arguments_.fit.train.checkpoint_path.empty();
    arguments_.complete_request(app_);
    files_.emplace(arguments_);
    if (resumes(arguments_.fit)) resumed_ = Model::load(arguments_.fit.train.checkpoint_path).spec();
    if (!arguments_.init.empty()) start_from_origin();
    SeriesChoices& series = arguments_.data.choices;
    if (arguments_.model.no_changes || (resumed_ && !resumed_->from_last)) series.from_last = false;
    if (arguments_.model.no_linear || (resumed_ && !resumed_->corrects_branch())) series.autoregression = false;
    arguments_.data.series.threads = arguments_.fit.train.execution.threads;
    open();
    plan_ = complete(*data_.dataset, arguments_.fit);
    resolve_device();
    catch_interrupts();
    Model model = make_model();
    FitResult result = fit_all(model);
    result.gave_up = result.gave_up.text(option_words(app_));
    if (result.interrupted && !plan_.trains_layers()) return interrupted_status();  // a fit in closed form is not kept
    save_patiently(model, arguments_.output, history(model, result), result.last.seconds);
    if (!result.interrupted) drop_own_checkpoint();
    if (!plan_.trains_layers()) record_untrained(model);
    if (result.scored()) record_outcome(model, result);
    print(model, result);
    if (!result.gave_up.empty()) throw Error(ErrorCode::numerical, result.gave_up);
    if (!result.checkpoint_error.empty() && (result.interrupted || !own_checkpoint_)) {
      throw Error(ErrorCode::io_failure, result.checkpoint_error);
    }
    return result.interrupted ? interrupted_status() : 0;
  }

 private:
  /// Trains, finishes and scores a model. After an interrupt the model is as trained so far, which --resume
  /// continues.
  FitResult fit_all(Model& model) {
    measures_ = measures_of();
    const RunStart start{arguments_, plan_.options, data_};
    if (plan_.filters_alone && !arguments_.quiet) say(introduction_of_filters(start, given_for_layers(app_)));
    if (plan_.linear_alone && !arguments_.quiet) say(introduction_of_linear(start, model));
    FitCallbacks callbacks;
    callbacks.begin = [&](const Model& member, Index number, TrainOptions& options) {
      return begin(member, number, options);
    };
    callbacks.scored = [&](const Model& scored, const FitResult& result) {
      score_ = score_held_out(start, scored, *result.validation, trace_);
    };
    callbacks.stop = interrupted;
    FitResult result = fit(model, *data_.dataset, plan_, callbacks);
    if (!report_) return result;
    mean_rate_ = report_->mean_rate();
    step_rate_ = report_->step_rate();
    report_.reset();
    return result;
  }

  /// Reads the data, and shows meanwhile that it does.
  void open() {
    const WorkProgress shown(arguments_.data.source, arguments_.quiet);
    data_ = open_data(app_, arguments_.data, kind_, arguments_.fit.train.seed);
    linear_forecast(*data_.dataset);  // fits it, which takes as long again
  }

  /// Reports a mistyped data path before an existing output file.
  void require_sources() const {
    if (kind_ == DataKind::task) return;
    for (const std::string& source : files_of(arguments_.data.sources)) {
      if (source == "-" || std::filesystem::exists(source)) continue;
      fail(ErrorCode::io_failure, "cannot read '{}': No such file or directory{}", printable(source),
           address_advice(source, false));
    }
  }

  /// The spec of a checkpoint, which may have other dropout and lags, counts more.
  void start_from_origin() {
    origin_.emplace(app_, arguments_.init);
    arguments_.data.origin = &origin_->model().data();
    if (!resumed_) resumed_ = origin_->model().spec();
  }

  History history(const Model& model, const FitResult& result) const {
    History history{.trained = utc_time(),
                    .data = arguments_.data.source,
                    .score = {},
                    .version = PENSTOCK_VERSION,
                    .steps = result.last.step,
                    .origin = origin_ ? origin_->describe() : "",
                    .weight = result.weight(),
                    .options = describe_options(plan_, model.data().task),
                    .scores = {}};
    if (arguments_.data.sources.size() > 1) {
      history.data += fmt::format(" and {} more", arguments_.data.sources.size() - 1);
    }
    history.data += ": " + data_.summary;
    if (!result.scored()) return history;
    history.score = validation_text(result, measures_, kind_);
    if (!score_) return history;
    if (const std::string headline = score_headline(model, *score_); !headline.empty())
      history.score += "; " + headline;
    Json scores = score_json(model, *score_);
    scores.erase("groups");  // there may be thousands
    history.scores = scores.dump(-1, ' ', false, Json::error_handler_t::replace);
    return history;
  }

  /// Returns the description of the run for the metrics, beside its numbers: all that `penstock report` needs.
  std::string metrics_note(const Model& model) const {
    return Json{{"model", arguments_.output},
                {"data", arguments_.data.sources},
                {"summary", data_.summary},
                {"description", describe_model(model)},
                {"task", to_string(model.data().task)},
                {"loss_name", measures_.loss_name},
                {"unit", measures_.unit},
                {"started", utc_time()},
                {"version", PENSTOCK_VERSION}}
        .dump(-1, ' ', false, Json::error_handler_t::replace);
  }

  /// Appends the results of the finished model to the metrics.
  void record_outcome(const Model& model, const FitResult& result) const {
    if (plan_.options.metrics_path.empty() || !result.metrics_error.empty()) return;
    std::vector<Json> records;
    if (trace_ && score_) records = trace_->records(score_->groups);
    if (const std::string weight = result.weight(); !weight.empty()) {
      records.push_back({{"kind", "weight"}, {"text", weight}, {"layers_count", result.finished.layers_count()}});
    }
    if (score_) records.push_back(reporting::score_record(model, *score_, arguments_.data.source));
    if (model.data().task == Task::language && reads_bytes(model))
      records.push_back(reporting::sample_record(model, plan_.options.execution));
    reporting::append_records(plan_.options.metrics_path, records);
  }

  /// Records a run without steps in the metrics.
  void record_untrained(const Model& model) const {
    if (plan_.options.metrics_path.empty()) return;
    Json record = {{"kind", "run"}, {"parameters", model.parameter_count()}};
    record.update(Json::parse(metrics_note(model)));
    reporting::append_records(plan_.options.metrics_path, {record});
  }

  /// Decides what --device auto leaves open, and says so.
  void resolve_device() {
    const std::string why = penstock::resolve_device(plan_, origin_ ? origin_->model().spec() : spec(), *data_.dataset);
    if (why.empty() || arguments_.quiet) return;
    say(fmt::format("device {}: {}\n", to_string(plan_.options.execution.device), printable(why)));
  }

  /// Returns the spec of a fresh model if layers are not trained, else of the one that training continues.
  ModelSpec spec() const {
    ModelSpec result = suggest_spec(*data_.dataset, arguments_.model.cell.value_or(""), plan_.options.execution.device);
    result.from_last = data_.dataset->description().forecasts_an_input();
    use_linear_forecast(result, *data_.dataset);
    if (resumed_ && !plan_.filters_alone) result = *resumed_;
    arguments_.model.apply(result);
    return result;
  }

  /// The model to train; where filters answer alone, they take the place of a fresh one.
  Model make_model() const {
    if (origin_ && !plan_.filters_alone) {
      return continue_from(origin_->model(), *data_.dataset, arguments_.model.dropout.value_or(resumed_->dropout));
    }
    return new_model(spec(), *data_.dataset, plan_.options.seed, arguments_.model.initial());
  }

  Measures measures_of() const {
    Measures measures{.task = data_.dataset->description().task};
    if (measures.task == Task::forecast) {
      measures.loss_name = choice_of(plan_.options.loss == Loss::automatic ? Loss::mse : plan_.options.loss).name;
    }
    if (measures.task == Task::language && data_.dataset->description().vocabulary != 256) measures.unit = "tokens";
    if (measures.task != Task::language) {
      measures.unit = kind_ == DataKind::task || kind_ == DataKind::labelled_texts ? "time steps"
                      : kind_ == DataKind::sound                                   ? "samples"
                                                                                   : "rows";
    }
    return measures;
  }

  /// Shows the training of a model that begins.
  TrainCallbacks begin(const Model& model, Index number, TrainOptions& options) {
    ProgressReport& report = report_.emplace(measures_, arguments_.quiet);
    TrainCallbacks callbacks;
    // Not before the first step: what is wrong with the options shows until then, and is then all there is to read.
    callbacks.progress = [&, number, introduced = false](const Progress& progress) mutable {
      if (!introduced && number == 0 && !arguments_.quiet) {
        say(introduction({arguments_, options, data_}, model, origin_ ? origin_->describe() : "", plan_.sized));
      }
      if (!introduced && plan_.request.seeds > 1 && !arguments_.quiet) {
        say(fmt::format("seed   {}, {} of {}\n", options.seed, number + 1, plan_.request.seeds));
      }
      introduced = true;
      Progress shown = progress;
      shown.warning = progress.warning.text(option_words(app_));
      report.step(shown);
    };
    callbacks.validation = [&](const Progress& progress, const Evaluation& evaluation) {
      report.validation(progress, evaluation);
    };
    options.metrics_note = metrics_note(model);
    return callbacks;
  }

  /// A checkpoint that nobody asked for is there for runs that did not reach their end.
  void drop_own_checkpoint() const {
    std::error_code ignored;
    for (Index i = 0; own_checkpoint_ && i < plan_.request.seeds; ++i) {
      std::filesystem::remove(member_path(plan_.options.checkpoint_path, i), ignored);
    }
  }

  void print(const Model& model, const FitResult& result) const {
    const RunEnd end{{arguments_, plan_.options, data_}, model, result, measures_, mean_rate_, step_rate_, score_};
    if (arguments_.quiet && !arguments_.json) return;
    print_answer(arguments_.json ? json_line(run_json(end)) : run_summary(end));
  }

  const CLI::App& app_;
  TrainArguments arguments_;
  FitPlan plan_;
  DataKind kind_ = DataKind::text;
  OpenedData data_;
  std::optional<ModelSpec> resumed_;
  std::optional<Score> score_;
  std::optional<reporting::ForecastTraces> trace_;  // of the rows that were held out
  Measures measures_;
  std::optional<ProgressReport> report_;      // of the model that trains
  double mean_rate_ = 0.0, step_rate_ = 0.0;  // time steps of all sequences, and optimiser steps, a second
  bool own_checkpoint_ = false;
  std::optional<TrainFiles> files_;
  std::optional<TrainOrigin> origin_;  // of --init
};

}  // namespace

Command add_train(CLI::App& program) {
  CLI::App* app = program.add_subcommand("train", "Train a model on a text, a CSV file, sound or a built-in task");
  auto arguments = std::make_shared<TrainArguments>();
  Options options(*app);
  options.positional("DATA", arguments->data.sources,
                     "Texts, token ids or CSV files, plain or compressed with gzip or zstd; folders and patterns of "
                     "them; .ts files of labelled "
                     "series; '-' for standard input (see --as); or a built-in task: " +
                         fmt::format("task:{}", fmt::join(task_names(), ", task:")));
  add_train_options(options, *arguments);
  options.finish(
      "  penstock train book.txt --seconds 90 --output book.safetensors\n"
      "  penstock train co2.csv --columns co2 --horizon 52\n"
      "  penstock train shops.csv --group shop --known promotion  # many series\n"
      "  penstock train gestures.csv --epochs 50  # columns sequence, label, ...\n"
      "  penstock train in.wav --target out.wav --cell lstm --blocks 1\n"
      "  penstock train task:parity --cell lstm --steps 3000\n"
      "  penstock train book.txt --resume         # after Ctrl-C");
  return {app, [app, arguments] { return TrainingRun(*app, *arguments).run(); }};
}

}  // namespace penstock::cli
