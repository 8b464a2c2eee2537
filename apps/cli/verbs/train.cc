#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <iterator>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "answers/score_report.h"
#include "options/data_options.h"
#include "options/device_choice.h"
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
#include "verbs/train/arguments.h"
#include "verbs/train/files.h"
#include "verbs/train/score.h"
#include "verbs/train/search.h"
#include "verbs/train/summary.h"
#include "verbs/verbs.h"

namespace penstock::cli {
namespace {

// clang-format off
constexpr const char* layer_options[] = {
    "--cell", "--width", "--blocks", "--hidden-size", "--heads", "--conv", "--ffn", "--norms", "--dropout",
    "--steps", "--seconds", "--epochs", "--patience", "--keep-last", "--batch", "--learning-rate",
    "--weight-decay", "--warmup", "--clip", "--rollbacks", "--initial-weights", "--chrono", "--optimizer",
    "--validate-every", "--validate-steps", "--seeds", "--tensorboard"};
// clang-format on

class TrainingRun {
 public:
  TrainingRun(const CLI::App& app, TrainArguments arguments)
      : app_(app), arguments_(std::move(arguments)), options_(arguments_.train) {}

  int run() {
    arguments_.data.source = arguments_.data.sources.empty() ? "" : arguments_.data.sources.front();
    require_given(arguments_.data.source, "DATA");
    read_own_cell(arguments_.model);
    if (!arguments_.data.bytes) refuse_models(arguments_.data.sources);
    static_cast<void>(utc_time());  // which the model will note: a wrong one is said before training
    kind_ = kind_of(arguments_.data);
    refuse_foreign_options(app_, arguments_.data, kind_);
    require_sources();
    own_checkpoint_ = options_.checkpoint_path.empty();
    if (own_checkpoint_) options_.checkpoint_path = arguments_.output + ".checkpoint";
    files_.emplace(arguments_, options_.checkpoint_path);
    if (resumes()) resumed_ = Model::load(options_.checkpoint_path).spec();
    if (!arguments_.init.empty()) start_from_origin();
    SeriesChoices& series = arguments_.data.choices;
    if (arguments_.model.no_changes || (resumed_ && !resumed_->from_last)) series.from_last = false;
    if (arguments_.model.no_linear || (resumed_ && !resumed_->corrects_branch())) series.autoregression = false;
    arguments_.data.series.threads = options_.execution.threads;
    open();
    for (std::string& finding : data_.reading) finding = with_options(app_, finding);
    filters_alone_ = kind_ == DataKind::labelled && !arguments_.model.no_filters && !arguments_.resume &&
                     filters_stand_alone(*data_.dataset);
    linear_alone_ = forecast_stands_alone();
    check_search();
    complete_options();
    if (trains_layers()) {
      const Model model = make_model();
      check_seeds(model);
      settle_device(arguments_.automatic, options_.execution, model, work(), arguments_.quiet);
      if (options_.execution.device.is_cuda()) complete_options();  // which depend on it
    }
    catch_interrupts();
    if (arguments_.search && !search_first()) return interrupted_status();
    Model model = make_model();
    FitResult result = fit_all(model);
    result.gave_up = with_options(app_, result.gave_up);
    if (result.interrupted && !trains_layers()) return interrupted_status();  // a fit in closed form is not kept
    save_patiently(model, arguments_.output, history(model, result), result.last.seconds);
    if (!result.interrupted) drop_own_checkpoint();
    if (!trains_layers()) record_untrained(model);
    if (result.scored()) record_outcome(model, result);
    print(model, result);
    if (!result.gave_up.empty()) throw Error(ErrorCode::numerical, result.gave_up);
    if (!result.checkpoint_error.empty() && (result.interrupted || !own_checkpoint_)) {
      throw Error(ErrorCode::io_failure, result.checkpoint_error);
    }
    return result.interrupted ? interrupted_status() : 0;
  }

 private:
  bool trains_layers() const { return !filters_alone_ && !linear_alone_; }

