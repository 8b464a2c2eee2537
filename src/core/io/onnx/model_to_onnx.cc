#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "base/check.h"
#include "base/quote.h"
#include "io/model_file.h"
#include "io/model_json.h"
#include "io/onnx/graph_writer.h"
#include "io/onnx/onnx_file.h"
#include "nn/model/model_graph.h"
#include "penstock/file_writer.h"
#include "penstock/onnx.h"

namespace penstock {

namespace io {

namespace {

/// The description of one series, or where values come normalised of all.
DataDescription described(const DataDescription& data, const OnnxOptions& options) {
  require_about(options.group.empty() || !options.normalised, "group",
                " goes without normalised: values that come normalised are of no series");
  require_argument(options.group.empty() || !data.series.group_column.empty(), "group", options.group,
                   "empty for a model of one series");
  if (data.series.group_column.empty() || options.normalised) return data;
  if (options.group.empty()) {
    fail_with(ErrorCode::invalid_argument,
              {"name the series that is meant by ", the_option("group"), ", or give ", the_option("normalised")},
              "the model is of {} series with a scaling each", data.series.groups.size());
  }
  const auto found = std::ranges::find(data.series.groups, options.group, &Group::name);
  require_argument(found != data.series.groups.end(), "group", options.group,
                   "one of the {} series that the model was trained on", data.series.groups.size());
  return data.of_group(*found);
}

/// Returns whether floats resolve a column's values as finely as its forecasts. A column around 1e9 that changes by 1
/// needs more digits than floats have.
bool is_told_by_floats(const Column& column) {
  if (column.feature != Feature::value) return true;
  constexpr double half_digit = 0x1p-24;  // of a float
  constexpr double little = 1e-2;         // of what is usual: less than any forecast is off by
  const double value = column.raw(0.0), off = column.normal(value + half_digit * std::abs(value));
  return std::abs(value) <= std::numeric_limits<float>::max() && std::abs(off) <= little;
}

/// x [..., width] as (x - mean) / scale, or of logarithms; `columns` describes the last axis. Raw values are floats
/// where all columns can be, or else doubles.
class Scaler {
 public:
  Scaler(OnnxGraph& graph, std::vector<Column> columns)
      : graph_(graph), columns_(std::move(columns)), doubles_(!std::ranges::all_of(columns_, is_told_by_floats)) {}

  /// Returns the type of raw values.
  const char* type() const { return doubles_ ? "double" : "float"; }

  std::string normal(std::string x) {
    x = where_logarithm("Log", x);
    if (doubles_) {
      x = apply("Sub", x, "mean", &Column::mean);
      return graph_.cast(apply("Div", x, "scale", &Column::scale), "float");
    }
    // A mean that is no float would shift all values alike; what it lacks is subtracted apart.
    const auto high = [](const Column& column) { return static_cast<float>(column.mean); };
    x = apply("Sub", x, "mean", high);
    const auto low = [&](const Column& column) {
      return static_cast<float>(column.mean - static_cast<double>(high(column)));
    };
    if (std::ranges::any_of(columns_, [&](const Column& column) { return low(column) != 0.0f; })) {
      x = apply("Sub", x, "mean.rest", low);
    }
    return apply("Div", x, "scale", &Column::scale);
  }

  std::string raw(std::string x) {
    if (doubles_) x = graph_.cast(x, "double");
    x = apply("Mul", x, "scale", &Column::scale);
    x = apply("Add", x, "mean", &Column::mean);
    x = where_logarithm("Exp", x);
    if (std::ranges::none_of(columns_, &Column::non_negative)) return x;
    return apply("Max", x, "lowest", [](const Column& column) {
      return column.non_negative ? 0.0 : -std::numeric_limits<double>::infinity();
    });
  }

 private:
  template <class Value>
  std::string apply(const char* op, const std::string& x, const char* name, const Value& value) {
    std::vector<double> values;
    std::ranges::transform(columns_, std::back_inserter(values), value);
    if (doubles_) return graph_.node(op, {x, graph_.doubles(name, values)});
    const std::vector<float> floats(values.begin(), values.end());
    return graph_.node(op, {x, graph_.floats(name, {static_cast<Index>(floats.size())}, floats)});
  }

  std::string where_logarithm(const char* op, const std::string& x) {
    std::vector<bool> which;
    for (const Column& column : columns_) which.push_back(column.logarithm);
    if (std::ranges::none_of(columns_, &Column::logarithm)) return x;
    const std::string changed = graph_.node(op, {x});
    return std::ranges::all_of(columns_, &Column::logarithm) ? changed
                                                             : graph_.node("Where", {graph_.flags(which), changed, x});
  }

