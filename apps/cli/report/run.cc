#include "report/run.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <limits>
#include <map>

#include "penstock/error.h"
#include "terminal/input.h"
#include "terminal/units.h"

namespace penstock::cli::reporting {
namespace {

/// A number of a record; what JSON cannot say (infinity, NaN) is null there.
double measured(const Json& record, const char* field, const std::string& place) {
  const auto found = record.find(field);
  if (found == record.end() || found->is_null()) return std::numeric_limits<double>::quiet_NaN();
  if (!found->is_number()) fail(ErrorCode::bad_input, "{}: {} must be a number", place, field);
  return found->get<double>();
}

Measurement measurement_of(const Json& record, const std::string& place) {
  const auto get = [&](const char* field) { return measured(record, field, place); };
  return {.step = get("step"),
          .seconds = get("seconds"),
          .loss = get("loss"),
          .accuracy = get("accuracy"),
          .learning_rate = get("learning_rate"),
          .gradient_norm = get("gradient_norm"),
          .clipped_norm = get("clipped_norm"),
          // Where only the latter is, it counted positions.
          .rate = get(record.contains("positions_per_second") ? "positions_per_second" : "steps_per_second"),
          .saturated = get("saturated"),
          .first_gradient_ratio = get("first_gradient_ratio"),
          .skipped = get("skipped")};
}

Validation validation_of(const Json& record, const std::string& place) {
  const auto get = [&](const char* field) { return measured(record, field, place); };
  return {.step = get("step"), .seconds = get("seconds"), .loss = get("loss"), .accuracy = get("accuracy")};
}

/// A resumed run goes on from its checkpoint: what had been reported beyond that is done once more.
void forget_after(Run& run, double step) {
  std::erase_if(run.measurements, [&](const Measurement& each) { return each.step > step; });
  std::erase_if(run.validations, [&](const Validation& each) { return each.step > step; });
  run.end = nullptr;
  run.score = nullptr;
  run.forecasts.clear();
  run.samples.clear();
  run.weight.clear();
  run.layers_count = true;
}

std::string required_text(const Json& record, const char* field, const std::string& place) {
  const auto found = record.find(field);
  if (found != record.end() && found->is_string()) return found->get<std::string>();
  fail(ErrorCode::bad_input, "{}: {} must be a text", place, field);
}

void check_numbers(const Json& list, const std::string& name, const std::string& place) {
  const bool sound =
      list.is_array() && std::ranges::all_of(list, [](const Json& each) { return each.is_number() || each.is_null(); });
  if (!sound) fail(ErrorCode::bad_input, "{}: {} must be a list of numbers", place, name);
}

void check_forecast(const Json& record, const std::string& place) {
  required_text(record, "column", place);
  const Json lists = {{"truth", record.value("truth", Json())},
                      {"to_come", record.value("to_come", Json::array())},
                      {"dates", record.value("dates", Json::array())}};
  for (const auto& [name, list] : lists.items()) check_numbers(list, name, place);
  for (const char* group : {"ahead", "quantiles", "to_come_quantiles"}) {
    const Json members = record.value(group, Json::object());
    if (!members.is_object()) fail(ErrorCode::bad_input, "{}: {} must be an object", place, group);
    const std::size_t wanted = lists[group == std::string_view("to_come_quantiles") ? "to_come" : "truth"].size();
    for (const auto& [name, list] : members.items()) {
      check_numbers(list, group, place);
      if (list.size() != wanted) {
        const auto rows = static_cast<Index>(wanted);
        fail(ErrorCode::bad_input, "{}: {} has {}, and there {} {}", place, group,
             counted(static_cast<Index>(list.size()), "value"), rows == 1 ? "is" : "are", counted(rows, "row"));
      }
    }
  }
}

/// Checks what the page relies on.
void check_score(const Json& score, const std::string& place) {
  if (!score.is_object()) fail(ErrorCode::bad_input, "{}: score must be an object", place);
  const auto confusion = score.find("confusion");
  if (confusion == score.end()) return;
  const Json classes = score.value("classes", Json());
  bool sound = classes.is_array() && confusion->is_array() && confusion->size() == classes.size();
  for (std::size_t i = 0; sound && i < classes.size(); ++i) {
    const Json& row = (*confusion)[i];
    sound = classes[i].is_string() && row.is_array() && row.size() == classes.size() &&
            std::ranges::all_of(row, [](const Json& count) { return count.is_number(); });
  }
  if (!sound) fail(ErrorCode::bad_input, "{}: confusion must be a square of counts, a row a class", place);
}

}  // namespace

std::string text_of(const Json& object, const char* field) {
  const auto found = object.find(field);
  return found != object.end() && found->is_string() ? found->get<std::string>() : "";
}

double number_of(const Json& object, const char* field) {
  const auto found = object.find(field);
  return found != object.end() && found->is_number() ? found->get<double>() : std::numeric_limits<double>::quiet_NaN();
}

void add_record(Run& run, const Json& record, const std::string& place) {
  if (!record.is_object())
    fail(ErrorCode::bad_input, "{}: not a record of metrics, which 'penstock train --metrics FILE' writes", place);
  const std::string kind = required_text(record, "kind", place);
  if (kind == "run") {
    if (!record.value("architecture", Json::object()).is_object()) {
      fail(ErrorCode::bad_input, "{}: architecture must be an object", place);
    }
    run.about = record;
  } else if (kind == "train") {
    run.measurements.push_back(measurement_of(record, place));
    if (record.contains("warning")) run.warnings.push_back(required_text(record, "warning", place));
  } else if (kind == "validation") {
    run.validations.push_back(validation_of(record, place));
  } else if (kind == "final") {
    run.end = record;
  } else if (kind == "resume") {
    forget_after(run, measured(record, "step", place));
  } else if (kind == "score") {
    run.score = record.value("score", Json());
    check_score(run.score, place);
  } else if (kind == "weight") {
    run.weight = required_text(record, "text", place);
    run.layers_count = record.value("layers_count", Json(true)) != false;
  } else if (kind == "forecast") {
    check_forecast(record, place);
    run.forecasts.push_back(record);
  } else if (kind == "sample") {
    run.samples.push_back(required_text(record, "text", place));
  }
  // A later version may record more.
}

Run read_run(const std::string& path) {
  Input input(path);
  Run run;
  run.path = path;
  std::string line, torn;
  for (Index number = 1; input.line(line); ++number) {
    if (line.empty()) continue;
    const std::string place = fmt::format("{}:{}", printable(path), number);
    const Json record = Json::parse(line, nullptr, false);
    // A killed run leaves a torn line, behind which a resumed one begins.
    const std::string kind = record.is_object() ? text_of(record, "kind") : "";
    if (!torn.empty() && kind != "run" && kind != "resume") throw Error(ErrorCode::bad_input, torn);
    torn.clear();
    if (record.is_discarded()) {
      // The last line of a run that goes on may not be whole yet.
      torn = fmt::format("{}: not a record of metrics, which 'penstock train --metrics FILE' writes: '{}'", place,
                         printable(line));
      if (number == 1) throw Error(ErrorCode::bad_input, torn);
      continue;
    }
    add_record(run, record, place);
  }
  if (run.measurements.empty() && run.about.empty()) {
    fail(ErrorCode::bad_input, "{}: there are no metrics of a run in it", printable(path));
  }
  return run;
}

void name_runs(std::vector<Run>& runs) {
  std::map<std::string, int> uses;
  for (const Run& run : runs) ++uses[std::filesystem::path(run.path).stem().string()];
  std::map<std::string, int> given;
  for (Run& run : runs) {
    const std::string stem = std::filesystem::path(run.path).stem().string();
    run.name = printable(uses[stem] > 1 ? run.path : stem);
    if (const int count = ++given[run.name]; count > 1) run.name += fmt::format(" ({})", count);
  }
}

}  // namespace penstock::cli::reporting