  /// Trains, finishes and scores a model. After an interrupt the model is as trained so far, which --resume continues.
  FitResult fit_all(Model& model) {
    measures_ = measures_of();
    const RunStart start{arguments_, options_, data_};
    if (filters_alone_ && !arguments_.quiet) say(introduction_of_filters(start, given_for_layers()));
    if (linear_alone_ && !arguments_.quiet) say(introduction_of_linear(start, model));
    FitCallbacks callbacks;
    callbacks.begin = [&](const Model& member, Index number, TrainOptions& options) {
      return begin(member, number, options);
    };
    callbacks.scored = [&](const Model& scored, const FitResult& result) {
      score_ = score_held_out({arguments_, options_, data_}, scored, *result.validation, trace_);
    };
    callbacks.stop = interrupted;
    const FitOptions how{
        .seeds = arguments_.seeds,
        .resume = resumes(),  // not after a search, which has trained nothing to go on from
        .layers = trains_layers(),
        .origin = origin_ ? &origin_->model() : nullptr,
        .initial = arguments_.model.initial(),
        .finish = {.shrink = !arguments_.keep_last, .filters = !arguments_.model.no_filters, .seed = options_.seed}};
    FitResult result = fit(model, *data_.dataset, options_, how, callbacks);
    if (!report_) return result;
    mean_rate_ = report_->mean_rate();
    step_rate_ = report_->step_rate();
    report_.reset();
    return result;
  }

  /// Reads the data, and shows meanwhile that it does.
  void open() {
    ProgressLine line(arguments_.quiet);
    const Stoppable watched([&] {
      if (line.due()) {
        line.draw(fmt::format("reading {}: {}", printable(arguments_.data.source), clock_time(line.seconds())));
      }
      return false;  // a signal ends the program, as there is nothing to save yet
    });
    data_ = open_data(arguments_.data, kind_, options_.seed);
    linear_forecast(*data_.dataset);  // fits it, which takes as long again
  }