  OnnxGraph& graph_;
  std::vector<Column> columns_;
  bool doubles_;
};

/// Writes a model, from its inputs to its outputs.
class ModelWriter {
 public:
  ModelWriter(const Model::Impl& model, const OnnxOptions& options)
      : model_(model), data_(described(model.data, options)), scaled_(data_.vocabulary == 0 && !options.normalised) {}

  OnnxModel write() {
    nn::GraphBuilder builder({});
    const nn::ModelEnds ends = nn::add_model(builder, model_.spec, model_.data, graph::Home::outputs);
    const graph::Graph network = builder.take_graph();
    const nn::Parameters<float>& parameters = *model_.parameters;
    GraphWriter writer(graph_, network, parameters.values(), &parameters);
    const Index state = writer.state_size();
    const std::string input = add_input();
    if (state > 0) {
      graph_.input({"state",
                    "float",
                    {"batch", std::to_string(state)},
                    "What the call before returned as next_state; zeros at the start of a sequence"});
    }
    writer.write(input, "state");
    add_output(writer.name_of(ends.outputs));
    if (state > 0) {
      graph_.output({"next_state", "float", {"batch", std::to_string(state)}, "The state after the last step"},
                    writer.next_state());
    }
    return {graph_.inputs(), graph_.outputs(), onnx_file(graph_, metadata())};
  }

 private:
  std::string titled(const std::vector<Column>& columns) const {
    std::vector<std::string> titles;
    for (const Column& column : columns) titles.push_back(column.title());
    return fmt::format("{}: {}", scaled_ ? "In the units of the data" : "Normalised", fmt::join(titles, ", "));
  }

  /// Series whose own forecasts are not in the file, where it serves many.
  std::string other_forecasts() const {
    const std::vector<std::string> names = data_.series.own_forecasts();
    if (names.empty()) return {};
    return fmt::format("; not for {}: give the group to export forecasts of their own", fmt::join(names, ", "));
  }

  std::string add_input() {
    if (data_.vocabulary > 0) {
      graph_.input({"tokens", "int64", {"batch", "time"}, fmt::format("Tokens 0 to {}", data_.vocabulary - 1)});
      return "tokens";
    }
    Scaler scaler(graph_, data_.inputs);
    graph_.input({"features",
                  scaled_ ? scaler.type() : "float",
                  {"batch", "time", std::to_string(data_.input_size())},
                  titled(data_.inputs)});
    if (!scaled_) return "features";
    graph_.enter("features/");
    return scaler.normal("features");
  }

  void add_output(std::string y) {
    if (data_.task != Task::forecast) {
      graph_.output({"logits",
                     "float",
                     {"batch", "time", std::to_string(data_.output_size())},
                     data_.labels.classes.empty() ? "Of the next token"
                                                  : fmt::format("Of {}", fmt::join(data_.labels.classes, ", "))},
                    y);
      return;
    }
    const auto targets = static_cast<Index>(data_.targets.size());
    graph_.enter("forecast/");
    const std::vector<Index> extents = {0, 0, data_.series.horizon, targets};
    y = graph_.node("Reshape", {y, graph_.integers(extents)});
    Scaler scaler(graph_, data_.targets);
    if (scaled_) y = scaler.raw(y);
    graph_.output({"forecast",
                   scaled_ ? scaler.type() : "float",
                   {"batch", "time", std::to_string(data_.series.horizon), std::to_string(targets)},
                   titled(data_.targets) + other_forecasts()},
                  y);
  }

  Metadata metadata() const {
    const auto names = [](const std::vector<Column>& columns) {
      nlohmann::json all = nlohmann::json::array();
      for (const Column& column : columns) all.push_back(column.title());
      return to_text(all);
    };
    Metadata result = model_metadata(model_.spec, data_);
    if (!data_.inputs.empty()) result["inputs"] = names(data_.inputs);
    if (!data_.targets.empty()) result["targets"] = names(data_.targets);
    if (!data_.labels.classes.empty()) result["classes"] = to_text(nlohmann::json(data_.labels.classes));
    return result;
  }

  const Model::Impl& model_;
  const DataDescription data_;
  const bool scaled_;
  OnnxGraph graph_{""};
};

}  // namespace

}  // namespace io

OnnxModel to_onnx(const Model& model, const OnnxOptions& options) {
  if (const auto own = model.of_series(io::described(model.data(), options))) return to_onnx(*own, {});
  return io::ModelWriter(model.impl(), options).write();
}

OnnxModel save_onnx(const Model& model, const std::string& path, const OnnxOptions& options) {
  OnnxModel onnx = to_onnx(model, options);
  write_file(path, onnx.file);
  return onnx;
}

}  // namespace penstock
