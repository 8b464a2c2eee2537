#include "verbs/train/introduction.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "penstock/penstock.h"
#include "terminal/describe.h"
#include "terminal/units.h"

namespace penstock::cli {
namespace {

/// Whether batches are of whole sequences that have a label each.
bool is_labelled(DataKind kind) { return kind == DataKind::labelled || kind == DataKind::labelled_texts; }

/// What a score of so little is worth, and what else it is good for; empty if there is enough.
std::string few_held_out(const OpenedData& data, const std::string& else_for) {
  const Index count = data.dataset->held_out_steps();
  const bool labelled = is_labelled(data.kind);
  if ((!labelled && data.kind != DataKind::series) || count == 0 || count >= (labelled ? 10 : 12)) return {};
  return fmt::format("the hold-out set has only {} {}{}: too few for a reliable score{}", count,
                     !labelled                         ? "row"
                     : data.kind == DataKind::labelled ? "sequence"
                                                       : "text",
                     count == 1 ? "" : "s", else_for);
}

/// Of the planned steps.
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
  return fmt::format("{} ({}), {} thread{}", system.cpu, system.isa, threads, threads == 1 ? "" : "s");
}

void add_line(std::string& text, const char* what, const std::string& value) {
  if (!value.empty()) text += fmt::format("{:<7}{}\n", what, value);
}

/// What the data are, and how they were read.
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

}  // namespace

std::string introduction(const RunStart& start, const Model& model, const std::string& origin, bool planned) {
  const TrainArguments& arguments = start.arguments;
  const TrainOptions& options = start.options;
  std::string text = describe_data(start);
  add_line(text, "from", printable(origin));
  add_line(text, "note", few_held_out(start.data, " or early stopping"));
  const auto line = [&](const char* what, const std::string& value) { add_line(text, what, value); };
  line("model",
       describe_model(model) +
           (arguments.seeds > 1 ? fmt::format("; one for each of {} seeds, and their mean", arguments.seeds) : ""));
  if (start.data.kind == DataKind::labelled && !arguments.model.no_filters) {
    line("then", "convolution filters next to the layers, with a linear classifier");
  }
  const bool windows = !is_labelled(start.data.kind) && start.data.kind != DataKind::task;
  line("run", fmt::format("{} in batches of {}{}{}, {} at {:g}", describe_limits(start, planned), options.batch,
                          windows ? fmt::format(" x {}", options.length) : "", windows ? "" : " sequences",
                          options.optimizer == Optimizer::adamw ? "AdamW" : "SGD", options.learning_rate));
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
                       counted(model.spec().lags, "row"), counted(start.data.dataset->held_out_steps(), "row")));
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

}  // namespace penstock::cli
