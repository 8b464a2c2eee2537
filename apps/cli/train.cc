#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "describe.h"
#include "device_choice.h"
#include "open_data.h"
#include "options.h"
#include "penstock/penstock.h"
#include "progress.h"
#include "report/outcome.h"
#include "score_report.h"
#include "signals.h"
#include "terminal.h"
#include "train_arguments.h"
#include "train_files.h"
#include "train_introduction.h"
#include "train_origin.h"
#include "train_search.h"
#include "units.h"
#include "verbs.h"

namespace penstock::cli {
namespace {

/// The size of a model that suits a kind of data when nothing else is said.
ModelSpec default_spec(DataKind kind) {
  ModelSpec spec;
  spec.width = kind == DataKind::text ? 256 : kind == DataKind::sound ? 16 : 64;
  // A few thousand rows are learnt by heart soon.
  spec.dropout = kind == DataKind::series || kind == DataKind::labelled ? 0.2 : 0.0;
  // On small sets it is right more often, in twice the time.
  if (kind == DataKind::labelled) spec.cell = "gru";
  return spec;
}

bool forecasts_an_input(const DataDescription& data) {
  return data.task == Task::forecast && std::ranges::any_of(data.targets, [&](const Column& target) {
           return std::ranges::find(data.inputs, target.name, &Column::name) != data.inputs.end();
         });
}

class TrainingRun {
 public:
  TrainingRun(const CLI::App& app, TrainArguments arguments)
      : app_(app), arguments_(std::move(arguments)), options_(arguments_.train) {}

  int run() {
    arguments_.data.source = arguments_.data.sources.empty() ? "" : arguments_.data.sources.front();
    require_given(arguments_.data.source, "DATA");
    kind_ = kind_of(arguments_.data);
    refuse_foreign_options(app_, arguments_.data, kind_);
    own_checkpoint_ = options_.checkpoint_path.empty();
    if (own_checkpoint_) options_.checkpoint_path = arguments_.output + ".checkpoint";
    files_.emplace(arguments_, options_.checkpoint_path);
    if (arguments_.resume && std::filesystem::exists(options_.checkpoint_path)) {
      resumed_ = Model::load(options_.checkpoint_path).spec();
    }
    if (!arguments_.init.empty()) start_from_origin();
    check_search();
    arguments_.data.from_last = !arguments_.model.no_changes && (!resumed_ || resumed_->from_last);
    arguments_.data.autoregression = !arguments_.model.no_linear && (!resumed_ || resumed_->lags > 0);
    data_ = open_data(arguments_.data, kind_, options_.seed);
    complete_options();
    settle_device(arguments_.automatic, options_.execution, make_model(), work(), arguments_.quiet);
    catch_interrupts();
    if (arguments_.search && !search_first()) return interrupted_status();
    TrainResult result;
    Model model = train_members(result);
    if (has_validation(result)) finish_forecasts(model, result);
    if (!result.interrupted) model = finish_labels(std::move(model), result);
    if (has_validation(result)) score_ = score_held_out(model, *result.validation);
    if (!result.interrupted) refit_autoregression(model, *data_.dataset);
    if (!result.interrupted) refit_filters(model, *data_.dataset, filter_shares_, options_.execution);
    save_model(model, arguments_.output, history(result));
    if (!result.interrupted) drop_own_checkpoint();
    if (has_validation(result)) record_outcome(model);
    if (arguments_.json) print_json(model, result);
    if (!arguments_.json) print_summary(model, result);
    if (!result.checkpoint_error.empty() && (result.interrupted || !own_checkpoint_)) {
      throw Error(ErrorCode::io_failure, result.checkpoint_error);
    }
    return result.interrupted ? interrupted_status() : 0;
  }

 private:
  /// The spec of a checkpoint, which may have other dropout and lags, counts more.
  void start_from_origin() {
    origin_.emplace(app_, arguments_.init);
    arguments_.data.origin = &origin_->model().data();
    if (!resumed_) resumed_ = origin_->model().spec();
  }

  void check_search() const {
    if (arguments_.search && !arguments_.init.empty()) {
      throw Error(ErrorCode::invalid_argument, "--search contradicts --init, which says what the model is");
    }
    if (arguments_.resume && !resumed_ && !arguments_.search) {
      throw Error(ErrorCode::invalid_argument,
                  fmt::format("--resume: {} is of a run with --search", search_record(options_.checkpoint_path)));
    }
  }

