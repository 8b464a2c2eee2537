#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <filesystem>
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
#include "verbs/train/introduction.h"
#include "verbs/train/origin.h"
#include "verbs/train/score.h"
#include "verbs/train/search.h"
#include "verbs/train/summary.h"
#include "verbs/verbs.h"

namespace penstock::cli {
namespace {

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
    if (resumes()) {
      resumed_ = Model::load(options_.checkpoint_path).spec();
    }
    if (!arguments_.init.empty()) start_from_origin();
    SeriesChoices& series = arguments_.data.series;
    if (arguments_.model.no_changes || (resumed_ && !resumed_->from_last)) series.from_last = false;
    if (arguments_.model.no_linear || (resumed_ && resumed_->lags == 0)) series.autoregression = false;
    arguments_.data.threads = options_.execution.threads;
    open();
    for (std::string& finding : data_.reading) finding = with_options(app_, finding);
    filters_alone_ = kind_ == DataKind::labelled && !arguments_.model.no_filters && !arguments_.resume &&
                     filters_stand_alone(*data_.dataset);
    linear_alone_ = forecast_stands_alone();
    check_search();
    complete_options();
    if (!filters_alone_ && !linear_alone_) {
      const Model model = make_model();
      check_seeds(model);
      settle_device(arguments_.automatic, options_.execution, model, work(), arguments_.quiet);
      if (options_.execution.device.is_cuda()) complete_options();  // which depend on it
    }
    catch_interrupts();
    if (arguments_.search && !search_first()) return interrupted_status();
    TrainResult result;
    std::optional<Model> made = make(result);
    if (!made) return interrupted_status();
    Model& model = *made;
    save_patiently(model, arguments_.output, history(model, result), result.last.seconds);
    if (!result.interrupted) drop_own_checkpoint();
    if (has_validation(result)) record_outcome(model, result);
    print(model, result);
    if (!result.checkpoint_error.empty() && (result.interrupted || !own_checkpoint_)) {
      throw Error(ErrorCode::io_failure, result.checkpoint_error);
    }
    return result.interrupted ? interrupted_status() : 0;
  }

 private:
  /// Trains, finishes and scores a model. After an interrupt it returns the model as trained so far, which --resume
  /// continues. Returns nothing if the run trains no layers: an interrupted fit in closed form is not kept.
  std::optional<Model> make(TrainResult& result) {
    std::optional<Model> model;
    const auto unless_interrupted = [&](const auto& work) {
      if (result.interrupted) return;
      try {
        const Stoppable on_a_signal(&interrupt());
        work();
      } catch (const Error& error) {
        if (error.code() != ErrorCode::interrupted) throw;
        result.interrupted = true;
      }
    };
    if (!filters_alone_ && !linear_alone_) {
      model = train_members(result);
    } else {
      unless_interrupted([&] { model = filters_alone_ ? fit_filters_alone(result) : fit_linear_alone(result); });
    }
    if (!filters_alone_) unless_interrupted([&] { finish(*model, result); });
    unless_interrupted([&] {
      if (!has_validation(result)) return;
      score_ = score_held_out({arguments_, data_, options_.execution}, *model, *result.validation, trace_);
    });
    unless_interrupted([&] { refit(*model, *data_.dataset, finished_, options_.execution); });
    if (result.interrupted && (filters_alone_ || linear_alone_)) model.reset();
    return model;
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
  }

  /// A slip in the name of the data is said before a model that is there already.
  void require_sources() const {
    if (kind_ == DataKind::task) return;
    for (const std::string& source : arguments_.data.sources) {
      if (source == "-" || std::filesystem::exists(source)) continue;
      throw Error(ErrorCode::io_failure, fmt::format("cannot read '{}': No such file or directory{}", printable(source),
                                                     address_advice(source, false)));
    }
  }

  /// The spec of a checkpoint, which may have other dropout and lags, counts more.
  void start_from_origin() {
    origin_.emplace(app_, arguments_.init);
    arguments_.data.origin = &origin_->model().data();
    if (!resumed_) resumed_ = origin_->model().spec();
  }

