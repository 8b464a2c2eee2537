#include "terminal/describe.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <vector>

#include "penstock/error.h"
#include "penstock/fields.h"
#include "terminal/terminal.h"
#include "terminal/units.h"

namespace penstock::cli {
namespace {

Json column_names(const std::vector<Column>& columns) {
  Json names = Json::array();
  for (const Column& column : columns) names.push_back(column.title());
  return names;
}

}  // namespace

std::string describe_layers(const ModelSpec& spec) {
  const ClosedFormBranchFields fixed = spec.branch_fields();
  const Index filters = fixed.filters * fixed.dilations;
  if (spec.blocks == 0) return counted(filters, "convolution filter");
  std::string text = fmt::format("{}, {} of width {}", spec.cell, counted(spec.blocks, "block"), spec.width);
  if (spec.hidden_size != 0) text += fmt::format(", hidden size {}", spec.hidden_size);
  if (spec.heads > 1) text += fmt::format(", {} heads", spec.heads);
  if (spec.convolution > 0) text += fmt::format(", convolution of {}", spec.convolution);
  if (spec.feed_forward > 0.0) text += fmt::format(", feed-forward x {:g}", spec.feed_forward);
  if (spec.dropout > 0.0) text += fmt::format(", dropout {:g}", spec.dropout);
  if (spec.from_last) text += ", relative to the last value";
  if (fixed.lags > 0) text += ", plus a linear forecast from " + counted(fixed.lags, "row");
  if (!spec.int8.empty()) text += ", " + counted(static_cast<Index>(spec.int8.size()), "layer") + " of int8";
  if (filters > 0) text += fmt::format(", plus {} filters", with_commas(filters));
  return text;
}

std::string describe_model(const Model& model) {
  const ModelSpec& spec = model.spec();
  return fmt::format("{}{}, {} parameters", spec.members > 1 ? fmt::format("the mean of {}: ", spec.members) : "",
                     describe_layers(spec), with_commas(model.parameter_count()));
}

std::string describe_own_forecasts(const DataDescription& data) {
  std::vector<std::string> names = data.series.own_forecasts();
  if (names.empty()) return {};
  constexpr std::size_t most = 12;  // in a line
  const std::string count = fmt::format("{} of {}", names.size(), data.series.groups.size());
  const std::string more = names.size() > most ? fmt::format(" and {} more", names.size() - most) : "";
  names.resize(std::min(names.size(), most));
  return fmt::format("{} series have a linear forecast of their own, better on their hold-out rows: {}{}", count,
                     printable(fmt::format("{}", fmt::join(names, ", "))), more);
}

Json model_json(const Model& model) {
  const ModelSpec& spec = model.spec();
  const DataDescription& data = model.data();
  Json json = {{"cell", spec.cell}};
  visit_fields(spec, [&](const std::string& name, const auto& value) {
    if (name != "end_norms" && name != "known_effects") json[name] = value;
  });
  if (spec.hidden_size == 0) json["hidden_size"] = spec.width;
  if (!spec.int8.empty()) json["int8"] = spec.int8;
  json["parameters"] = model.parameter_count();
  json["task"] = to_string(data.task);
  if (data.vocabulary > 0) json["vocabulary"] = data.vocabulary;
  if (!data.inputs.empty()) json["inputs"] = column_names(data.inputs);
  if (data.task == Task::forecast) {
    json["targets"] = column_names(data.targets);
    json["horizon"] = data.series.horizon;
    json["season"] = data.series.season;
    if (!data.series.groups.empty()) json["own_forecasts"] = data.series.own_forecasts();
  }
  if (!data.labels.classes.empty()) json["classes"] = data.labels.classes;
  return json;
}

Json evaluation_json(const DataDescription& data, const Evaluation& evaluation) {
  Json json = {{"loss", evaluation.loss}};
  if (data.task != Task::forecast) {
    json[data.task == Task::language && data.vocabulary == 256 ? "bits_per_byte" : "bits_per_step"] =
        evaluation.bits_per_step;
    json["accuracy"] = evaluation.accuracy;
  }
  json["scored"] = evaluation.scored;
  return json;
}

std::string json_line(const Json& json) { return json.dump(-1, ' ', false, Json::error_handler_t::replace) + "\n"; }

void require_task(const Model& model, const std::string& path, Task task, const std::string& what) {
  if (model.data().task == task) return;
  fail(ErrorCode::invalid_argument, "{} is for {} models, and {} is a {} model", what, to_string(task), printable(path),
       to_string(model.data().task));
}

void refuse_foreign_options(const CLI::App& app, const Model& model, const std::string& path) {
  const auto given = [&](const char* name) {
    const CLI::Option* option = app.get_option_no_throw(name);
    return option != nullptr && option->count() > 0;
  };
  for (const char* const option : {"--allow-negative", "--undated"}) {
    if (given(option)) require_task(model, path, Task::forecast, option);
  }
  const DataDescription& data = model.data();
  const bool reads_tables = data.labels_texts() || (data.vocabulary == 0 && data.sample_rate == 0);
  for (const char* const option : {"--delimiter", "--decimal", "--header", "--missing"}) {
    if (!given(option) || reads_tables) continue;
    fail(ErrorCode::invalid_argument, "{} is for models that read tables, and {} reads {}", option, printable(path),
         data.sample_rate > 0          ? "sound"
         : data.task == Task::language ? "text"
                                       : "tokens");
  }
}

}  // namespace penstock::cli