  /// A slip in the name of the data is said before a model that is there already.
  void require_sources() const {
    if (kind_ == DataKind::task) return;
    for (const std::string& source : arguments_.data.sources) {
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

  void check_search() const {
    for (const char* const other : {"--search", "--init"}) {
      if (arguments_.model.initial() == Initialisation{} || app_.count(other) == 0) continue;
      fail(ErrorCode::invalid_argument,
           "{} chooses the weights that a run starts from: leave out --initial-weights and --chrono", other);
    }
    if (arguments_.search && !arguments_.init.empty()) {
      throw Error(ErrorCode::invalid_argument, "--search cannot be combined with --init, which determines the model");
    }
    if (arguments_.search && filters_alone_) {
      fail(ErrorCode::invalid_argument,
           "--search looks for layers, and a hold-out set of {} is too small to show their gain over filters: "
           "--no-filters searches for layers alone",
           counted(data_.dataset->held_out_steps(), "sequence"));
    }
    if (arguments_.resume && !resumed_ && !arguments_.search) {
      fail(ErrorCode::invalid_argument, "--resume: {} is of a run with --search",
           search_record(options_.checkpoint_path));
    }
  }

  /// What the search finds becomes the options of the run; false if somebody ended it before.
  bool search_first() {
    const ModelSpec first = spec_of({});
    search_ = search_model(first, *data_.dataset, options_, arguments_);
    if (search_->interrupted) {
      if (!arguments_.quiet) say("stop   the same command with --resume continues the search\n");
      return false;
    }
    const SearchChoice& best = search_->best;
    arguments_.model.cell = best.cell;
    arguments_.model.width = best.width;
    arguments_.model.blocks = first.blocks;  // with which every cell was tried
    arguments_.model.dropout = best.dropout;
    options_.learning_rate = best.learning_rate;
    if (!arguments_.quiet) say(fmt::format("found  {}\n", describe_search(*search_)));
    return true;
  }

  History history(const Model& model, const FitResult& result) const {
    History history{.trained = utc_time(),
                    .data = arguments_.data.source,
                    .score = {},
                    .version = PENSTOCK_VERSION,
                    .steps = result.last.step,
                    .origin = origin_ ? origin_->describe() : "",
                    .search = search_ ? describe_search(*search_) : "",
                    .weight = result.weight()};
    if (arguments_.data.sources.size() > 1) {
      history.data += fmt::format(" and {} more", arguments_.data.sources.size() - 1);
    }
    history.data += ": " + data_.summary;
    if (!result.scored()) return history;
    history.score = validation_text(result, measures_, kind_);
    const std::string headline = score_ ? score_headline(model, *score_) : "";
    if (!headline.empty()) history.score += "; " + headline;
    return history;
  }

  /// What the metrics say of the run beside its numbers, so that `penstock report` needs nothing else.
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

  /// What the finished model does, behind the metrics.
  void record_outcome(const Model& model, const FitResult& result) const {
    if (options_.metrics_path.empty() || !result.metrics_error.empty()) return;
    std::vector<Json> records;
    if (trace_ && score_) records = trace_->records(score_->groups);
    if (const std::string weight = result.weight(); !weight.empty()) {
      records.push_back({{"kind", "weight"}, {"text", weight}, {"layers_count", result.finished.layers_count()}});
    }
    if (score_) records.push_back(reporting::score_record(model, *score_, arguments_.data.source));
    if (model.data().task == Task::language) records.push_back(reporting::sample_record(model, options_.execution));
    reporting::append_records(options_.metrics_path, records);
  }

  /// Before hours of training: can so many models become one?
  void check_seeds(const Model& model) const {
    try {
      model.check_members(arguments_.seeds);
    } catch (const Error& error) {
      fail(error.code(), "--seeds {}: {}", arguments_.seeds, error.what());
    }
  }

  /// Whether layers would be trained in vain. Who says how they are to be trained sees it done all the same.
  bool forecast_stands_alone() const {
    return !arguments_.resume && !arguments_.search && arguments_.init.empty() && given_for_layers().empty() &&
           linear_stands_alone(*data_.dataset);
  }

  /// What the metrics say of a run without steps.
  void record_untrained(const Model& model) const {
    if (options_.metrics_path.empty()) return;
    Json record = {{"kind", "run"}, {"parameters", model.parameter_count()}};
    record.update(Json::parse(metrics_note(model)));
    reporting::append_records(options_.metrics_path, {record});
  }

  /// Options of the command that say how layers are and how they are trained.
  std::vector<std::string> given_for_layers() const {
    std::vector<std::string> given;
    std::ranges::copy_if(layer_options, std::back_inserter(given),
                         [&](const char* name) { return app_.count(name) > 0; });
    return given;
  }

  void complete_options() {
    check_given_limits();
    if (arguments_.seeds < 1) throw Error(ErrorCode::invalid_argument, "--seeds must be at least 1");
    const TrainOptions suggested = suggestion();
    if (app_.count("--precision") == 0) options_.execution.precision = suggested.execution.precision;
    options_.batch = arguments_.batch.value_or(suggested.batch);
    options_.length = arguments_.length.value_or(suggested.length);
    options_.carry_state = !arguments_.no_carry;
    options_.learning_rate = arguments_.learning_rate.value_or(origin_ ? fine_tuning_rate : options_.learning_rate);
    const bool limited = arguments_.steps || arguments_.seconds || arguments_.epochs;
    planned_ = !limited && suggested.max_steps > 0 && data_.dataset->training_steps() > 0;
    options_.max_steps = arguments_.steps.value_or(limited ? 0 : suggested.max_steps);
    options_.max_seconds = arguments_.seconds.value_or(limited ? 0.0 : suggested.max_seconds);
    options_.max_epochs = arguments_.epochs.value_or(limited ? 0.0 : suggested.max_epochs);
    options_.validate_every = arguments_.validate_every.value_or(suggested.validate_every);
    complete_stopping(suggested);
  }

  /// What is not given; a run that goes on has the batches that it began with, wherever that was.
  TrainOptions suggestion() const {
    const Device device = options_.execution.device;
    return resumes() ? suggest_resumed(options_.checkpoint_path, *data_.dataset, device)
                     : suggest_options(*data_.dataset, device);
  }

  bool resumes() const { return arguments_.resume && std::filesystem::exists(options_.checkpoint_path); }

  void check_given_limits() const {
    const bool limited = arguments_.steps || arguments_.seconds || arguments_.epochs;
    const bool none = arguments_.steps.value_or(0) == 0 && arguments_.seconds.value_or(0.0) == 0.0 &&
                      arguments_.epochs.value_or(0.0) == 0.0;
    if (limited && none) throw Error(ErrorCode::invalid_argument, "--steps, --seconds or --epochs must be above 0");
  }

  /// Without held-out data there is nothing that could say when to stop.
  void complete_stopping(const TrainOptions& suggested) {
    const bool held_out = arguments_.data.validation_fraction.value_or(1.0) > 0.0;
    options_.validate_steps = arguments_.validate_steps.value_or(held_out ? suggested.validate_steps : 0);
    const Index patience = options_.validate_steps > 0 ? suggested.patience : 0;
    options_.patience = arguments_.patience.value_or(held_out ? patience : 0);
    options_.keep_best = held_out && suggested.keep_best && !arguments_.keep_last;
  }

  /// The steps of training that are planned; one where only the time is, which decides nothing.
  DeviceQuestion work() const {
    DeviceQuestion question{.rows = options_.batch, .steps = options_.length, .training = true};
    if (kind_ == DataKind::task) question.steps = arguments_.data.task.length;
    question.calls = std::max<Index>(1, options_.max_steps);
    question.start = options_.max_steps > 0;
    return question;
  }

  /// Of a fresh model, or of one that is there already.
  ModelSpec spec_of(const std::optional<ModelSpec>& known) const {
    ModelSpec spec = suggest_spec(*data_.dataset, arguments_.model.cell.value_or(""), options_.execution.device);
    spec.from_last = data_.dataset->description().forecasts_an_input();
    take_autoregression(spec, *data_.dataset);
    if (known) spec = *known;
    arguments_.model.apply(spec);
    return spec;
  }

  /// The model to train; where filters answer alone, they take the place of a fresh one.
  Model make_model() const {
    if (origin_ && !filters_alone_) {
      return continue_from(origin_->model(), *data_.dataset, arguments_.model.dropout.value_or(resumed_->dropout));
    }
    const ModelSpec spec = spec_of(filters_alone_ ? std::nullopt : resumed_);
    Model model(spec, data_.dataset->description(), options_.seed);
    initialise(model, arguments_.model.initial(), options_.seed);
    fit_autoregression(model, *data_.dataset);
    return model;
  }

  Measures measures_of() const {
    Measures measures{.task = data_.dataset->description().task};
    if (kind_ == DataKind::sound) {
      // In units of the target's power a mean squared error is an error-to-signal ratio.
      measures.loss_name = options_.loss == Loss::mae ? "mae" : "ESR";
    } else if (measures.task == Task::forecast)
      measures.loss_name = options_.loss == Loss::mae ? "mae" : "mse";
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
        say(introduction({arguments_, options_, data_}, model, origin_ ? origin_->describe() : "", planned_));
      }
      if (!introduced && arguments_.seeds > 1 && !arguments_.quiet) {
        say(fmt::format("seed   {}, {} of {}\n", options_.seed + static_cast<std::uint64_t>(number), number + 1,
                        arguments_.seeds));
      }
      introduced = true;
      Progress shown = progress;
      shown.warning = with_options(app_, progress.warning);
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
    for (Index i = 0; own_checkpoint_ && i < arguments_.seeds; ++i) {
      std::filesystem::remove(member_path(options_.checkpoint_path, i), ignored);
    }
    if (own_checkpoint_) std::filesystem::remove(search_record(options_.checkpoint_path), ignored);
  }

  void print(const Model& model, const FitResult& result) const {
    const RunEnd end{arguments_, options_, data_, model, result, measures_, mean_rate_, step_rate_, score_, search_};
    if (arguments_.quiet && !arguments_.json) return;
    print_answer(arguments_.json ? json_line(run_json(end)) : run_summary(end));
  }

  const CLI::App& app_;
  TrainArguments arguments_;
  TrainOptions options_;
  DataKind kind_ = DataKind::text;
  OpenedData data_;
  std::optional<ModelSpec> resumed_;
  std::optional<Score> score_;
  std::optional<reporting::ForecastTraces> trace_;  // of the rows that were held out
  Measures measures_;
  std::optional<ProgressReport> report_;      // of the model that trains
  double mean_rate_ = 0.0, step_rate_ = 0.0;  // time steps of all sequences, and optimiser steps, a second
  bool planned_ = false, own_checkpoint_ = false;
  bool filters_alone_ = false;  // of labelled sequences: nothing is trained
  bool linear_alone_ = false;   // of a short series: nothing is trained
  std::optional<TrainFiles> files_;
  std::optional<TrainOrigin> origin_;  // of --init
  std::optional<SearchResult> search_;
};

}  // namespace

Verb add_train(CLI::App& program) {
  CLI::App* app = program.add_subcommand("train", "Train a model on a text, a CSV file, sound or a built-in task");
  auto arguments = std::make_shared<TrainArguments>();
  Options options(*app);
  options.positional("DATA", arguments->data.sources,
                     "Texts or CSV files, plain or compressed with gzip; folders of them; .ts files of labelled "
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
