#include "report/verdict.h"

#include <fmt/format.h>

#include <cmath>
#include <filesystem>

#include "answers/score_report.h"
#include "terminal/units.h"

namespace penstock::cli::reporting {
namespace {

double best_rival_error(const Json& column) {
  const Json rivals = column.value("rivals", Json::object());
  return rivals.is_object() ? number_of(rivals.value(text_of(column, "best_rival"), Json::object()), "rmse") : NAN;
}

/// Counts of columns: all that can be compared, and those that are better than the best baseline.
struct Counts {
  int better = 0, all = 0;
  std::string only;  // the comparison of the column, if it is the only one
};

void count(const Json& columns, Counts& counts) {
  for (const auto& [name, column] : columns.items()) {
    if (!column.is_object()) continue;
    const double ours = number_of(column, "rmse"), theirs = best_rival_error(column);
    if (!std::isfinite(ours) || !std::isfinite(theirs)) continue;
    ++counts.all;
    counts.better += ours < theirs ? 1 : 0;
    counts.only = comparison(ours, theirs, printable(text_of(column, "best_rival")));
  }
}

std::string in_how_many(const Counts& counts, const char* what) {
  const bool mostly = 2 * counts.better >= counts.all;
  return fmt::format("{} than the best baseline in {} of {} {}", mostly ? "better" : "WORSE",
                     mostly ? counts.better : counts.all - counts.better, counts.all, what);
}

std::string verdict_on_series(const Json& score) {
  Counts columns, in_groups;
  count(score.value("columns", Json::object()), columns);
  if (columns.all == 0) return "";
  std::string text = columns.all == 1 ? columns.only : in_how_many(columns, "columns");
  const Json groups = score.value("groups", Json::object());
  for (const auto& [name, group] : groups.items()) {
    if (group.is_object()) count(group.value("columns", Json::object()), in_groups);
  }
  if (in_groups.all > columns.all) {
    text += "; " + in_how_many(in_groups, columns.all == 1 ? "series" : "columns of all series");
  }
  return text;
}

std::string verdict_on_labels(const Run& run) {
  const double points = 100.0 * (number_of(run.score, "accuracy") - number_of(run.score, "majority_accuracy"));
  if (!std::isfinite(points)) return "";
  const std::string rival = "the most frequent label '" + printable(text_of(run.score, "majority")) + "'";
  if (points <= 0.0) return "NO BETTER than " + rival;
  return std::abs(points) <= 100.0 ? fmt::format("better than {} by {:.1f} points", rival, points) : "";
}

std::string verdict_on_text(const Json& score) {
  std::string best;
  double least = INFINITY;
  const Json compressors = score.value("compressors", Json::object());
  for (const auto& [name, bits] : compressors.items()) {
    if (bits.is_number() && bits.get<double>() < least) least = bits.get<double>(), best = name;
  }
  return best.empty() ? ""
                      : comparison(number_of(score, "bits_per_byte"), least, printable(best) + " of these bytes alone");
}

/// Returns the comparison in the words that a model's file keeps of its score.
std::string noted_verdict(const std::string& score) {
  for (const char* const begin : {"WORSE than", "no better than", "better than", "better by"}) {
    const std::size_t at = score.find(begin);
    if (at != std::string::npos) return score.substr(at, score.find(';', at) - at);
  }
  return "";
}

}  // namespace

std::string data_name(const Run& run) {
  const auto file = [](const std::string& path) { return printable(std::filesystem::path(path).filename().string()); };
  if (!run.scored_on.empty()) return file(run.scored_on);
  const Json sources = run.about.value("data", Json::array());
  if (!sources.is_array() || sources.empty() || !sources.front().is_string()) {
    const std::string summary = text_of(run.about, "summary"), name = summary.substr(0, summary.find(": "));
    return text_of(run.about, "trained").empty() ? "" : file(name);
  }
  const std::string first = file(sources.front().get<std::string>());
  return sources.size() == 1 ? first : fmt::format("{} and {} more", first, sources.size() - 1);
}

std::string model_name(const Run& run) {
  constexpr std::string_view joint = ", plus ";
  std::string all = text_of(run.about, "description");
  const std::size_t plus = all.find(joint);
  if (run.layers_count || plus == std::string::npos) return all;
  const std::string rest = all.substr(plus + joint.size());
  return rest.substr(0, rest.find(", "));
}

std::string verdict(const Run& run) {
  if (!run.score.is_object()) return noted_verdict(text_of(run.about, "score"));
  if (run.score.contains("confusion")) return verdict_on_labels(run);
  if (run.score.contains("bits_per_byte")) return verdict_on_text(run.score);
  return verdict_on_series(run.score);
}

}  // namespace penstock::cli::reporting
