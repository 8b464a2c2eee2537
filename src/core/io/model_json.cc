#include "io/model_json.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <functional>

#include "base/check.h"
#include "base/quote.h"
#include "penstock/cell.h"
#include "penstock/fields.h"
#include "penstock/interval_tracker.h"
#include "plan/cell_table.h"

namespace penstock {

using nlohmann::json;

static void to_json(json& pair, const Scaling& scaling) { pair = {scaling.mean, scaling.scale}; }
static void from_json(const json& pair, Scaling& scaling) { scaling = {pair[0].get<double>(), pair[1].get<double>()}; }

namespace io {

namespace {

constexpr auto column_fields = [](auto& of, auto& column) {
  of.field("name", column.name);
  of.field("mean", column.mean);
  of.field("scale", column.scale);
  of.optional("logarithm", column.logarithm, column.logarithm);
  if (of.has("feature", column.feature != Feature::value)) of.named("feature", column.feature, parse_feature);
  of.optional("category", column.category, column.feature == Feature::category);
  of.optional("ahead", column.ahead, column.ahead != 0);
  of.optional("non_negative", column.non_negative, column.non_negative);
  if (of.has("dates", column.reads_dates())) of.named("dates", column.dates, parse_date_form);
};

constexpr auto autoregression_fields = [](auto& of, auto& linear) {
  of.field("lags", linear.lags);
  of.field("weights", linear.weights);
  of.field("bias", linear.bias);
  of.optional("effects", linear.effects, !linear.effects.empty());
};

constexpr auto series_fields = [](auto& of, auto& group) {
  of.field("name", group.name);
  constexpr const char* items = "pairs of a mean and a scale";
  const auto is_pair = [](const json& pair) {
    return pair.is_array() && pair.size() == 2 && pair[0].is_number() && pair[1].is_number();
  };
  of.list("inputs", items, group.inputs, is_pair);
  of.list("targets", items, group.targets, is_pair);
  if (of.has("own", group.own.lags > 0)) of.object("own", group.own, autoregression_fields);
};

constexpr auto groups_fields = [](auto& of, auto& series) {
  of.field("column", series.group_column);
  of.optional("files", series.groups_are_files, series.groups_are_files);
  of.objects("series", series.groups, series_fields);
};

constexpr auto row_dates_fields = [](auto& of, auto& dates) {
  of.named("irregular", dates.irregular, parse_irregular);
  of.field("column", dates.column);
  of.named("dates", dates.form, parse_date_form);
  of.field("step", dates.step);
  of.optional("working_days", dates.working_days);
};

constexpr auto ending_fields = [](auto& of, auto& ending) {
  of.field("group", ending.group);
  of.field("values", ending.values);
  of.field("widths", ending.widths);
};

constexpr auto spread_fields = [](auto& of, auto& spread) {
  of.field("levels", spread.levels);
  of.field("quantiles", spread.quantiles);
  of.field("scales", spread.scales);
  of.field("relative", spread.relative);
  if (of.has("endings", !spread.endings.empty())) of.objects("endings", spread.endings, ending_fields);
};

constexpr auto texts_fields = [](auto& of, auto& labels) {
  of.field("column", labels.text_column);
  of.field("longest", labels.longest_text);
};

/// Files from before some fields hold tables with a header, points and no gaps.
constexpr auto data_fields = [](auto& of, auto& data) {
  of.named("task", data.task, parse_task);
  of.field("vocabulary", data.vocabulary);
  of.objects("inputs", data.inputs, column_fields);
  of.objects("targets", data.targets, column_fields);
  of.field("horizon", data.series.horizon);
  of.optional("season", data.series.season);
  of.field("classes", data.labels.classes);
  of.field("delimiter", data.table.delimiter);
  of.optional("decimal", data.table.decimal);
  of.optional("header", data.table.header);
  if (of.has("missing")) of.named("missing", data.table.missing, parse_missing);
  of.optional("sample_rate", data.sample_rate);
  of.optional("latency", data.latency);
  if (of.has("spread", !data.series.errors.empty())) of.object("spread", data.series.errors, spread_fields);
  if (of.has("groups", !data.series.group_column.empty())) of.object("groups", data.series, groups_fields);
  if (of.has("texts", data.labels_texts())) of.object("texts", data.labels, texts_fields);
  const auto& dates = data.series.row_dates;
  if (of.has("row_dates", !dates.column.empty())) of.object("row_dates", data.series.row_dates, row_dates_fields);
  const bool drops = data.series.undated != Undated::refuse;
  if (of.has("undated", drops)) of.named("undated", data.series.undated, parse_undated);
};

}  // namespace

void add_cell(const std::string& cell, json& object) {
  object["cell"] = cell;
  if (plan::cell_traits(cell).custom != nullptr) object["cell_equations"] = json::parse(cell_json(cell));
}

std::string read_cell(FieldReader& reader, const json& object, const std::string& source) {
  std::string cell = reader.string("cell");
  if (!object.contains("cell_equations")) return cell;
  const CellInfo& defined = define_cell_json(reader.object("cell_equations").dump(), source);
  if (defined.name != cell) {
    reader.refuse("cell_equations",
                  fmt::format("are of a cell called {}, not {}", in_quotes(defined.name), in_quotes(cell)));
  }
  return cell;
}

json to_json(const ModelSpec& spec) {
  json object;
  visit_fields(spec, [&](const char* name, const auto& value) { object[name] = value; });
  if (!spec.int8.empty()) object["int8"] = spec.int8;
  add_cell(spec.cell, object);
  return object;
}

ModelSpec model_spec_from_json(const json& object, const std::string& source) {
  FieldReader reader(object, source, "model");
  ModelSpec spec;
  spec.cell = read_cell(reader, object, source);
  // Older files lack these: their models are as the defaults say.
  constexpr std::array<std::string_view, 7> later = {"end_norms", "from_last", "lags",   "known_effects",
                                                     "filters",   "dilations", "members"};
  visit_fields(spec, [&](const char* name, auto& value) {
    if (object.contains(name) || std::ranges::find(later, name) == later.end()) reader.field(name, value);
  });
  if (object.contains("int8")) reader.field("int8", spec.int8);
  reader.finish();
  return spec;
}

json to_json(const DataDescription& data) { return FieldWriter::written(data, data_fields); }

namespace {

void check_spread(const FieldReader& reader, const ErrorDistribution& spread, const DataDescription& data) {
  const auto targets = static_cast<Index>(data.targets.size()), levels = static_cast<Index>(spread.levels.size());
  const auto check_count = [&](const std::string& field, std::size_t found, Index count) {
    if (static_cast<Index>(found) == count) return;
    reader.refuse("spread." + field, fmt::format("must hold {} numbers, not {}", count, found));
  };
  if (levels < 2 || !(spread.levels.front() > 0.0) || !(spread.levels.back() < 1.0) ||
      std::ranges::adjacent_find(spread.levels, std::greater_equal<>()) != spread.levels.end()) {
    reader.refuse("spread.levels", "must be two or more, ascending, between 0 and 1");
  }
  check_count("quantiles", spread.quantiles.size(), levels * targets);
  for (Index i = targets; i < levels * targets; ++i) {
    if (!(spread.quantiles[i] >= spread.quantiles[i - targets])) reader.refuse("spread.quantiles", "must ascend");
  }
  check_count("scales", spread.scales.size(), data.output_size());
  if (!std::ranges::all_of(spread.scales, [](double scale) { return scale >= 0.0; })) {
    reader.refuse("spread.scales", "must not be negative");
  }
  check_count("relative", spread.relative.size(), targets);
  for (const ErrorDistribution::Ending& ending : spread.endings) {
    const auto values = static_cast<Index>(ending.values.size());
    if (values == 0 || targets == 0 || values % targets != 0) {
      reader.refuse("spread.endings.values",
                    fmt::format("must hold rows of {} values, not {} values", targets, values));
    }
    check_count("endings.widths", ending.widths.size(), 2 * targets);
    try {
      for (std::size_t i = 0; i < ending.widths.size(); i += 2) {
        RecentWidth().restore(ending.widths[i], ending.widths[i + 1]);
      }
    } catch (const Error& error) {
      reader.refuse("spread.endings.widths", fmt::format("are wrong: {}", error.what()));
    }
  }
}

}  // namespace

DataDescription data_description_from_json(const json& object, const std::string& source) {
  FieldReader reader(object, source, "data");
  DataDescription data;
  data_fields(reader, data);
  reader.finish();
  const char decimal = data.table.decimal;
  if (decimal != '.' && decimal != ',') {
    reader.refuse("decimal", "must be '.' or ',', not " + in_quotes(std::string_view(&decimal, 1)));
  }
  constexpr Index highest_rate = 10'000'000;
  if (data.sample_rate < 0 || data.sample_rate > highest_rate) {
    reader.refuse("sample_rate", fmt::format("must be 0 to {}, not {}", highest_rate, data.sample_rate));
  }
  if (data.latency < -highest_rate || data.latency > highest_rate) {
    reader.refuse("latency", fmt::format("must be {} to {}, not {}", -highest_rate, highest_rate, data.latency));
  }
  if (reader.has("spread")) check_spread(reader, data.series.errors, data);
  if (reader.has("texts") && !data.labels_texts()) reader.refuse("texts.column", "must name a column");
  return data;
}

json parse_object(const std::string& text, const std::string& source, const std::string& what) {
  json result = json::parse(text, nullptr, false);
  if (!result.is_object()) fail(ErrorCode::bad_input, "{}: {} is not a JSON object", source, what);
  return result;
}

std::string to_text(const json& value) {
  try {
    return value.dump();
  } catch (const json::type_error&) {
    fail(ErrorCode::bad_input, "names of columns and classes must be UTF-8: {}", brief(value));
  }
}

std::string difference(const std::string& name, const Place& there, const Place& here) {
  const json missing;
  if (there.value.is_object() && here.value.is_object()) {
    for (const auto& [key, value] : here.value.items()) {
      const auto found = there.value.find(key);
      const json& other = found == there.value.end() ? missing : *found;
      std::string result = difference(name + "." + key, {there.name, other}, {here.name, value});
      if (!result.empty()) return result;
    }
    for (const auto& [key, value] : there.value.items()) {
      if (!here.value.contains(key)) return difference(name + "." + key, {there.name, value}, {here.name, missing});
    }
    return {};
  }
  if (there.value.is_array() && here.value.is_array() && there.value.size() == here.value.size()) {
    for (std::size_t i = 0; i < here.value.size(); ++i) {
      std::string result =
          difference(fmt::format("{}[{}]", name, i), {there.name, there.value[i]}, {here.name, here.value[i]});
      if (!result.empty()) return result;
    }
    return {};
  }
  const auto of_objects = [](const json& value) { return value.is_array() && !value.empty() && value[0].is_object(); };
  if (of_objects(there.value) && of_objects(here.value)) {
    return fmt::format("{} has {} entries in {} and {} entries in {}", name, there.value.size(), there.name,
                       here.value.size(), here.name);
  }
  if (there.value == here.value) return {};
  return fmt::format("{} is {} in {} and {} in {}", name, brief(there.value), there.name, brief(here.value), here.name);
}

}  // namespace io

}  // namespace penstock
