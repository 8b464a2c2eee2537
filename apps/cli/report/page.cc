#include "report/page.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <iterator>
#include <numbers>
#include <set>
#include <utility>

#include "penstock/model_file.h"
#include "penstock/version.h"
#include "report/date_texts.h"
#include "report/run_charts.h"
#include "report/verdict.h"
#include "terminal/units.h"

namespace penstock::cli::reporting {
namespace {

/// By which check_outputs() knows a page.
constexpr std::string_view page_begin =
    "<!DOCTYPE html>\n<html lang=\"en\">\n<meta name=\"generator\" content=\"penstock";

std::string number(double value) { return std::isfinite(value) ? short_number(value) : "-"; }

/// "12.5 %"
std::string percent(double share, int decimals = 1) {
  return std::abs(share) < 1e4 ? fmt::format("{:.{}f} %", 100.0 * share, decimals) : "-";
}

std::string list_entry(const char* name, const std::string& value) {
  return value.empty() ? "" : fmt::format("<dt>{}</dt><dd>{}</dd>", name, html(value));
}

/// Returns the score of the finished model, in the unit of the data; empty for several columns, which have no single
/// figure.
std::string final_score(const Run& run) {
  const double accuracy = number_of(run.score, "accuracy");
  if (std::isfinite(accuracy)) return percent(accuracy) + " accuracy";
  const double ratio = number_of(run.score, "esr"), emphasised = number_of(run.score, "esr_pre_emphasised");
  if (std::isfinite(ratio)) return fmt::format("ESR {}, {} with pre-emphasis", number(ratio), number(emphasised));
  const Json columns = run.score.value("columns", Json::object());
  if (!columns.is_object() || columns.size() != 1) return "";
  const double rmse = number_of(columns.begin().value(), "rmse");
  return std::isfinite(rmse) ? fmt::format("RMSE {} of {}", number(rmse), printable(columns.begin().key())) : "";
}

/// The figure that people compare runs by.
std::string headline(const Run& run) {
  std::string score = run.score.is_object() ? final_score(run) : "";
  if (!score.empty()) return score;
  const Json validation = run.ended() ? run.end.value("validation", Json()) : Json();
  double loss = NAN, accuracy = NAN;
  if (validation.is_object()) {
    loss = number_of(validation, "loss");
    accuracy = number_of(validation, "accuracy");
  } else if (!run.validations.empty()) {
    loss = run.validations.back().loss;
    accuracy = run.validations.back().accuracy;
  }
  const std::string task = text_of(run.about, "task");
  if (task == "classify" && std::isfinite(accuracy)) return percent(accuracy) + " accuracy";
  if (!std::isfinite(loss)) return "";
  return fmt::format("{} {}", number(task == "language" ? loss / std::numbers::ln2 : loss), loss_name(run));
}

std::string state_of(const Run& run) {
  if (!run.ended()) return run.measurements.empty() ? "" : "still running, or ended without a result";
  if (run.end.value("interrupted", Json(false)) == true) return "interrupted";
  return run.end.value("stopped_early", Json(false)) == true ? "ended by early stopping" : "ended";
}

std::string steps_of(const Run& run) {
  if (run.measurements.empty()) {
    const double steps = number_of(run.about, "steps");
    return std::isfinite(steps) ? whole_number(steps) : "";
  }
  const Measurement& last = run.measurements.back();
  return fmt::format("{} in {}", whole_number(last.step), clock_time(last.seconds));
}

std::string rate_of(const Run& run) {
  std::vector<double> rates;
  for (const Measurement& each : run.measurements) {
    if (std::isfinite(each.rate)) rates.push_back(each.rate);
  }
  if (rates.empty()) return "";
  const auto middle = rates.begin() + static_cast<std::ptrdiff_t>(rates.size() / 2);
  std::ranges::nth_element(rates, middle);
  const std::string unit = text_of(run.about, "unit");
  if (unit == "B") return byte_size(*middle) + "/s";
  return fmt::format("{} {}/s", short_count(*middle), unit.empty() ? "positions" : unit);
}

std::string skipped_of(const Run& run) {
  if (run.measurements.empty()) return "";
  const double skipped = run.measurements.back().skipped;
  return skipped > 0.0 ? whole_number(skipped) : "none";
}

/// Returns words for the written model, if it is not the last one and its layers count.
std::string kept_of(const Run& run) {
  const double step = run.ended() ? number_of(run.end, "model_step") : NAN;
  if (!run.layers_count || !(step < number_of(run.end, "step"))) return "";
  return step > 0.0 ? fmt::format("the model of step {}, the best", whole_number(step))
                    : "the model before the first step, the best";
}

std::string run_card(const Run& run, std::size_t index) {
  const std::string score = headline(run);
  std::string out = fmt::format(R"html(<section class="card run" style="--run: var(--c{})"><h3>{}</h3>)html",
                                index % colours, html(run.name));
  if (!score.empty()) {
    const std::string where = run.scored_on.empty() ? "held out" : "on " + printable(run.scored_on);
    out += fmt::format(R"(<p class="score">{} <span class="note">{}</span></p>)", html(score), html(where));
  }
  if (const std::string said = verdict(run); !said.empty()) {
    const bool bad = said.starts_with("WORSE") || said.starts_with("NO BETTER") || said.starts_with("no better");
    out += fmt::format(R"(<p class="verdict{}">{}</p>)", bad ? " bad" : "", html(said));
  }
  out += "<dl>";
  out += list_entry("model", model_name(run));
  out += list_entry("data", text_of(run.about, "summary"));
  out += list_entry("trained", text_of(run.about, "trained"));
  out += list_entry("steps", steps_of(run));
  out += list_entry("rate", rate_of(run));
  out += list_entry("skipped", skipped_of(run));
  out += list_entry("kept", kept_of(run));
  out += list_entry("weight", run.weight);
  out += list_entry("held out", text_of(run.about, "score"));
  out += list_entry("state", state_of(run));
  return out + "</dl></section>";
}

std::string legend(const Chart& chart) {
  if (chart.lines.size() + chart.bands.size() < 2) return "";
  std::string out = R"(<ul class="legend">)";
  const auto entry = [&](const std::string& shape, const std::string& name) {
    out += fmt::format(R"(<li><svg viewBox="0 0 22 11" aria-hidden="true">{}</svg>{}</li>)", shape, html(name));
  };
  for (const Line& line : chart.lines) {
    entry(fmt::format(R"(<line class="{}" x1="1" y1="6" x2="21" y2="6"/>)", line_class(line)), line.name);
  }
  for (const Band& band : chart.bands) {
    if (band.name.empty()) continue;
    entry(fmt::format(R"(<rect class="band c{}" width="22" height="11"/>)", band.colour % colours), band.name);
  }
  return out + "</ul>";
}

/// Returns the values to come as a table, from the lines and bands of their chart; empty if there are none.
std::string coming_table(const Chart& chart) {
  constexpr std::size_t shown = 60;
  const auto line = std::ranges::find(chart.lines, Line::Style::dashed, &Line::style);
  if (line == chart.lines.end()) return "";
  const auto band = std::ranges::find_if(chart.bands, [&](const Band& each) {
    return each.x.size() + 1 == line->x.size() && each.x.front() == line->x[1];
  });
  const std::vector<std::string> dates = date_texts(chart.dates);
  std::string out =
      fmt::format(R"(<h4>Coming values</h4><div class="scroll coming"><table><tr><th>{}</th>)"
                  "<th>forecast</th>{}</tr>",
                  dates.empty() ? "row" : "date", band == chart.bands.end() ? "" : "<th>from</th><th>to</th>");
  const std::size_t count = line->x.size() - 1;
  for (std::size_t i = 0; i < std::min(count, shown); ++i) {
    const double row = line->x[i + 1];
    const std::string when = dates.empty() ? whole_number(row) : dates[dates.size() - count + i];
    out += fmt::format("<tr><td>{}</td><td>{}</td>", html(when), number(line->y[i + 1]));
    if (band != chart.bands.end()) {
      out += fmt::format("<td>{}</td><td>{}</td>", number(band->low[i]), number(band->high[i]));
    }
    out += "</tr>";
  }
  out += "</table></div>";
  if (band != chart.bands.end()) {
    const auto named = std::ranges::find_if(chart.bands, [](const Band& each) { return !each.name.empty(); });
    out += fmt::format(R"(<p class="note">From and to: {}s.</p>)", html(named->name));
  }
  if (count > shown) out += fmt::format(R"(<p class="note">And {} more rows.</p>)", count - shown);
  return out;
}

std::string chart_card(const Chart& chart) {
  std::string out =
      fmt::format(R"(<section class="card{}"><h3>{}{}</h3>)", chart.wide ? " wide" : "", html(chart.title),
                  chart.y_name.empty() ? "" : fmt::format(R"( <span class="unit">{}</span>)", html(chart.y_name)));
  if (!chart.note.empty()) out += fmt::format(R"(<p class="note">{}</p>)", html(chart.note));
  out += legend(chart);
  if (!chart.wide) return out + svg(chart, 420, 270) + "</section>";
  return out + fmt::format(R"(<div class="wide-only">{}</div><div class="narrow-only">{}</div>{}</section>)",
                           svg(chart, 1000, 300), svg(chart, 420, 300), coming_table(chart));
}

std::string error_row(const std::string& name, const Json& errors, bool ours) {
  const auto value = [&](const char* field) { return number(number_of(errors, field)); };
  const double smape = number_of(errors, "smape");
  return fmt::format("<tr{}><td>{}</td><td>{}</td><td>{}</td><td>{}</td><td>{}</td></tr>",
                     ours ? " class=\"ours\"" : "", html(name), value("rmse"), value("mae"), value("mase"),
                     percent(smape));
}

/// How often the truth lay where the model said that it would.
std::string coverage_note(const Json& entry) {
  const Json quantiles = entry.value("quantiles", Json());
  if (!quantiles.is_object()) return "";
  const Json levels = quantiles.value("levels", Json());
  if (!levels.is_array() || levels.size() < 2 || !levels.front().is_number() || !levels.back().is_number()) return "";
  const double low = levels.front().get<double>(), high = levels.back().get<double>();
  return fmt::format(
      R"(<p class="note">{} of the values lay in the {} interval (quantiles {:g} to {:g}). Pinball loss {}.</p>)",
      percent(number_of(quantiles, "coverage"), 0), percent(high - low, 0), low, high,
      number(number_of(quantiles, "pinball")));
}

/// Returns a table with a row for each entry of `all`, compared with its best baseline: columns, or series of one
/// column (the field that `of` names).
std::string comparison_table(const std::string& title, const char* heading, const Json& all, const char* of) {
  constexpr int most = 200;
  std::string out = fmt::format(R"(<section class="card wide"><h3>{}</h3><div class="scroll"><table><tr><th>{}</th>)",
                                html(title), heading);
  out += "<th>RMSE</th><th>MAE</th><th>MASE</th><th>best baseline</th><th>its RMSE</th><th>RMSE / baseline</th></tr>";
  int rows = 0;
  for (const auto& [name, whole] : all.items()) {
    const Json columns = *of != 0 && whole.is_object() ? whole.value(of, Json::object()) : Json();
    const Json entry = columns.is_object() && !columns.empty() ? columns.begin().value() : whole;
    if (!entry.is_object() || ++rows > most) continue;
    const std::string rival = text_of(entry, "best_rival");
    const Json rivals = entry.value("rivals", Json::object());
    const double theirs = rivals.is_object() ? number_of(rivals.value(rival, Json::object()), "rmse") : NAN;
    const auto value = [&](const char* field) { return number(number_of(entry, field)); };
    const double ratio = number_of(entry, "rmse") / theirs;
    out += fmt::format("<tr><td>{}</td><td>{}</td><td>{}</td><td>{}</td><td>{}</td><td>{}</td><td{}>{}</td></tr>",
                       html(printable(name)), value("rmse"), value("mae"), value("mase"), html(printable(rival)),
                       number(theirs), ratio >= 1.0 ? " class=\"bad\"" : "", number(ratio));
  }
  out += "</table></div>";
  if (rows > most) out += fmt::format(R"(<p class="note">And {} more.</p>)", rows - most);
  return out + "</section>";
}

std::string series_tables(const Run& run) {
  constexpr std::size_t most_in_detail = 3;  // columns; more of them are compared in one table
  const Json columns = run.score.value("columns", Json::object()), groups = run.score.value("groups", Json::object());
  if (!columns.is_object()) return "";
  std::string out;
  if (columns.size() > most_in_detail) return comparison_table(run.name, "column", columns, "");
  if (columns.size() == 1 && groups.is_object() && groups.size() > 1) {
    out = comparison_table(run.name + ": each series", "series", groups, "columns");
  }
  for (const auto& [column, entry] : columns.items()) {
    if (!entry.is_object()) continue;
    out += fmt::format(R"(<section class="card"><h3>{}: {}</h3><div class="scroll"><table><tr><th></th><th>RMSE</th>)",
                       html(run.name), html(printable(column)));
    out += "<th>MAE</th><th>MASE</th><th>sMAPE</th></tr>" + error_row("the model", entry, true);
    const Json rivals = entry.value("rivals", Json::object());
    if (rivals.is_object()) {
      for (const auto& [name, errors] : rivals.items()) {
        if (errors.is_object()) out += error_row(name, errors, false);
      }
    }
    out += "</table></div>" + coverage_note(entry) + "</section>";
  }
  return out;
}

std::string text_table(const Run& run) {
  const double bits = number_of(run.score, "bits_per_byte");
  if (!std::isfinite(bits)) return "";
  std::string out = fmt::format(
      R"(<section class="card"><h3>{}</h3><div class="scroll"><table><tr><th></th><th>bits per byte</th></tr>)"
      R"(<tr class="ours"><td>the model</td><td>{}</td></tr>)",
      html(run.name), number(bits));
  const Json rivals = run.score.value("compressors", Json::object());
  if (rivals.is_object()) {
    for (const auto& [name, value] : rivals.items()) {
      out += fmt::format("<tr><td>{} of these bytes alone</td><td>{}</td></tr>", html(name),
                         value.is_number() ? number(value.get<double>()) : "-");
    }
  }
  return out + "</table></div></section>";
}

/// Rows are the truth; the deeper a field, the larger its share of the row.
std::string confusion_table(const Run& run) {
  constexpr std::size_t widest_beside_others = 6;  // classes
  const Json classes = run.score.value("classes", Json::array()), counts = run.score.value("confusion", Json::array());
  std::string out = fmt::format(
      R"(<section class="card{}"><h3>{}</h3><p class="note">Rows: actual labels. Columns: predicted labels. Accuracy {}, macro-F1 )"
      R"({}. The most frequent label, "{}", scores {}.</p><div class="scroll"><table class="confusion"><tr><th></th>)",
      classes.size() > widest_beside_others ? " wide" : "", html(run.name), percent(number_of(run.score, "accuracy")),
      number(number_of(run.score, "macro_f1")), html(printable(text_of(run.score, "majority"))),
      percent(number_of(run.score, "majority_accuracy")));
  for (const Json& name : classes) out += fmt::format("<th>{}</th>", html(printable(name.get<std::string>())));
  out += "</tr>";
  for (std::size_t truth = 0; truth < classes.size(); ++truth) {
    double sum = 0.0;
    for (const Json& count : counts[truth]) sum += count.get<double>();
    out += fmt::format("<tr><th>{}</th>", html(printable(classes[truth].get<std::string>())));
    for (const Json& count : counts[truth]) {
      const double share = sum > 0.0 ? count.get<double>() / sum : 0.0;
      out += fmt::format(R"(<td{} style="--share:{:.3f}">{}</td>)",
                         share > 0.5    ? " class=\"deep\""
                         : share == 0.0 ? " class=\"zero\""
                                        : "",
                         share, whole_number(count.get<double>()));
    }
    out += "</tr>";
  }
  return out + "</table></div></section>";
}

std::string section(const char* title, const char* kind, const std::string& content) {
  if (content.empty()) return "";
  return fmt::format(R"(<h2>{}</h2><div class="{}">{}</div>)", title, kind, content);
}

std::string warnings_card(const Run& run) {
  constexpr std::size_t shown = 20;
  if (run.warnings.empty()) return "";
  std::string out = fmt::format(R"(<section class="card"><h3>{}</h3><ul class="warnings">)", html(run.name));
  for (std::size_t i = 0; i < std::min(shown, run.warnings.size()); ++i) {
    out += fmt::format("<li>{}</li>", html(printable(run.warnings[i])));
  }
  if (run.warnings.size() > shown) out += fmt::format("<li>and {} more</li>", run.warnings.size() - shown);
  return out + "</ul></section>";
}

}  // namespace

std::string html(std::string_view text) {
  constexpr std::pair<char, const char*> entities[] = {{'&', "&amp;"}, {'<', "&lt;"}, {'>', "&gt;"}, {'"', "&quot;"}};
  std::string out;
  for (const char c : text) {
    const auto* const entity = std::ranges::find(entities, c, &std::pair<char, const char*>::first);
    // Two control characters are allowed in a page.
    const char allowed = static_cast<unsigned char>(c) < 0x20 && c != '\n' && c != '\t' ? ' ' : c;
    out += entity != std::end(entities) ? entity->second : std::string(1, allowed);
  }
  return out;
}

namespace {

/// Returns which forecasts are drawn, if some are not.
std::string choice_note(const Run& run, std::size_t drawn) {
  std::set<std::string> series;
  for (const Json& record : run.forecasts) series.insert(text_of(record, "group"));
  const Json groups = run.score.is_object() ? run.score.value("groups", Json::object()) : Json::object();
  std::string text;
  if (groups.size() > series.size()) {
    text = fmt::format(
        "{} of {} series, compared with their best baselines: the worst, the middle and the best forecast. ",
        series.size(), groups.size());
  }
  if (run.forecasts.size() > drawn) text += fmt::format("{} of {} charts. ", drawn, run.forecasts.size());
  if (text.empty()) return "";
  return fmt::format(R"(<p class="note wide">{}<code>penstock predict --last --long</code> prints all forecasts.</p>)",
                     text);
}

/// Returns "sales.csv: training report"; several runs have a name of data only in common.
std::string title_of(const std::vector<Run>& runs) {
  std::string name = runs.empty() ? "" : data_name(runs.front());
  for (const Run& run : runs) name = data_name(run) == name ? name : "";
  const std::string what =
      runs.size() == 1 ? "training report" : fmt::format("training report, {} runs side by side", runs.size());
  return name.empty() ? what : fmt::format("{}: {}", name, what);
}

}  // namespace

std::string page(const std::vector<Run>& runs, const std::vector<Chart>& training,
                 const std::vector<std::vector<Chart>>& forecasts) {
  std::string cards, charts, ahead, scores, confusions, samples, warnings;
  for (std::size_t i = 0; i < runs.size(); ++i) cards += run_card(runs[i], i);
  for (const Chart& chart : training) charts += chart_card(chart);
  for (std::size_t i = 0; i < runs.size(); ++i) {
    const Run& run = runs[i];
    if (!forecasts[i].empty() && runs.size() > 1) ahead += fmt::format(R"(<h3 class="wide">{}</h3>)", html(run.name));
    ahead += choice_note(run, forecasts[i].size());
    for (const Chart& chart : forecasts[i]) ahead += chart_card(chart);
    if (run.score.is_object()) {
      scores += series_tables(run) + text_table(run);
      if (run.score.contains("confusion")) confusions += confusion_table(run);
    }
    for (const std::string& sample : run.samples) {
      samples +=
          fmt::format(R"(<section class="card"><h3>{}</h3><pre>{}</pre></section>)", html(run.name), html(sample));
    }
    warnings += warnings_card(run);
  }
  std::string out(page_begin);
  const std::string title = html(title_of(runs));
  out += fmt::format(
      " {}\">\n<meta charset=\"utf-8\">\n<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n"
      "<title>{}</title>\n<style>\n{}</style>\n<body>\n<header><h1>{}</h1><p>{}</p></header>\n<main>",
      PENSTOCK_VERSION, title, style_text, title, html(utc_time()));
  out += fmt::format(R"(<h2>Runs</h2><div class="runs">{}</div>)", cards);
  out += section("Forecasts and actual values", "charts", ahead);
  out += section("Scores and baselines", "charts", scores);
  out += section("Confusion", "charts", confusions);
  out += section("Samples", "charts", samples);
  out += section("Warnings", "charts", warnings);
  out += section("Training", "charts", charts);
  out +=
      fmt::format("</main>\n<footer><p>Written by penstock {}.</p></footer>\n<script>\n{}</script>\n</body>\n</html>\n",
                  PENSTOCK_VERSION, script_text);
  return out;
}

}  // namespace penstock::cli::reporting
