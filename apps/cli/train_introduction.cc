#include "train_introduction.h"

#include <fmt/format.h>

#include "describe.h"
#include "penstock/penstock.h"
#include "units.h"

namespace penstock::cli {
namespace {

/// What a score of so little is worth; empty if there is enough.
std::string few_held_out(const OpenedData& data) {
  const Index count = data.dataset->held_out_steps();
  const bool labelled = data.kind == DataKind::labelled;
  if ((!labelled && data.kind != DataKind::series) || count == 0 || count >= (labelled ? 10 : 12)) return {};
  return fmt::format("{} {}{} held out: too few for a score to mean much, or to tell when to stop", count,
                     labelled ? "sequence" : "row", count == 1 ? " is" : "s are");
}

/// Of the planned steps.
double planned_passes(const RunStart& start) {
  const Index steps = start.data.kind == DataKind::labelled ? 1 : start.options.length;
  const auto positions = static_cast<double>(start.options.batch * steps);
  return static_cast<double>(start.options.max_steps) * positions /
         static_cast<double>(start.data.dataset->training_steps());
}

std::string describe_limits(const RunStart& start) {
  const TrainOptions& options = start.options;
  std::string limits;
  const auto add = [&](const std::string& limit) { limits += (limits.empty() ? "" : " or ") + limit; };
  if (options.max_steps > 0) add(with_commas(options.max_steps) + " steps");
  if (options.max_seconds > 0.0) add(fmt::format("{:g} s", options.max_seconds));
  if (options.max_epochs > 0.0) add(fmt::format("{:g} epochs", options.max_epochs));
  if (start.planned) limits += fmt::format(" ({:.0f} passes over the data)", planned_passes(start));
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

}  // namespace

std::string introduction(const RunStart& start) {
  const TrainArguments& arguments = start.arguments;
  const TrainOptions& options = start.options;
  std::string text;
  const auto line = [&](const char* what, const std::string& value) {
    if (!value.empty()) text += fmt::format("{:<7}{}\n", what, value);
  };
  const std::size_t others = arguments.data.sources.size() - 1;
  line("data", fmt::format("{}{}: {}", printable(arguments.data.source),
                           others > 0 ? fmt::format(" and {} more", others) : "", start.data.summary));
  for (const std::string& finding : start.data.reading) line("read", printable(finding));
  line("from", printable(start.origin));
  line("note", few_held_out(start.data));
  line("model",
       describe_model(start.model) +
           (arguments.seeds > 1 ? fmt::format("; one for each of {} seeds, and their mean", arguments.seeds) : ""));
  if (start.data.kind == DataKind::labelled && !arguments.model.no_filters) {
    line("then", "convolution filters beside the layers, read by a linear classifier");
  }
  const bool windows = start.data.kind != DataKind::labelled && start.data.kind != DataKind::task;
  line("run", fmt::format("{} in batches of {}{}{}, {} at {:g}", describe_limits(start), options.batch,
                          windows ? fmt::format(" x {}", options.length) : "", windows ? "" : " sequences",
                          options.optimizer == Optimizer::adamw ? "AdamW" : "SGD", options.learning_rate));
  if (options.patience > 0) {
    line("stop", fmt::format("when {} validations in a row, one every {}, are no better; the {} model is kept",
                             options.patience,
                             options.validate_steps == 1 ? "step" : with_commas(options.validate_steps) + " steps",
                             options.keep_best ? "best" : "last"));
  }
  line("on", describe_place(options.execution));
  return text;
}

}  // namespace penstock::cli
