#include "commands/train/summary.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <filesystem>

#include "options/load_model.h"
#include "penstock/penstock.h"
#include "penstock/sources.h"
#include "terminal/describe.h"
#include "terminal/units.h"

namespace penstock::cli {
namespace {

/// Returns whether batches are whole sequences that have a label each.
bool is_labelled(DataKind kind) { return kind == DataKind::labelled || kind == DataKind::labelled_texts; }

/// Returns a warning about a score of so few rows, and about other uses of them; empty if there are enough.
std::string few_held_out(const OpenedData& data, const std::string& else_for) {
  const Index count = data.dataset->held_out_steps();
  const bool labelled = is_labelled(data.kind);
  if ((!labelled && data.kind != DataKind::series) || count == 0 || count >= (labelled ? 10 : 12)) return {};
  const char* const noun = !labelled ? "row" : data.kind == DataKind::labelled ? "sequence" : "text";
  return fmt::format("the hold-out set has only {}: too few for a reliable score{}", counted(count, noun), else_for);
}

/// Returns how often the planned steps read the training part.
double planned_passes(const RunStart& start) {
  const Index steps = is_labelled(start.data.kind) ? 1 : start.options.length;
  const auto positions = static_cast<double>(start.options.batch * steps);
  return static_cast<double>(start.options.max_steps) * positions /
         static_cast<double>(start.data.dataset->training_steps());
}

std::string describe_limits(const RunStart& start, bool planned) {
  const TrainOptions& options = start.options;
  std::string limits;
  const auto add = [&](const std::string& limit) { limits += (limits.empty() ? "" : " or ") + limit; };
  if (options.max_steps > 0) add(with_commas(options.max_steps) + " steps");
  if (options.max_seconds > 0.0) add(fmt::format("{:g} s", options.max_seconds));
  if (options.max_epochs > 0.0) add(fmt::format("{:g} epochs", options.max_epochs));
  if (planned) limits += fmt::format(" ({:.0f} passes over the data)", planned_passes(start));
  return options.patience > 0 ? "at most " + limits : limits;
}

std::string describe_place(const Execution& execution) {
  if (execution.device.is_cuda()) {
    const CudaInfo cuda = cuda_info();
    const auto index = static_cast<std::size_t>(execution.device.index);
    if (index >= cuda.gpus.size()) return {};
    return fmt::format("{} ({}), {}", cuda.gpus[index].name, to_string(execution.device),
                       execution.precision == Precision::full ? "f32" : to_string(execution.precision));
  }
  const SystemInfo system = system_info();
  const int threads = execution.threads > 0 ? execution.threads : system.threads;
  return fmt::format("{} ({}), {}", system.cpu, system.isa, counted(threads, "thread"));
}

void add_line(std::string& text, const char* what, const std::string& value) {
  if (!value.empty()) text += fmt::format("{:<7}{}\n", what, value);
}

/// Describes the data, and how they were read.
std::string describe_data(const RunStart& start) {
  const DataOptions& data = start.arguments.data;
  const std::size_t others = data.sources.size() - 1;
  std::string text;
  add_line(text, "data",
           fmt::format("{}{}: {}", printable(data.source), others > 0 ? fmt::format(" and {} more", others) : "",
                       start.data.summary));
  for (const std::string& finding : start.data.reading) add_line(text, "read", printable(finding));
  return text;
}

const char* scored_things(DataKind kind) {
  return word_of({"bytes", "rows", "sequences", "texts", "samples", "answers"}, kind);
}

/// "bytes_per_second", "rows_per_second", "time_steps_per_second"
const char* rate_name(const Measures& measures) {
  return measures.unit == "B"         ? "bytes_per_second"
         : measures.unit == "rows"    ? "rows_per_second"
         : measures.unit == "samples" ? "samples_per_second"
                                      : "time_steps_per_second";
}

std::string describe_end(const RunEnd& end) {
  const Progress& last = end.result.last;
  if (end.result.members.empty() && end.data.kind == DataKind::series)
    return "linear forecast fitted, no layers trained";
  if (end.result.members.empty()) return fmt::format("filters fitted in {:.1f} s", last.seconds);
  const bool ends = end.data.dataset->training_steps() > 0;
  return fmt::format("{} in {}, {}{}, {} steps/s", counted(last.step, "step"), clock_time(last.seconds),
                     ends ? fmt::format("{:.2f} epochs, ", last.epoch) : "", shown_rate(end.measures, end.rate),
                     short_count(end.step_rate));
}

/// Which of the models that validated was kept; empty for the last one, and where its layers do not count.
std::string describe_best(const RunEnd& end) {
  const FitResult& result = end.result;
  if (!result.finished.layers_count()) return {};
  if (result.members.size() != 1 || !end.options.keep_best || result.model_step >= result.last.step) return {};
  const std::string& init = end.arguments.init;
  const std::string which = result.model_step > 0 ? "the model after step " + with_commas(result.model_step)
                            : !init.empty()       ? "the weights of " + printable(init)
                                                  : "the linear forecast, as before the first step";
  return which + (result.stopped_early ? "; early stopping ended the run" : "");
}

std::string describe_files(const RunEnd& end) {
  std::error_code unknown;
  const auto size = std::filesystem::file_size(end.arguments.output, unknown);
  std::string text = printable(end.arguments.output);
  if (!unknown) text += fmt::format(" ({})", byte_size(static_cast<double>(size)));
  if (std::filesystem::exists(end.options.checkpoint_path)) {
    text += ", checkpoint " + printable(end.options.checkpoint_path);
  }
  return text;
}

/// Beside the sound that was learnt from, under a name that no file has yet.
std::string free_sound_name(const TrainArguments& arguments) {
  const std::filesystem::path source(arguments.data.source);
  const std::string stem = source.stem().string() + "-" + std::filesystem::path(arguments.output).stem().string();
  std::string name = stem + ".wav";
  for (int i = 2; std::filesystem::exists(name); ++i) name = fmt::format("{}-{}.wav", stem, i);
  return name;
}

std::string next_command(const RunEnd& end) {
  const std::string output = shell_word(end.arguments.output);
  if (end.model.data().task == Task::language) {
    if (!reads_bytes(end.model)) return "penstock info " + output;
    return fmt::format("penstock generate {} --prompt 'The '", output);
  }
  const DataOptions& data = end.arguments.data;
  const std::string source =
      shell_word(std::filesystem::is_directory(data.source) ? files_of(data.sources).front() : data.source);
  if (end.data.kind == DataKind::sound) {
    return fmt::format("penstock stream {} {} {} --target {}", output, source,
                       shell_word(free_sound_name(end.arguments)), shell_word(end.arguments.data.target));
  }
  // The last forecast alone takes rows to come, which the file may lack, where a model reads what is known of them.
  const bool last = end.data.kind == DataKind::series && !end.model.data().reads_ahead();
  return fmt::format("penstock predict {} {}{}", output, source, last ? " --last" : "");
}

}  // namespace

std::string introduction(const RunStart& start, const Model& model, const std::string& origin, bool planned) {
  const TrainArguments& arguments = start.arguments;
  const TrainOptions& options = start.options;
  std::string text = describe_data(start);
  add_line(text, "from", printable(origin));
  add_line(text, "note", few_held_out(start.data, " or early stopping"));
  const auto line = [&](const char* what, const std::string& value) { add_line(text, what, value); };
  line("model",
       describe_model(model) + (arguments.fit.seeds > 1
                                    ? fmt::format("; one for each of {} seeds, and their mean", arguments.fit.seeds)
                                    : ""));
  if (start.data.kind == DataKind::labelled && !arguments.model.no_filters) {
    line("then", "convolution filters next to the layers, with a linear classifier");
  }
  const bool windows = !is_labelled(start.data.kind) && start.data.kind != DataKind::task;
  line("run", fmt::format("{} in batches of {}{}{}, {} at {:g}", describe_limits(start, planned), options.batch,
                          windows ? fmt::format(" x {}", options.length) : "", windows ? "" : " sequences",
                          choice_of(options.optimizer).title, options.learning_rate));
  if (options.patience > 0) {
    line("stop",
         fmt::format("after {} validations without improvement, one every {}; the {} model is kept", options.patience,
                     options.validate_steps == 1 ? "step" : with_commas(options.validate_steps) + " steps",
                     options.keep_best ? "best" : "last"));
  }
  line("on", describe_place(options.execution));
  return text;
}

std::string introduction_of_linear(const RunStart& start, const Model& model) {
  std::string text = describe_data(start);
  add_line(text, "note", few_held_out(start.data, ""));
  add_line(text, "model",
           fmt::format("a linear forecast from {}; layers are not trained, because a hold-out set of {} is too small "
                       "to show their gain (--steps, --seconds or --epochs trains them)",
                       counted(model.spec().branch_fields().lags, "row"),
                       counted(start.data.dataset->held_out_steps(), "row")));
  return text;
}

std::string introduction_of_filters(const RunStart& start, const std::vector<std::string>& given) {
  const Index held_out = start.data.dataset->held_out_steps();
  std::string text = describe_data(start);
  if (!start.arguments.init.empty()) {
    add_line(text, "from", printable(start.arguments.init) + ": its columns, their scaling and its labels");
  }
  add_line(text, "note", few_held_out(start.data, ""));
  const std::string why = held_out == 0
                              ? "there is no hold-out set to"
                              : fmt::format("a hold-out set of {} is too small to", counted(held_out, "sequence"));
  add_line(text, "model",
           fmt::format("convolution filters with a linear classifier; layers are not trained, because {} show their "
                       "gain (--no-filters trains layers)",
                       why));
  if (!given.empty()) {
    add_line(
        text, "note",
        fmt::format("without layers, {} {} no effect", fmt::join(given, ", "), given.size() == 1 ? "has" : "have"));
  }
  add_line(text, "on", describe_place(start.options.execution));
  return text;
}

std::string validation_text(const TrainResult& result, const Measures& measures, DataKind kind) {
  std::string value = shown_loss(measures, result.validation->loss, result.validation->accuracy);
  if (measures.task == Task::language) value += fmt::format(" (loss {})", short_number(result.validation->loss));
  return fmt::format("{} on {} held-out {}", value, with_commas(result.validation->scored),
                     measures.unit == "tokens" ? "tokens" : scored_things(kind));
}

std::string run_summary(const RunEnd& end) {
  const FitResult& result = end.result;
  std::string text;
  const auto line = [&](const char* what, const std::string& value) { add_line(text, what, value); };
  line(result.interrupted ? "stop" : "done", describe_end(end));
  line("best", describe_best(end));
  if (!result.members.empty()) line("weight", result.weight());
  line("own", describe_own_forecasts(end.model.data()));
  if (result.last.skipped > 0)
    line("note", fmt::format("{} {} skipped: NaN or infinity", counted(result.last.skipped, "step"),
                             result.last.skipped == 1 ? "was" : "were"));
  if (result.last.rollbacks > 0) {
    line("note", fmt::format("the run was unstable: {} to a good state", counted(result.last.rollbacks, "return")));
  }
  if (result.scored()) line("valid", validation_text(result, end.measures, end.data.kind));
  if (end.score) text += score_lines(end.model, *end.score, "score  ");
  line("saved", describe_files(end));
  line(result.interrupted ? "go on" : "next",
       result.interrupted ? "the same command with --resume" : next_command(end));
  return text;
}

Json run_json(const RunEnd& end) {
  const Progress& last = end.result.last;
  Json json = {{"data", end.arguments.data.source},
               {"model", model_json(end.model)},
               {"steps", last.step},
               {"seconds", last.seconds},
               {"epochs", last.epoch},
               {"loss", last.loss},
               {rate_name(end.measures), end.rate},
               {"optimizer_steps_per_second", end.step_rate},
               {"skipped", last.skipped},
               {"rollbacks", last.rollbacks},
               {"validation", nullptr},
               {"output", end.arguments.output},
               {"checkpoint", nullptr},
               {"interrupted", end.result.interrupted},
               {"model_step", end.result.model_step},
               {"stopped_early", end.result.stopped_early}};
  if (end.result.members.empty()) {  // no step was taken, which had a loss and a rate
    for (const char* const field : {"loss", rate_name(end.measures), "optimizer_steps_per_second"})
      json[field] = nullptr;
  }
  if (end.data.kind == DataKind::series) json["share_of_layers"] = end.result.finished.share;
  if (end.model.spec().branch_fields().filters > 0) {
    json["share_of_layers"] = end.result.finished.filter_shares.layers;
    json["share_of_filters"] = end.result.finished.filter_shares.filters;
  }
  if (!end.result.gave_up.empty()) json["gave_up"] = end.result.gave_up.text();
  for (const auto& [seed, each] : end.result.members) {
    Json member = {{"seed", seed}, {"steps", each.last.step}, {"model_step", each.model_step}};
    if (each.validation) member["validation"] = evaluation_json(end.model.data(), *each.validation);
    json["seeds"].push_back(std::move(member));
  }
  if (end.result.validation && end.result.validation->scored > 0) {
    json["validation"] = evaluation_json(end.model.data(), *end.result.validation);
  }
  if (end.score) json["score"] = score_json(end.model, *end.score);
  if (std::filesystem::exists(end.options.checkpoint_path)) json["checkpoint"] = end.options.checkpoint_path;
  return json;
}

}  // namespace penstock::cli
