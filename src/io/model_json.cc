#include "io/model_json.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <functional>
#include <limits>

#include "base/check.h"
#include "base/counted.h"
#include "base/quote.h"
#include "penstock/cell.h"
#include "penstock/fields.h"
#include "penstock/spread_tracker.h"
#include "plan/cell_table.h"

namespace penstock::io {

namespace {

using nlohmann::json;

json columns_to_json(const std::vector<Column>& columns) {
  json result = json::array();
  for (const Column& column : columns) {
    result.push_back({{"name", column.name}, {"mean", column.mean}, {"scale", column.scale}});
    if (column.logarithm) result.back()["logarithm"] = true;
    if (column.feature != Feature::value) result.back()["feature"] = to_string(column.feature);
    if (column.feature == Feature::category) result.back()["category"] = column.category;
    if (column.ahead != 0) result.back()["ahead"] = column.ahead;
    if (column.reads_dates()) result.back()["dates"] = to_string(column.dates);
  }
  return result;
}

std::vector<Column> columns_from_json(const json& array, const std::string& source, const std::string& name) {
  std::vector<Column> result;
  for (const json& item : array) {
    ObjectReader reader(item, source, fmt::format("{}[{}]", name, result.size()));
    Column column;
    column.name = reader.string("name");
    column.mean = reader.number("mean");
    column.scale = reader.number("scale");
    column.logarithm = reader.boolean("logarithm", false);
    if (item.contains("feature")) column.feature = reader.parsed("feature", parse_feature);
    if (item.contains("category")) column.category = reader.string("category");
    column.ahead = reader.integer("ahead", 0);
    if (item.contains("dates")) column.dates = reader.parsed("dates", parse_date_form);
    reader.finish();
    result.push_back(std::move(column));
  }
  return result;
}

std::string brief(const json& value) {
  constexpr std::size_t limit = 60;
  std::string text = value.dump(-1, ' ', true, json::error_handler_t::replace);
  if (text.size() > limit) text = text.substr(0, limit) + "...";
  return text;
}

}  // namespace

ObjectReader::ObjectReader(const json& object, std::string source, std::string name)
    : object_(object), source_(std::move(source)), name_(std::move(name)) {
  if (!object_.is_object())
    fail(ErrorCode::bad_input, "{}: {} must be an object, not {}", source_, name_, brief(object_));
}

void ObjectReader::refuse(const char* field, const std::string& problem) const {
  fail(ErrorCode::bad_input, "{}: {}.{} {}", source_, name_, field, problem);
}

const json& ObjectReader::get(const char* field) {
  const auto found = object_.find(field);
  if (found == object_.end()) refuse(field, "is missing");
  ++read_;
  return *found;
}

Index ObjectReader::integer(const char* field, Index if_missing) {
  return object_.contains(field) ? integer(field) : if_missing;
}

Index ObjectReader::integer(const char* field) {
  const json& value = get(field);
  const bool too_large = value.is_number_unsigned() && value.get<std::uint64_t>() > std::numeric_limits<Index>::max();
  if (!value.is_number_integer() || too_large) refuse(field, "must be an integer, not " + brief(value));
  return value.get<Index>();
}

double ObjectReader::number(const char* field) {
  const json& value = get(field);
  if (!value.is_number()) refuse(field, "must be a number, not " + brief(value));
  return value.get<double>();
}

bool ObjectReader::boolean(const char* field, bool if_missing) {
  if (!object_.contains(field)) return if_missing;
  const json& value = get(field);
  if (!value.is_boolean()) refuse(field, "must be true or false, not " + brief(value));
  return value.get<bool>();
}

std::string ObjectReader::string(const char* field) {
  const json& value = get(field);
  if (!value.is_string()) refuse(field, "must be a string, not " + brief(value));
  return value.get<std::string>();
}

const json& ObjectReader::array(const char* field) {
  const json& value = get(field);
  if (!value.is_array()) refuse(field, "must be an array, not " + brief(value));
  return value;
}

std::vector<double> ObjectReader::numbers(const char* field, Index count) {
  std::vector<double> all;
  for (const json& value : array(field)) {
    if (!value.is_number()) refuse(field, "must hold numbers, not " + brief(value));
    all.push_back(value.get<double>());
  }
  const auto found = static_cast<Index>(all.size());
  if (count >= 0 && found != count) refuse(field, fmt::format("must hold {} numbers, not {}", count, found));
  return all;
}

const json& ObjectReader::object(const char* field) {
  const json& value = get(field);
  if (!value.is_object()) refuse(field, "must be an object, not " + brief(value));
  return value;
}

void ObjectReader::finish() const {
  if (read_ != object_.size()) {
    fail(ErrorCode::bad_input, "{}: {} has {}, of which this version knows {}", source_, name_,
         counted(object_.size(), "field"), read_);
  }
}

void add_cell(const std::string& cell, json& object) {
  object["cell"] = cell;
  if (plan::cell_traits(cell).formula != nullptr) object["cell_equations"] = json::parse(cell_json(cell));
}

std::string read_cell(ObjectReader& reader, const json& object, const std::string& source) {
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
  add_cell(spec.cell, object);
  return object;
}

ModelSpec model_spec_from_json(const json& object, const std::string& source) {
  ObjectReader reader(object, source, "model");
  ModelSpec spec;
  spec.cell = read_cell(reader, object, source);
  // Older files lack these: their models are as the defaults say.
  constexpr std::array<std::string_view, 7> later = {"end_norms", "from_last", "lags",   "known_effects",
                                                     "filters",   "dilations", "members"};
  visit_fields(spec, [&](const char* name, auto& value) {
    if (object.contains(name) || std::ranges::find(later, name) == later.end()) reader.read(name, value);
  });
  reader.finish();
  return spec;
}

namespace {

json scalings_to_json(const std::vector<Scaling>& scalings) {
  json result = json::array();
  for (const Scaling& scaling : scalings) result.push_back({scaling.mean, scaling.scale});
  return result;
}

json groups_to_json(const DataDescription& data) {
  json series = json::array();
  for (const Group& group : data.series.groups) {
    series.push_back({{"name", group.name},
                      {"inputs", scalings_to_json(group.inputs)},
                      {"targets", scalings_to_json(group.targets)}});
  }
  json result = {{"column", data.series.group_column}, {"series", std::move(series)}};
  if (data.series.groups_are_files) result["files"] = true;
  return result;
}

json row_dates_to_json(const RowDates& dates) {
  return {{"irregular", to_string(dates.irregular)},
          {"column", dates.column},
          {"dates", to_string(dates.form)},
          {"step", dates.step},
          {"working_days", dates.working_days}};
}

}  // namespace

json to_json(const DataDescription& data) {
  json result = {{"task", to_string(data.task)},
                 {"vocabulary", data.vocabulary},
                 {"inputs", columns_to_json(data.inputs)},
                 {"targets", columns_to_json(data.targets)},
                 {"horizon", data.series.horizon},
                 {"season", data.series.season},
                 {"classes", data.labels.classes},
                 {"delimiter", std::string(1, data.table.delimiter)},
                 {"decimal", std::string(1, data.table.decimal)},
                 {"header", data.table.header},
                 {"missing", to_string(data.table.missing)},
                 {"sample_rate", data.sample_rate}};
  if (!data.series.spread.empty()) {
    result["spread"] = {{"levels", data.series.spread.levels},
                        {"quantiles", data.series.spread.quantiles},
                        {"scales", data.series.spread.scales},
                        {"relative", data.series.spread.relative}};
    for (const Spread::Ending& ending : data.series.spread.endings) {
      result["spread"]["endings"].push_back(
          {{"group", ending.group}, {"values", ending.values}, {"widths", ending.widths}});
    }
  }
  if (!data.series.group_column.empty()) result["groups"] = groups_to_json(data);
  if (data.labels_texts())
    result["texts"] = {{"column", data.labels.text_column}, {"longest", data.labels.longest_text}};
  if (!data.series.row_dates.column.empty()) result["row_dates"] = row_dates_to_json(data.series.row_dates);
  if (data.series.undated != Undated::refuse) result["undated"] = to_string(data.series.undated);
  return result;
}

namespace {

std::vector<float> read_floats(ObjectReader& reader, const char* field, Index count) {
  std::vector<float> floats;
  for (const double number : reader.numbers(field, count)) {
    if (!(std::abs(number) <= static_cast<double>(std::numeric_limits<float>::max()))) {
      reader.refuse(field, fmt::format("must hold floats, not {:g}", number));
    }
    floats.push_back(static_cast<float>(number));
  }
  return floats;
}

Spread::Ending read_ending(const json& object, const std::string& source, Index targets) {
  ObjectReader reader(object, source, "data.spread.endings");
  Spread::Ending ending;
  ending.group = reader.string("group");
  ending.values = read_floats(reader, "values", -1);
  if (ending.values.empty() || static_cast<Index>(ending.values.size()) % targets != 0) {
    reader.refuse("values", fmt::format("must hold rows of {} values, not {} values", targets, ending.values.size()));
  }
  ending.widths = read_floats(reader, "widths", 2 * targets);
  try {
    for (std::size_t i = 0; i < ending.widths.size(); i += 2) {
      RecentWidth().restore(ending.widths[i], ending.widths[i + 1]);
    }
  } catch (const Error& error) {
    reader.refuse("widths", fmt::format("are wrong: {}", error.what()));
  }
  reader.finish();
  return ending;
}

Spread read_spread(const json& object, const std::string& source, const DataDescription& data) {
  ObjectReader reader(object, source, "data.spread");
  const auto targets = static_cast<Index>(data.targets.size());
  Spread spread;
  spread.levels = reader.numbers("levels");
  const auto levels = static_cast<Index>(spread.levels.size());
  if (levels < 2 || !(spread.levels.front() > 0.0) || !(spread.levels.back() < 1.0) ||
      std::ranges::adjacent_find(spread.levels, std::greater_equal<>()) != spread.levels.end()) {
    reader.refuse("levels", "must be two or more, ascending, between 0 and 1");
  }
  spread.quantiles = reader.numbers("quantiles", levels * targets);
  for (Index i = targets; i < levels * targets; ++i) {
    if (!(spread.quantiles[i] >= spread.quantiles[i - targets])) reader.refuse("quantiles", "must ascend");
  }
  spread.scales = reader.numbers("scales", data.output_size());
  if (!std::ranges::all_of(spread.scales, [](double scale) { return scale >= 0.0; })) {
    reader.refuse("scales", "must not be negative");
  }
  for (const double relative : reader.numbers("relative", targets)) {
    if (relative != 0.0 && relative != 1.0)
      reader.refuse("relative", fmt::format("must be 0 or 1, not {:g}", relative));
    spread.relative.push_back(relative != 0.0 ? 1 : 0);
  }
  if (object.contains("endings")) {
    for (const json& ending : reader.array("endings")) spread.endings.push_back(read_ending(ending, source, targets));
  }
  reader.finish();
  return spread;
}

std::vector<Scaling> read_scalings(ObjectReader& reader, const char* field) {
  std::vector<Scaling> scalings;
  for (const json& pair : reader.array(field)) {
    const bool numbers = pair.is_array() && pair.size() == 2 && pair[0].is_number() && pair[1].is_number();
    if (!numbers) reader.refuse(field, "must hold pairs of a mean and a scale, not " + brief(pair));
    scalings.push_back({pair[0].get<double>(), pair[1].get<double>()});
  }
  return scalings;
}

void read_groups(const json& object, const std::string& source, DataDescription& data) {
  ObjectReader reader(object, source, "data.groups");
  data.series.group_column = reader.string("column");
  data.series.groups_are_files = reader.boolean("files", false);
  for (const json& series : reader.array("series")) {
    ObjectReader fields(series, source, fmt::format("data.groups.series[{}]", data.series.groups.size()));
    Group group;
    group.name = fields.string("name");
    group.inputs = read_scalings(fields, "inputs");
    group.targets = read_scalings(fields, "targets");
    fields.finish();
    data.series.groups.push_back(std::move(group));
  }
  reader.finish();
}

RowDates read_row_dates(const json& object, const std::string& source) {
  ObjectReader reader(object, source, "data.row_dates");
  RowDates dates;
  dates.irregular = reader.parsed("irregular", parse_irregular);
  dates.column = reader.string("column");
  dates.form = reader.parsed("dates", parse_date_form);
  dates.step = reader.number("step");
  dates.working_days = reader.boolean("working_days", false);
  reader.finish();
  return dates;
}

void read_texts(const json& object, const std::string& source, DataDescription& data) {
  ObjectReader reader(object, source, "data.texts");
  data.labels.text_column = reader.string("column");
  if (data.labels.text_column.empty()) reader.refuse("column", "must name a column");
  data.labels.longest_text = reader.integer("longest");
  reader.finish();
}

}  // namespace

DataDescription data_description_from_json(const json& object, const std::string& source) {
  ObjectReader reader(object, source, "data");
  DataDescription data;
  const std::string task = reader.string("task");
  bool known = false;
  for (const Task value : {Task::language, Task::forecast, Task::classify}) {
    if (task == to_string(value)) data.task = value, known = true;
  }
  if (!known) reader.refuse("task", "must be language, forecast or classify, not " + in_quotes(task));
  data.vocabulary = reader.integer("vocabulary");
  data.inputs = columns_from_json(reader.array("inputs"), source, "data.inputs");
  data.targets = columns_from_json(reader.array("targets"), source, "data.targets");
  data.series.horizon = reader.integer("horizon");
  data.series.season = reader.integer("season", 0);
  for (const json& name : reader.array("classes")) {
    if (!name.is_string()) reader.refuse("classes", "must hold strings, not " + brief(name));
    data.labels.classes.push_back(name.get<std::string>());
  }
  const std::string delimiter = reader.string("delimiter");
  if (delimiter.size() != 1) reader.refuse("delimiter", "must be one character, not " + in_quotes(delimiter));
  data.table.delimiter = delimiter[0];
  // Files from before these fields hold tables with a header, points and no gaps.
  if (object.contains("decimal")) {
    const std::string decimal = reader.string("decimal");
    if (decimal != "." && decimal != ",") reader.refuse("decimal", "must be '.' or ',', not " + in_quotes(decimal));
    data.table.decimal = decimal[0];
  }
  data.table.header = reader.boolean("header", true);
  if (object.contains("missing")) data.table.missing = reader.parsed("missing", parse_missing);
  if (object.contains("sample_rate")) data.sample_rate = reader.integer("sample_rate");
  constexpr Index highest_rate = 10'000'000;
  if (data.sample_rate < 0 || data.sample_rate > highest_rate) {
    reader.refuse("sample_rate", fmt::format("must be 0 to {}, not {}", highest_rate, data.sample_rate));
  }
  if (object.contains("spread")) data.series.spread = read_spread(reader.object("spread"), source, data);
  if (object.contains("groups")) read_groups(reader.object("groups"), source, data);
  if (object.contains("texts")) read_texts(reader.object("texts"), source, data);
  if (object.contains("row_dates")) data.series.row_dates = read_row_dates(reader.object("row_dates"), source);
  if (object.contains("undated")) data.series.undated = reader.parsed("undated", parse_undated);
  reader.finish();
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

}  // namespace penstock::io
