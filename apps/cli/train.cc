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
#include "output_file.h"
#include "penstock/penstock.h"
#include "progress.h"
#include "report/outcome.h"
#include "score_report.h"
#include "signals.h"
#include "terminal.h"
#include "train_arguments.h"
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
    check_files();
    if (arguments_.resume) resumed_ = Model::load(options_.checkpoint_path).spec();
    arguments_.data.from_last = !arguments_.model.no_last && (!resumed_ || resumed_->from_last);
    arguments_.data.autoregression = !arguments_.model.no_linear && (!resumed_ || resumed_->lags > 0);
    data_ = open_data(arguments_.data, kind_, options_.seed);
    complete_options();
    settle_device(arguments_.automatic, options_.execution, make_model(), work(), arguments_.quiet);
    catch_interrupts();
    TrainResult result;
    Model model = train_members(result);
    if (has_validation(result)) finish_forecasts(model, result);
    if (has_validation(result)) score_ = score_held_out(model, *result.validation);
    if (!result.interrupted) refit_autoregression(model, *data_.dataset);
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
  History history(const TrainResult& result) const {
    History history{.trained = utc_time(),
                    .data = arguments_.data.source,
                    .score = {},
                    .version = PENSTOCK_VERSION,
                    .steps = result.last.step};
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
      options_.checkpoint_path = of_member(first.checkpoint_path, i);
      if (!first.metrics_path.empty()) options_.metrics_path = of_member(first.metrics_path, i);
      if (!first.tensorboard_path.empty()) options_.tensorboard_path = of_member(first.tensorboard_path, i);
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

  /// The first one's files have the names that were given.
  static std::string of_member(const std::string& path, Index member) {
    return member == 0 ? path : fmt::format("{}.{}", path, member + 1);
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

  void complete_options() {
    check_given_limits();
    if (arguments_.seeds < 1) throw Error(ErrorCode::invalid_argument, "--seeds must be at least 1");
    const TrainOptions suggested = suggest_options(*data_.dataset);
    options_.batch = arguments_.batch.value_or(suggested.batch);
    options_.length = arguments_.length.value_or(suggested.length);
    options_.carry_state = !arguments_.no_carry;
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

  /// Finds out now what would otherwise stop us after an hour's training.
  void check_files() {
    const std::string& checkpoint = options_.checkpoint_path;
    if (arguments_.output == checkpoint) {
      throw Error(ErrorCode::invalid_argument, "--checkpoint and --output must be different files");
    }
    check_not_data("--output", arguments_.output);
    check_not_data("--checkpoint", checkpoint);
    check_not_data("--metrics", options_.metrics_path);
    check_writable_file("--output", arguments_.output);
    output_lock_.emplace("--output", arguments_.output);
    if (arguments_.resume && !std::filesystem::exists(checkpoint)) {
      throw Error(ErrorCode::io_failure, fmt::format("--resume: there is no checkpoint {}", printable(checkpoint)));
    }
    check_writable_file("--checkpoint", checkpoint);
    checkpoint_lock_.emplace("--checkpoint", checkpoint);
    check_nothing_is_lost(checkpoint);
  }

  /// What was trained before is replaced by going on with it, or on request.
  void check_nothing_is_lost(const std::string& checkpoint) const {
    if (arguments_.force) return;
    if (arguments_.resume) {
      if (continues(checkpoint, arguments_.output)) return;
      check_not_there("--output", arguments_.output,
                      fmt::format("it does not belong to {}, and --force replaces it", printable(checkpoint)));
      return;
    }
    for (Index i = 0; i < arguments_.seeds; ++i) {
      check_not_there("--checkpoint", of_member(checkpoint, i), "--resume goes on with that run, --force replaces it");
    }
    check_not_there("--output", arguments_.output, "--force replaces it, -o FILE writes another one");
  }

  /// Whether a model is of the kind that a run makes: an interrupted one has left it.
  static bool continues(const std::string& checkpoint, const std::string& output) {
    if (!std::filesystem::exists(output) || inspect_model_file(output).kind == ModelFile::Kind::other) return false;
    return describe_layers(Model::load(checkpoint).spec()) == describe_layers(Model::load(output).spec());
  }

  /// Not even --force should cost anyone their data.
  void check_not_data(const char* option, const std::string& path) const {
    const auto is_it = [&](const std::string& source) {
      std::error_code not_there;
      return std::filesystem::equivalent(path, source, not_there);
    };
    if (std::ranges::none_of(arguments_.data.sources, is_it) && !is_it(arguments_.data.target)) return;
    throw Error(ErrorCode::invalid_argument, fmt::format("{} {} would overwrite DATA", option, printable(path)));
  }

  /// The steps of training that are planned; one where only the time is, which decides nothing.
  DeviceQuestion work() const {
    DeviceQuestion question{.rows = options_.batch, .steps = options_.length, .training = true};
    if (kind_ == DataKind::task) question.steps = arguments_.data.task.length;
    question.calls = std::max<Index>(1, options_.max_steps);
    question.start = options_.max_steps > 0;
    return question;
  }

  Model make_model() const {
    ModelSpec spec = default_spec(kind_);
    spec.from_last = forecasts_an_input(data_.dataset->description());
    const Autoregression* const linear = data_.dataset->autoregression();
    if (spec.from_last && linear != nullptr) spec.lags = linear->lags;
    if (resumed_) spec = *resumed_;
    arguments_.model.apply(spec);
    Model model(spec, data_.dataset->description(), options_.seed);
    fit_autoregression(model, *data_.dataset);
    return model;
  }

  void introduce(const Model& model) const {
    if (arguments_.quiet) return;
    std::string limits;
    const auto add = [&](const std::string& limit) { limits += (limits.empty() ? "" : " or ") + limit; };
    if (options_.max_steps > 0) add(with_commas(options_.max_steps) + " steps");
    if (options_.max_seconds > 0.0) add(fmt::format("{:g} s", options_.max_seconds));
    if (options_.max_epochs > 0.0) add(fmt::format("{:g} epochs", options_.max_epochs));
    if (planned_) limits += fmt::format(" ({:.0f} passes over the data)", planned_passes());
    if (options_.patience > 0) limits = "at most " + limits;
    const SystemInfo system = system_info();
    const int threads = options_.execution.threads > 0 ? options_.execution.threads : system.threads;
    const bool windows = kind_ != DataKind::labelled && kind_ != DataKind::task;
    const std::size_t others = arguments_.data.sources.size() - 1;
    say(fmt::format("data   {}{}: {}\n", printable(arguments_.data.source),
                    others > 0 ? fmt::format(" and {} more", others) : "", data_.summary));
    for (const std::string& finding : data_.reading) say(fmt::format("read   {}\n", printable(finding)));
    if (const std::string note = few_held_out(); !note.empty()) say("note   " + note + "\n");
    say(fmt::format(
        "model  {}{}\n", describe_model(model),
        arguments_.seeds > 1 ? fmt::format("; one for each of {} seeds, and their mean", arguments_.seeds) : ""));
    say(fmt::format("run    {} in batches of {}{}{}, {} at {:g}\n", limits, options_.batch,
                    windows ? fmt::format(" x {}", options_.length) : "", windows ? "" : " sequences",
                    options_.optimizer == Optimizer::adamw ? "AdamW" : "SGD", options_.learning_rate));
    if (options_.patience > 0) {
      say(fmt::format("stop   when {} validations in a row, one every {}, are no better; the {} model is kept\n",
                      options_.patience,
                      options_.validate_steps == 1 ? "step" : with_commas(options_.validate_steps) + " steps",
                      options_.keep_best ? "best" : "last"));
    }
    if (options_.execution.device.is_cuda()) {
      const CudaInfo cuda = cuda_info();
      const auto index = static_cast<std::size_t>(options_.execution.device.index);
      if (index < cuda.gpus.size()) {
        say(fmt::format(
            "on     {} ({}), {}\n", cuda.gpus[index].name, to_string(options_.execution.device),
            options_.execution.precision == Precision::full ? "f32" : to_string(options_.execution.precision)));
      }
      return;
    }
    say(fmt::format("on     {} ({}), {} thread{}\n", system.cpu, system.isa, threads, threads == 1 ? "" : "s"));
  }

  /// What a score of so little is worth; empty if there is enough.
  std::string few_held_out() const {
    const Index count = data_.dataset->held_out_steps();
    const bool labelled = kind_ == DataKind::labelled;
    if ((!labelled && kind_ != DataKind::series) || count == 0 || count >= (labelled ? 10 : 12)) return {};
    return fmt::format("{} {}{} held out: too few for a score to mean much, or to tell when to stop", count,
                       labelled ? "sequence" : "row", count == 1 ? " is" : "s are");
  }

  /// Of the planned steps.
  double planned_passes() const {
    const auto positions = static_cast<double>(options_.batch * (kind_ == DataKind::labelled ? 1 : options_.length));
    return static_cast<double>(options_.max_steps) * positions / static_cast<double>(data_.dataset->training_steps());
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
      if (!introduced && member == 0) introduce(model);
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
    // Of several, those that were never begun have nothing to go on from.
    const bool resume = arguments_.resume && (member == 0 || std::filesystem::exists(options_.checkpoint_path));
    TrainResult result = penstock::train(model, *data_.dataset, options_, callbacks, resume);
    mean_rate_ = report.mean_rate();
    step_rate_ = report.step_rate();
    return result;
  }

  /// A checkpoint that nobody asked for is there for runs that did not reach their end.
  void drop_own_checkpoint() const {
    std::error_code ignored;
    for (Index i = 0; own_checkpoint_ && i < arguments_.seeds; ++i) {
      std::filesystem::remove(of_member(options_.checkpoint_path, i), ignored);
    }
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
    for (const auto& [seed, each] : done_) {
      Json member = {{"seed", seed}, {"steps", each.last.step}, {"model_step", each.model_step}};
      if (each.validation) member["validation"] = evaluation_json(model.data().task, *each.validation);
      json["seeds"].push_back(std::move(member));
    }
    if (result.validation && result.validation->scored > 0)
      json["validation"] = evaluation_json(model.data().task, *result.validation);
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
  double mean_rate_ = 0.0, step_rate_ = 0.0;  // time steps of all sequences, and optimiser steps, a second
  bool planned_ = false, own_checkpoint_ = false;
  std::optional<OutputLock> output_lock_, checkpoint_lock_;
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
      "  penstock train gestures.csv --cell lstm --epochs 50      # columns sequence, label, ...\n"
      "  penstock train in.wav --target out.wav --cell lstm --blocks 1     # sound to sound\n"
      "  penstock train task:parity --cell lstm --steps 3000      # validated at 256 steps\n"
      "  penstock train book.txt --resume                         # after Ctrl-C");
  return {app, [app, arguments] { return TrainingRun(*app, *arguments).run(); }};
}

}  // namespace penstock::cli