  void check_search() const {
    if (arguments_.search && !arguments_.init.empty()) {
      throw Error(ErrorCode::invalid_argument, "--search cannot be combined with --init, which determines the model");
    }
    if (arguments_.search && filters_alone_) {
      throw Error(ErrorCode::invalid_argument,
                  fmt::format("--search looks for layers, and a hold-out set of {} is too small to show their gain "
                              "over filters: --no-filters searches for layers alone",
                              counted(data_.dataset->held_out_steps(), "sequence")));
    }
    if (arguments_.resume && !resumed_ && !arguments_.search) {
      throw Error(ErrorCode::invalid_argument,
                  fmt::format("--resume: {} is of a run with --search", search_record(options_.checkpoint_path)));
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

  std::string weight_text() const { return describe_weight(finished_, !done_.empty()); }

  History history(const Model& model, const TrainResult& result) const {
    History history{.trained = utc_time(),
                    .data = arguments_.data.source,
                    .score = {},
                    .version = PENSTOCK_VERSION,
                    .steps = result.last.step,
                    .origin = origin_ ? origin_->describe() : "",
                    .search = search_ ? describe_search(*search_) : "",
                    .weight = weight_text()};
    if (arguments_.data.sources.size() > 1) {
      history.data += fmt::format(" and {} more", arguments_.data.sources.size() - 1);
    }
    history.data += ": " + data_.summary;
    if (!has_validation(result)) return history;
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
  void record_outcome(const Model& model, const TrainResult& result) const {
    if (options_.metrics_path.empty() || !result.metrics_error.empty()) return;
    std::vector<Json> records;
    if (trace_ && score_) records = trace_->records(score_->groups);
    if (const std::string weight = weight_text(); !weight.empty()) {
      records.push_back({{"kind", "weight"}, {"text", weight}, {"layers_count", finished_.layers_count()}});
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
      throw Error(error.code(), fmt::format("--seeds {}: {}", arguments_.seeds, error.what()));
    }
  }

  /// Trains a model from each seed; several become one. An interrupt leaves those that there are.
  Model train_members(TrainResult& result) {
    const std::string start = data_.dataset->position();
    const TrainOptions first = options_;
    std::vector<Model> members;
    for (Index i = 0; i < arguments_.seeds && !result.interrupted; ++i) {
      options_.seed = first.seed + static_cast<std::uint64_t>(i);
      options_.checkpoint_path = TrainFiles::of_member(first.checkpoint_path, i);
      if (!first.metrics_path.empty()) options_.metrics_path = TrainFiles::of_member(first.metrics_path, i);
      if (!first.tensorboard_path.empty()) options_.tensorboard_path = TrainFiles::of_member(first.tensorboard_path, i);
      data_.dataset->restore(start);
      members.push_back(make_model());
      const TrainResult each = train(members.back(), i);
      done_.push_back({options_.seed, each});
      const Index before = result.last.step;
      const double seconds = result.last.seconds, epochs = result.last.epoch;
      result = each;
      result.last.step += before;
      result.last.seconds += seconds;
      result.last.epoch += epochs;
    }
    options_ = first;
    return members.size() == 1 ? std::move(members.front()) : Model::combine(members);
  }

  void validate_anew(const Model& model, TrainResult& result) const {
    TrainOptions options = options_;
    options.validation_batches = 0;
    result.validation.reset();  // of another model, should this end early
    result.validation = evaluate(model, *data_.dataset, options);
  }

  /// What is decided by the held-out part once the layers are trained.
  void finish(Model& model, TrainResult& result) {
    if (kind_ == DataKind::series && !has_validation(result)) return;
    const FinishOptions options{
        .shrink = !arguments_.keep_last, .filters = !arguments_.model.no_filters, .seed = options_.seed};
    finished_ = finish_training(model, *data_.dataset, options, options_.execution);
    const bool changed = finished_.changed || model.spec().members > 1;
    if (changed && has_validation(result)) validate_anew(model, result);
  }

  /// A model without layers, where too little is held out to say what they would add.
  Model fit_filters_alone(TrainResult& result) {
    measures_ = measures_of();
    if (!arguments_.quiet) say(introduction_of_filters({arguments_, options_, data_}, given_for_layers()));
    const auto start = std::chrono::steady_clock::now();
    Model model = fit_filters(*data_.dataset, options_.seed, options_.execution);
    finished_ = {.filter_shares = {.layers = 0.0, .filters = 1.0}, .filters = true};
    if (data_.dataset->held_out_steps() > 0) validate_anew(model, result);
    result.last.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
    record_untrained(model);
    return model;
  }

  /// Whether layers would be trained in vain. Who says how they are to be trained sees it done all the same.
  bool forecast_stands_alone() const {
    return !arguments_.resume && !arguments_.search && arguments_.init.empty() && given_for_layers().empty() &&
           linear_stands_alone(*data_.dataset);
  }

  /// A model whose layers are as they were drawn and add nothing to the linear forecast.
  Model fit_linear_alone(TrainResult& result) {
    measures_ = measures_of();
    const auto start = std::chrono::steady_clock::now();
    Model model = make_model();
    if (!arguments_.quiet) say(introduction_of_linear({arguments_, options_, data_}, model));
    validate_anew(model, result);
    result.last.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
    record_untrained(model);
    return model;
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
    for (const char* const option :
         {"--cell",     "--width",     "--blocks",         "--hidden-size",    "--heads",        "--conv",
          "--ffn",      "--norms",     "--dropout",        "--steps",          "--seconds",      "--epochs",
          "--patience", "--keep-last", "--batch",          "--learning-rate",  "--weight-decay", "--warmup",
          "--clip",     "--optimizer", "--validate-every", "--validate-steps", "--seeds",        "--tensorboard"}) {
      if (app_.count(option) > 0) given.emplace_back(option);
    }
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
    if (limited && none) {
      throw Error(ErrorCode::invalid_argument, "--steps, --seconds or --epochs must be above 0");
    }
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

  Model make_model() const {
    if (origin_) {
      return continue_from(origin_->model(), *data_.dataset, arguments_.model.dropout.value_or(resumed_->dropout));
    }
    const ModelSpec spec = spec_of(resumed_);
    Model model(spec, data_.dataset->description(), options_.seed);
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

  TrainResult train(Model& model, Index member) {
    measures_ = measures_of();
    ProgressReport report(measures_, arguments_.quiet);
    TrainCallbacks callbacks;
    // Not before the first step: what is wrong with the options shows until then, and is then all there is to read.
    bool introduced = false;
    callbacks.progress = [&](const Progress& progress) {
      if (!introduced && member == 0 && !arguments_.quiet) {
        say(introduction({arguments_, options_, data_}, model, origin_ ? origin_->describe() : "", planned_));
      }
      if (!introduced && arguments_.seeds > 1 && !arguments_.quiet) {
        say(fmt::format("seed   {}, {} of {}\n", options_.seed, member + 1, arguments_.seeds));
      }
      introduced = true;
      report.step(progress);
    };
    callbacks.validation = [&](const Progress& progress, const Evaluation& evaluation) {
      report.validation(progress, evaluation);
    };
    callbacks.stop = interrupted;
    options_.metrics_note = metrics_note(model);
    // Of several, those that were never begun have nothing to go on from, nor has what follows a search.
    TrainResult result = penstock::train(model, *data_.dataset, options_, callbacks, resumes());
    mean_rate_ = report.mean_rate();
    step_rate_ = report.step_rate();
    return result;
  }

  /// A checkpoint that nobody asked for is there for runs that did not reach their end.
  void drop_own_checkpoint() const {
    std::error_code ignored;
    for (Index i = 0; own_checkpoint_ && i < arguments_.seeds; ++i) {
      std::filesystem::remove(TrainFiles::of_member(options_.checkpoint_path, i), ignored);
    }
    if (own_checkpoint_) std::filesystem::remove(search_record(options_.checkpoint_path), ignored);
  }

  void print(const Model& model, const TrainResult& result) const {
    const RunEnd end{arguments_, options_,   data_,      model,     result, done_,
                     measures_,  mean_rate_, step_rate_, finished_, score_, search_};
    if (arguments_.quiet && !arguments_.json) return;
    Output output;
    output.write(arguments_.json ? json_line(run_json(end)) : run_summary(end));
    output.flush();
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
  std::vector<TrainedMember> done_;
  Finished finished_;                         // what followed training
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