  /// What the search finds becomes the options of the run; false if somebody ended it before.
  bool search_first() {
    search_ = search_model(spec_of({}), *data_.dataset, options_, arguments_);
    if (search_->interrupted) {
      if (!arguments_.quiet) say("stop   the same command with --resume goes on with the search\n");
      return false;
    }
    const SearchChoice& best = search_->best;
    arguments_.model.cell = best.cell;
    arguments_.model.width = best.width;
    arguments_.model.dropout = best.dropout;
    options_.learning_rate = best.learning_rate;
    if (!arguments_.quiet) say(fmt::format("found  {}\n", describe_search(*search_)));
    return true;
  }

  History history(const TrainResult& result) const {
    History history{.trained = utc_time(),
                    .data = arguments_.data.source,
                    .score = {},
                    .version = PENSTOCK_VERSION,
                    .steps = result.last.step,
                    .origin = origin_ ? origin_->describe() : "",
                    .search = search_ ? describe_search(*search_) : ""};
    if (arguments_.data.sources.size() > 1) {
      history.data += fmt::format(" and {} more", arguments_.data.sources.size() - 1);
    }
    history.data += ": " + data_.summary;
    if (has_validation(result)) history.score = validation_text(result);
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
  void record_outcome(const Model& model) const {
    if (options_.metrics_path.empty()) return;
    std::vector<Json> records;
    if (trace_ && score_) records = trace_->records(score_->groups);
    if (score_) records.push_back(reporting::score_record(model, *score_, arguments_.data.source));
    if (model.data().task == Task::language) records.push_back(reporting::sample_record(model, options_.execution));
    reporting::append_records(options_.metrics_path, records);
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
    if (members.size() == 1) return std::move(members.front());
    Model ensemble = Model::combine(members);
    if (has_validation(result)) validate_anew(ensemble, result);
    return ensemble;
  }

  void validate_anew(const Model& model, TrainResult& result) const {
    TrainOptions options = options_;
    options.validation_batches = 0;
    result.validation = evaluate(model, *data_.dataset, options);
  }

  /// What the held-out rows say of a series model besides: how much of the layers' correction pays, and how far its
  /// forecasts are off.
  void finish_forecasts(Model& model, TrainResult& result) {
    if (kind_ != DataKind::series) return;
    if (!arguments_.keep_last) share_ = shrink_correction(model, *data_.dataset, options_.execution);
    if (share_ < 1.0) validate_anew(model, result);
    fit_spread(model, *data_.dataset, options_.execution);
  }

  /// Filters beside the layers of a model of labelled sequences.
  Model finish_labels(Model model, TrainResult& result) {
    if (kind_ != DataKind::labelled || arguments_.model.no_filters) return model;
    Model finished = add_filters(model, *data_.dataset, filter_shares_, options_.seed, options_.execution);
    if (has_validation(result)) validate_anew(finished, result);
    return finished;
  }

  void complete_options() {
    check_given_limits();
    if (arguments_.seeds < 1) throw Error(ErrorCode::invalid_argument, "--seeds must be at least 1");
    const TrainOptions suggested = suggest_options(*data_.dataset);
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
    ModelSpec spec = default_spec(kind_);
    spec.from_last = forecasts_an_input(data_.dataset->description());
    const Autoregression* const linear = data_.dataset->autoregression();
    if (spec.from_last && linear != nullptr) spec.lags = linear->lags;
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

  TrainResult train(Model& model, Index member) {
    Measures measures{.task = model.data().task};
    if (kind_ == DataKind::sound) {
      // In units of the target's power a mean squared error is an error-to-signal ratio.
      measures.loss_name = options_.loss == Loss::mae ? "mae" : "ESR";
    } else if (measures.task == Task::forecast)
      measures.loss_name = options_.loss == Loss::mae ? "mae" : "mse";
    if (measures.task != Task::language) {
      measures.unit = kind_ == DataKind::task ? "time steps" : kind_ == DataKind::sound ? "samples" : "rows";
    }
    measures_ = measures;
    ProgressReport report(measures, arguments_.quiet);
    TrainCallbacks callbacks;
    // Not before the first step: what is wrong with the options shows until then, and is then all there is to read.
    bool introduced = false;
    callbacks.progress = [&](const Progress& progress) {
      if (!introduced && member == 0 && !arguments_.quiet) {
        say(introduction({arguments_, options_, data_, model, origin_ ? origin_->describe() : "", planned_}));
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
    const bool resume = arguments_.resume && std::filesystem::exists(options_.checkpoint_path);
    TrainResult result = penstock::train(model, *data_.dataset, options_, callbacks, resume);
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

  void print_summary(const Model& model, const TrainResult& result) const {
    if (arguments_.quiet) return;
    const Progress& last = result.last;
    std::string text;
    const auto line = [&](const char* what, const std::string& value) {
      text += fmt::format("{:<7}{}\n", what, value);
    };
    line(result.interrupted ? "stop" : "done",
         fmt::format("{} steps in {}, {}{}", with_commas(last.step), clock_time(last.seconds),
                     data_.dataset->training_steps() > 0 ? fmt::format("{:.2f} epochs, ", last.epoch) : "",
                     shown_rate(measures_, mean_rate_)) +
             fmt::format(", {} steps/s", short_count(step_rate())));
    if (done_.size() == 1 && options_.keep_best && result.model_step < last.step) {
      const std::string which = result.model_step > 0 ? "the model after step " + with_commas(result.model_step)
                                : origin_             ? "the weights of " + printable(arguments_.init)
                                                      : "the linear forecast as it was before the first step";
      line("best",
           fmt::format("{}{}", which, result.stopped_early ? "; the run ended because nothing better followed" : ""));
    }
    if (share_ < 1.0) {
      line("weight", share_ > 0.0
                         ? fmt::format("{:.2f} of what the layers add to the linear forecast: the held-out rows "
                                       "do not vouch for more",
                                       share_)
                         : "the linear forecast alone: the held-out rows do not vouch for what the layers add");
    }
    if (model.spec().filters > 0) line("weight", describe_shares());
    if (last.skipped > 0) line("note", fmt::format("{} steps were skipped: NaN or infinity", last.skipped));
    if (has_validation(result)) {
      line("valid", validation_text(result));
    }
    if (score_) text += score_lines(model, *score_, "score  ");
    line("saved", saved_text());
    line(result.interrupted ? "go on" : "next",
         result.interrupted ? "the same command with --resume" : next_command(model));
    Output output;
    output.write(text);
    output.flush();
  }

  std::string describe_shares() const {
    const FilterShares& shares = filter_shares_;
    if (shares.layers == 0.0) return "the filters alone: the held-out sequences do not vouch for what the layers add";
    if (shares.filters == 0.0) return "the layers alone: the held-out sequences do not vouch for what the filters add";
    return fmt::format("{:g} of what the layers say and {:g} of what the filters say, by the held-out sequences",
                       shares.layers, shares.filters);
  }

  /// In the data's own units, beside what costs nothing.
  std::optional<Score> score_held_out(const Model& model, const Evaluation& validation) {
    switch (kind_) {
      case DataKind::series:
        return score_held_out_series(model);
      case DataKind::labelled:
        return score_held_out_labels(model, *data_.dataset, options_.execution);
      case DataKind::text:
        return score_held_out_text(validation);
      case DataKind::sound:
      case DataKind::task:
        break;
    }
    return std::nullopt;
  }

  Score score_held_out_series(const Model& model) {
    trace_.emplace();
    Score score;
    score.groups = score_groups_held_out(model, *data_.dataset, options_.execution,
                                         [&](const auto&... row) { trace_->add(row...); });
    score.columns = score_all(score.groups);
    if (model.data().groups.empty()) score.groups.clear();
    return score;
  }

  Score score_held_out_text(const Evaluation& validation) const {
    Score score;
    score.bits_per_byte = validation.bits_per_step;
    score.bytes = validation.scored;
    constexpr Index most = 64 << 20;  // beyond that nobody waits for a compressor
    if (validation.scored > most || !can_read_again()) return score;
    const std::string text = read_source(arguments_.data.source);
    score.compressors =
        compress(std::string_view(text).substr(text.size() - static_cast<std::size_t>(validation.scored)));
    return score;
  }

  /// One file, which standard input is not.
  bool can_read_again() const {
    return arguments_.data.sources.size() == 1 && arguments_.data.source != "-" &&
           !std::filesystem::is_directory(arguments_.data.source);
  }

  std::string validation_text(const TrainResult& result) const {
    std::string value = shown_loss(measures_, result.validation->loss, result.validation->accuracy);
    if (measures_.task == Task::language) value += fmt::format(" (loss {})", short_number(result.validation->loss));
    return fmt::format("{} on {} held-out {}", value, with_commas(result.validation->scored), scored_things());
  }

  /// An interrupted run only knows an earlier one, of other weights.
  static bool has_validation(const TrainResult& result) {
    return !result.interrupted && result.validation && result.validation->scored > 0;
  }

  /// "bytes_per_second", "rows_per_second", "time_steps_per_second"
  const char* rate_name() const {
    return measures_.unit == "B"         ? "bytes_per_second"
           : measures_.unit == "rows"    ? "rows_per_second"
           : measures_.unit == "samples" ? "samples_per_second"
                                         : "time_steps_per_second";
  }

  double step_rate() const { return step_rate_; }

  const char* scored_things() const {
    switch (kind_) {
      case DataKind::text:
        return "bytes";
      case DataKind::series:
        return "rows";
      case DataKind::labelled:
        return "sequences";
      case DataKind::sound:
        return "samples";
      case DataKind::task:
        break;
    }
    return "answers";
  }

  std::string saved_text() const {
    std::error_code unknown;
    const auto size = std::filesystem::file_size(arguments_.output, unknown);
    std::string text = printable(arguments_.output);
    if (!unknown) text += fmt::format(" ({})", byte_size(static_cast<double>(size)));
    if (std::filesystem::exists(options_.checkpoint_path)) {
      text += ", checkpoint " + printable(options_.checkpoint_path);
    }
    return text;
  }

  std::string next_command(const Model& model) const {
    const std::string output = shell_word(arguments_.output);
    if (model.data().task == Task::language) return fmt::format("penstock generate {} --prompt 'The '", output);
    const std::string source = shell_word(arguments_.data.source);
    if (kind_ == DataKind::sound) return fmt::format("penstock stream {} {} out.wav", output, source);
    return fmt::format("penstock predict {} {}{}", output, source, kind_ == DataKind::series ? " --last" : "");
  }

  void print_json(const Model& model, const TrainResult& result) const {
    const Progress& last = result.last;
    Json json = {{"data", arguments_.data.source},
                 {"model", model_json(model)},
                 {"steps", last.step},
                 {"seconds", last.seconds},
                 {"epochs", last.epoch},
                 {"loss", last.loss},
                 {rate_name(), mean_rate_},
                 {"optimizer_steps_per_second", step_rate()},
                 {"skipped", last.skipped},
                 {"validation", nullptr},
                 {"output", arguments_.output},
                 {"checkpoint", nullptr},
                 {"interrupted", result.interrupted},
                 {"model_step", result.model_step},
                 {"stopped_early", result.stopped_early}};
    if (kind_ == DataKind::series) json["share_of_layers"] = share_;
    if (model.spec().filters > 0) {
      json["share_of_layers"] = filter_shares_.layers;
      json["share_of_filters"] = filter_shares_.filters;
    }
    for (const auto& [seed, each] : done_) {
      Json member = {{"seed", seed}, {"steps", each.last.step}, {"model_step", each.model_step}};
      if (each.validation) member["validation"] = evaluation_json(model.data().task, *each.validation);
      json["seeds"].push_back(std::move(member));
    }
    if (result.validation && result.validation->scored > 0)
      json["validation"] = evaluation_json(model.data().task, *result.validation);
    if (search_) json["search"] = search_json(*search_);
    if (score_) json["score"] = score_json(model, *score_);
    if (std::filesystem::exists(options_.checkpoint_path)) json["checkpoint"] = options_.checkpoint_path;
    Output output;
    output.write(json_line(json));
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
  struct Done {
    std::uint64_t seed;
    TrainResult result;
  };
  std::vector<Done> done_;                    // of each seed
  double share_ = 1.0;                        // of what the layers add to a linear forecast, as it was left
  FilterShares filter_shares_;                // of labelled sequences
  double mean_rate_ = 0.0, step_rate_ = 0.0;  // time steps of all sequences, and optimiser steps, a second
  bool planned_ = false, own_checkpoint_ = false;
  std::optional<TrainFiles> files_;
  std::optional<TrainOrigin> origin_;  // of --init
  std::optional<SearchResult> search_;
};

}  // namespace

Verb add_train(CLI::App& program) {
  CLI::App* app = program.add_subcommand("train", "Train a model on a text, a CSV file or a built-in task");
  auto arguments = std::make_shared<TrainArguments>();
  Options options(*app);
  options.positional(
      "DATA", arguments->data.sources,
      "Texts or CSV files, plain or compressed by gzip, folders of them, .ts files of labelled series, '-' "
      "for standard input (see --as), or a built-in task: " +
          fmt::format("task:{}", fmt::join(task_names(), ", task:")));
  add_train_options(options, *arguments);
  options.finish(
      "  penstock train book.txt --seconds 90 --output book.safetensors\n"
      "  penstock train co2.csv --columns co2 --horizon 52 --output co2.safetensors\n"
      "  penstock train shops.csv --group shop --known promotion  # many series in one file\n"
      "  penstock train gestures.csv --cell lstm --epochs 50      # columns sequence, label, ...\n"
      "  penstock train in.wav --target out.wav --cell lstm --blocks 1     # sound to sound\n"
      "  penstock train task:parity --cell lstm --steps 3000      # validated at 256 steps\n"
      "  penstock train book.txt --resume                         # after Ctrl-C");
  return {app, [app, arguments] { return TrainingRun(*app, *arguments).run(); }};
}

}  // namespace penstock::cli
