#include "answers/stream_state.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <span>
#include <sstream>

#include "options/output_file.h"
#include "penstock/checksum.h"
#include "penstock/error.h"
#include "penstock/file_writer.h"
#include "penstock/model_file.h"
#include "terminal/terminal.h"
#include "terminal/units.h"

namespace penstock::cli {
namespace {

constexpr const char* state_kind = "penstock stream state";
constexpr int state_version = 2;  // since then there is a checksum

[[noreturn]] void bad(const std::string& path, const std::string& problem) {
  fail(ErrorCode::bad_input, "--state {}: {}", printable(path), problem);
}

std::vector<float> floats(const nlohmann::json& object, const char* name, const std::string& path) {
  try {
    return object.at(name).get<std::vector<float>>();
  } catch (const nlohmann::json::exception&) {
    bad(path, fmt::format("\"{}\" is not a list of numbers", name));
  }
}

nlohmann::json scalings_json(const std::vector<Scaling>& scalings) {
  nlohmann::json list = nlohmann::json::array();
  for (const Scaling& scaling : scalings) list.push_back({scaling.mean, scaling.scale});
  return list;
}

std::vector<Scaling> scalings(const nlohmann::json& object, const char* name, const std::string& path) {
  try {
    std::vector<Scaling> all;
    for (const auto& pair : object.at(name)) all.push_back({pair.at(0).get<double>(), pair.at(1).get<double>()});
    if (std::ranges::all_of(all, [](const Scaling& each) { return std::isfinite(each.mean) && each.scale > 0.0; }))
      return all;
  } catch (const nlohmann::json::exception&) {
    // The error below covers wrong types, too.
  }
  bad(path, fmt::format("\"{}\" is not a list of means and positive scales", name));
}

nlohmann::json group_json(const std::string& name, const StreamState::OfGroup& group) {
  nlohmann::json object = {{"name", name}, {"state", group.state}};
  if (!group.intervals.empty()) object["intervals"] = group.intervals;
  if (group.scaling) {
    object["inputs"] = scalings_json(group.scaling->inputs);
    object["targets"] = scalings_json(group.scaling->targets);
  }
  return object;
}

/// States from before there were versions have no checksum.
void check_sum(const nlohmann::json& object, const std::string& text, const std::string& path) {
  const nlohmann::json version = object.value("version", nlohmann::json());
  const nlohmann::json carried = object.value("checksum", nlohmann::json());
  if (version.is_null() && carried.is_null()) return;
  if (version.is_number_integer() && version > state_version) {
    fail(ErrorCode::incompatible, "--state {}: a newer Penstock wrote it (version {}, and this one reads up to {})",
         printable(path), version.dump(), state_version);
  }
  const std::size_t place = checksum_place(text, "checksum");
  const bool sound =
      version == state_version && carried.is_string() && place != text.npos && carried == checksum_of(text, place);
  if (!sound) bad(path, "damaged: the checksum does not match; remove the file to start with a new state");
}

}  // namespace

std::vector<float> kept_state(Session& session) {
  std::vector<float> state = session.state();
  if (std::ranges::all_of(state, [](float value) { return std::isfinite(value); })) return state;
  say("note: the state was not finite and is reset\n");
  session.reset();
  return session.state();
}

StreamState::StreamState(std::string path, const std::string& model)
    : path_(std::move(path)), checksum_(inspect_model_file(model).checksum) {
  check_writable_file("--state", path_);
  lock_.emplace("--state", path_);
  if (!std::filesystem::exists(path_)) return;
  std::ifstream file(path_, std::ios::binary);
  std::stringstream stream;
  stream << file.rdbuf();
  if (!file) bad(path_, "cannot be read");
  const std::string text = stream.str();
  const nlohmann::json object = nlohmann::json::parse(text, nullptr, false);
  if (!object.is_object() || object.value("kind", nlohmann::json()) != state_kind)
    bad(path_, "this is not a state of a stream");
  check_sum(object, text, path_);
  if (object.value("model", nlohmann::json()) != checksum_) {
    fail(ErrorCode::incompatible, "--state {}: this is the state of another model than {}", printable(path_),
         printable(model));
  }
  state_ = floats(object, "state", path_);
  expected = floats(object, "expected", path_);
  if (object.contains("intervals")) intervals = floats(object, "intervals", path_);
  read_groups(object.value("groups", nlohmann::json::array()));
  read_last_rows(object.value("last_rows", nlohmann::json::object()));
  found_ = true;
}

void StreamState::read_groups(const nlohmann::json& list) {
  for (const nlohmann::json& object : list) {
    const nlohmann::json name = object.is_object() ? object.value("name", nlohmann::json()) : nlohmann::json();
    if (!name.is_string()) bad(path_, "\"groups\" must be a list of states with names");
    OfGroup group{.state = floats(object, "state", path_), .intervals = {}, .scaling = {}};
    if (object.contains("intervals")) group.intervals = floats(object, "intervals", path_);
    if (object.contains("inputs")) {
      group.scaling = Group{
          .name = name, .inputs = scalings(object, "inputs", path_), .targets = scalings(object, "targets", path_)};
    }
    groups[name] = std::move(group);
  }
}

void StreamState::read_last_rows(const nlohmann::json& object) {
  if (!object.is_object()) bad(path_, "\"last_rows\" must be an object of rows");
  for (const auto& [name, row] : object.items()) {
    RowReader::LastRow& last = last_rows[name];
    last.values = floats(row, "values", path_);
    if (!row.contains("date")) continue;
    if (!row["date"].is_number()) bad(path_, "\"date\" is no number");
    last.date = row["date"].get<double>();
  }
}

void StreamState::restore(Session& session) const {
  if (found_) restore(session, state_);
}

void StreamState::restore(Session& session, std::span<const float> state) const {
  try {
    session.restore(state);
  } catch (const Error& error) {
    bad(path_, error.what());
  }
}

void StreamState::restore(IntervalTracker& tracker) const {
  try {
    for (const auto& [name, group] : groups) tracker.restore(group.intervals);
    tracker.restore(intervals);
  } catch (const Error& error) {
    bad(path_, error.what());
  }
}

void StreamState::restore(RowReader& reader) const {
  try {
    reader.set_last_rows(last_rows);
  } catch (const Error& error) {
    bad(path_, error.what());
  }
}

void StreamState::save(Session& session) const {
  nlohmann::json object = {
      {"kind", state_kind}, {"version", state_version},     {"checksum", std::string(checksum_digits, '0')},
      {"model", checksum_}, {"state", kept_state(session)}, {"expected", expected}};
  if (!intervals.empty()) object["intervals"] = intervals;
  for (const auto& [name, group] : groups) object["groups"].push_back(group_json(name, group));
  for (const auto& [name, row] : last_rows) {
    object["last_rows"][name] = {{"values", row.values}};
    if (row.date) object["last_rows"][name]["date"] = *row.date;
  }
  try {
    std::string text = object.dump() + "\n";
    const std::size_t place = checksum_place(text, "checksum");
    text.replace(place, checksum_digits, checksum_of(text, place));
    write_file(path_, text);
  } catch (const Error& error) {
    fail(error.code(), "--state: {}", printable(error.what()));
  }
}

}  // namespace penstock::cli
