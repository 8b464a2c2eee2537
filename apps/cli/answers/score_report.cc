#include "answers/score_report.h"

#include "penstock/classify/labels.h"
#include "penstock/data/labelled_texts.h"

#include <fmt/format.h>
#ifdef PENSTOCK_LZMA
#include <lzma.h>
#endif
#ifdef PENSTOCK_ZLIB
#include <zlib.h>
#endif

#include <algorithm>
#include <memory>

#include "answers/compare_series.h"
#include "answers/input_findings.h"
#include "answers/step_answers.h"
#include "answers/text_score.h"
#include "penstock/error.h"
#include "penstock/sequence_run.h"
#include "penstock/stop.h"
#include "penstock/stream.h"
#include "terminal/input.h"
#include "terminal/units.h"

namespace penstock::cli {
namespace {

std::size_t best_of(std::span<const float> logits) { return static_cast<std::size_t>(likeliest(logits).index); }

std::string percent(double share) { return fmt::format("{:.1f} %", 100.0 * share); }

/// "31.2", with MASE and sMAPE where they mean something.
std::string errors_text(const ForecastErrors& errors) {
  std::string text = fmt::format("RMSE {}, MAE {}", short_number(errors.rmse), short_number(errors.mae));
  if (errors.mase > 0.0) text += fmt::format(", MASE {:.3f}", errors.mase);
  return text + fmt::format(", sMAPE {:.1f} %", 100.0 * errors.smape);
}

std::string rivals_text(const ColumnScore& score) {
  std::string text;
  for (const Rival& rival : score.rivals) {
    text += fmt::format("{}{} {}{}", text.empty() ? "RMSE of " : ", ", rival.name, short_number(rival.errors.rmse),
                        rival.name == "a season ago" ? fmt::format(" ({})", counted(score.season, "row")) : "");
  }
  return text;
}

/// "81 % of the values lie in the 80 % interval (quantiles 0.1 to 0.9); pinball loss 0.012"
std::string quantiles_text(const QuantileScore& score) {
  const double low = score.levels.front(), high = score.levels.back();
  std::string text;
  if (high > low) {
    text = fmt::format("{:.0f} % of the values lie in the {:.0f} % interval (quantiles {:g} to {:g}); ",
                       100.0 * score.coverage, 100.0 * (high - low), low, high);
  }
  return text + "pinball loss " + short_number(score.pinball);
}

std::vector<std::string> column_lines(const ColumnScore& column, const std::string& of_all) {
  std::vector<std::string> lines = {fmt::format("{}: {} of {}{}", printable(column.column), errors_text(column.model),
                                                counted(column.scored, "forecast value"), of_all)};
  if (column.quantiles) lines.push_back(quantiles_text(*column.quantiles));
  lines.push_back(rivals_text(column));
  const Rival& best = column.best_rival();
  lines.push_back(comparison(column.model.rmse, best.errors.rmse, best.name));
  return lines;
}

/// One line for each column.
std::vector<std::string> column_table(const std::vector<ColumnScore>& columns) {
  constexpr std::size_t most = 40;
  std::vector<GroupScore> each;
  for (const ColumnScore& column : columns) each.push_back({.group = column.column, .columns = {column}});
  return group_lines(each, "columns", most);
}

std::vector<std::string> series_lines(const Score& score) {
  constexpr std::size_t most_in_detail = 3;  // columns; more of them are compared in a table
  const std::string of_all = score.groups.size() > 1 ? fmt::format(" in {} series", score.groups.size()) : "";
  std::vector<std::string> lines;
  if (score.columns.size() > most_in_detail) lines = column_table(score.columns);
  for (std::size_t i = 0; score.columns.size() <= most_in_detail && i < score.columns.size(); ++i) {
    for (std::string& line : column_lines(score.columns[i], of_all)) lines.push_back(std::move(line));
  }
  if (score.groups.size() > 1) {
    for (std::string& line : group_lines(score.groups)) lines.push_back(std::move(line));
  }
  return lines;
}

std::vector<std::string> label_lines(const DataDescription& data, const LabelScore& score) {
  const std::string majority = printable(data.labels.classes[static_cast<std::size_t>(score.majority)]);
  std::vector<std::string> lines = {fmt::format("accuracy {}, macro-F1 {:.3f} on {}", percent(score.accuracy),
                                                score.macro_f1,
                                                counted(score.scored, data.labels_texts() ? "text" : "sequence"))};
  const double points = 100.0 * (score.accuracy - score.majority_accuracy);
  lines.push_back(fmt::format("{} than the most frequent label '{}' ({})",
                              points > 0.0 ? fmt::format("better by {:.1f} points", points) : "no better", majority,
                              percent(score.majority_accuracy)));
  constexpr std::size_t widest = 12;
  if (data.labels.classes.size() > widest) return lines;
  std::size_t width = 5;
  for (const std::string& name : data.labels.classes)
    width = std::max(width, std::min<std::size_t>(10, printable(name).size()));
  const auto cell = [&](const std::string& text) { return fmt::format(" {:>{}.{}}", text, width, width); };
  std::string head = cell("truth") + " |";
  for (const std::string& name : data.labels.classes) head += cell(printable(name));
  lines.push_back(head + "   (answers)");
  for (std::size_t truth = 0; truth < data.labels.classes.size(); ++truth) {
    std::string line = cell(printable(data.labels.classes[truth])) + " |";
    for (const Index count : score.confusion[truth]) line += cell(fmt::format("{}", count));
    lines.push_back(line);
  }
  return lines;
}

std::vector<std::string> text_lines(const Score& score) {
  std::vector<std::string> lines = {
      fmt::format("{} bits per byte on {}", short_number(score.bits_per_byte), counted(score.bytes, "byte"))};
  for (const Compressed& each : score.compressors) {
    lines.push_back(fmt::format(
        "{} ({} bits)", comparison(score.bits_per_byte, each.bits_per_byte, each.name + " of these bytes alone"),
        short_number(each.bits_per_byte)));
  }
  return lines;
}

double bits_a_byte(std::size_t compressed, std::size_t size) {
  return 8.0 * static_cast<double>(compressed) / static_cast<double>(size);
}

Json errors_json(const ForecastErrors& errors) {
  return {{"rmse", errors.rmse}, {"mae", errors.mae}, {"mase", errors.mase}, {"smape", errors.smape}};
}

Json columns_json(const std::vector<ColumnScore>& columns) {
  Json json = Json::object();
  for (const ColumnScore& column : columns) {
    Json entry = {{"scored", column.scored}, {"season", column.season}};
    entry.update(errors_json(column.model));
    if (column.quantiles) {
      entry["quantiles"] = {{"levels", column.quantiles->levels},
                            {"coverage", column.quantiles->coverage},
                            {"pinball", column.quantiles->pinball}};
    }
    for (const Rival& rival : column.rivals) entry["rivals"][rival.name] = errors_json(rival.errors);
    entry["best_rival"] = column.best_rival().name;
    json["columns"][column.column] = std::move(entry);
  }
  return json;
}

/// Names are unique, and to look each up among those before it would take the square of their number.
Json groups_json(const std::vector<GroupScore>& groups) {
  Json json = Json::object();
  auto& entries = json.get_ref<Json::object_t&>();
  entries.reserve(groups.size());
  for (const GroupScore& group : groups) entries.emplace_back(group.group, columns_json(group.columns));
  return json;
}

#ifdef PENSTOCK_LZMA
/// Bytes that `xz -9e` makes of a text, at a megabyte or two a second.
std::optional<std::size_t> xz_size(std::string_view text) {
  lzma_stream stream = LZMA_STREAM_INIT;
  const std::unique_ptr<lzma_stream, decltype(&lzma_end)> until_the_end(&stream, lzma_end);
  lzma_options_lzma options;
  lzma_lzma_preset(&options, 9 | LZMA_PRESET_EXTREME);
  // A dictionary beyond the text takes memory, ten times its size, and finds nothing.
  options.dict_size =
      std::clamp<std::uint32_t>(static_cast<std::uint32_t>(text.size()), LZMA_DICT_SIZE_MIN, options.dict_size);
  const lzma_filter filters[] = {{LZMA_FILTER_LZMA2, &options}, {LZMA_VLI_UNKNOWN, nullptr}};
  lzma_ret status = lzma_stream_encoder(&stream, filters, LZMA_CHECK_CRC64);
  constexpr std::size_t piece = 1 << 16;
  std::vector<std::uint8_t> packed(piece);
  while (status == LZMA_OK) {
    stop_if_asked();
    if (stream.avail_in == 0) {
      stream.next_in = reinterpret_cast<const std::uint8_t*>(text.data());
      stream.avail_in = std::min(piece, text.size());
      text.remove_prefix(stream.avail_in);
    }
    stream.next_out = packed.data();
    stream.avail_out = packed.size();
    status = lzma_code(&stream, text.empty() ? LZMA_FINISH : LZMA_RUN);
  }
  if (status != LZMA_STREAM_END) return std::nullopt;
  return stream.total_out;
}
#endif

Score score_text(const Model& model, const std::string& path, const Execution& execution) {
  constexpr std::size_t most_compressed = 64 << 20;  // beyond that nobody waits for a compressor
  Input input(path);
  input.show_progress();
  Output output;
  ByteAnswers answers(output, ByteAnswers::Style::silent);
  std::string kept;
  answer_bytes(model, input, execution, answers, [&](std::string_view text) {
    if (kept.size() < most_compressed) kept.append(text.substr(0, most_compressed - kept.size()));
  });
  Score score;
  score.bytes = answers.scored();
  score.bits_per_byte = score.bytes > 0 ? answers.bits() / static_cast<double>(score.bytes) : 0.0;
  score.compressors = compress(kept);
  return score;
}

}  // namespace

std::string comparison(double ours, double theirs, const std::string& rival) {
  if (!(theirs > 0.0)) return fmt::format("{} makes no errors, so no model can be better", rival);
  const double share = 1.0 - ours / theirs;
  if (std::abs(share) < 0.005) return fmt::format("no better than {}", rival);
  if (share > 0.0) return fmt::format("better than {} by {:.0f} %", rival, 100.0 * share);
  constexpr double told_in_percent = 10.0;
  const double ratio = ours / theirs;
  return fmt::format(
      "WORSE than the baseline {} by {}", rival,
      ratio < told_in_percent ? fmt::format("{:.0f} %", -100.0 * share) : "a factor of " + short_number(ratio));
}

std::vector<Compressed> compress(std::string_view text) {
  std::vector<Compressed> all;
  if (text.empty()) return all;
#ifdef PENSTOCK_ZLIB
  std::vector<unsigned char> zipped(compressBound(text.size()));
  uLongf zipped_size = zipped.size();
  if (compress2(zipped.data(), &zipped_size, reinterpret_cast<const Bytef*>(text.data()), text.size(), 9) == Z_OK) {
    all.push_back({"gzip -9", bits_a_byte(zipped_size, text.size())});
  }
#endif
#ifdef PENSTOCK_LZMA
  if (const auto size = xz_size(text)) all.push_back({"xz -9e", bits_a_byte(*size, text.size())});
#endif
  return all;
}

bool reads_task_only(const Model& model) {
  const DataDescription& data = model.data();
  return data.task != Task::language && data.vocabulary > 0 && !data.labels_texts();
}

Score score_file(const Model& model, const std::string& path, const Scoring& scoring) {
  const DataDescription& data = model.data();
  if (data.task == Task::language) return score_text(model, path, scoring.execution);
  Score score;
  if (data.labels_texts()) {
    score.labels = score_labelled_texts(model, {path}, scoring.label_column, scoring.execution);
    return score;
  }
  Input input(path, Input::Holds::table);
  input.show_progress();
  if (data.task == Task::classify) {
    RowOptions with_label = scoring.rows;
    with_label.keep = {scoring.label_column.empty() ? "label" : scoring.label_column};
    Rows rows(input, data, with_label);
    score.labels = score_labelled(model, rows, scoring.execution);
    say_findings(rows);
    return score;
  }
  Rows rows(input, data, {.keep = {}, .format = scoring.rows.format});
  SeriesScore found = score_series(model, rows, scoring.series, scoring.execution);
  say_new_groups(found.new_groups, path, found.scaled_by);
  say_findings(rows);
  score.columns = std::move(found.columns);
  score.groups = std::move(found.groups);
  score.longest = found.longest;
  return score;
}

Score score_held_out_labels(const Model& model, const Dataset& data, const Execution& execution) {
  const std::size_t classes = model.data().labels.classes.size();
  const auto inputs = static_cast<std::size_t>(model.data().input_size());
  std::vector<std::vector<Index>> confusion(classes, std::vector<Index>(classes, 0));
  Example example;
  SequenceRun sequence(model, execution);
  for (Index i = 0; data.validation(i, 1, 1, example); ++i) {
    const auto steps = static_cast<std::size_t>(example.lengths.empty() ? example.steps : example.lengths.front());
    for (std::size_t t = 0; t < steps; ++t) {
      if (model.data().vocabulary > 0) {
        sequence.add(example.tokens[t]);
      } else {
        sequence.add(std::span<const float>(example.features).subspan(t * inputs, inputs));
      }
    }
    ++confusion[static_cast<std::size_t>(example.labels[steps - 1])][best_of(sequence.end())];
  }
  Score score;
  score.labels = score_labels(std::move(confusion));
  return score;
}

std::optional<Score> score_held_out_sound(const Model& model, const Dataset& data, const Execution& execution) {
  constexpr Index piece = 1 << 16;
  Session session(model, execution);
  Example part;
  const Index rate = data.description().sample_rate;
  Sound output{.sample_rate = rate, .samples = {}}, target = output;
  for (Index i = 0; data.validation(i, 1, piece, part); ++i) {
    stop_if_asked();
    for (const float value : session.process_chunk(part.features)) output.samples.push_back(value);
    target.samples.insert(target.samples.end(), part.targets.begin(), part.targets.end());
  }
  if (std::ranges::all_of(target.samples, [](float value) { return value == 0.0f; })) return std::nullopt;
  Score score;
  score.sound = compare_sounds(output, target);
  score.samples = static_cast<Index>(target.samples.size());
  return score;
}

std::string sound_text(const SoundError& error) {
  return fmt::format("error-to-signal ratio {}, of which DC {}; {} with pre-emphasis",
                     short_number(error.error_to_signal), short_number(error.dc), short_number(error.pre_emphasised));
}

std::string score_lines(const Model& model, const Score& score, const std::string& first) {
  std::vector<std::string> lines;
  if (score.labels) {
    if (score.labels->scored > 0) lines = label_lines(model.data(), *score.labels);
  } else if (score.sound) {
    lines = {fmt::format("{}, on {} held-out samples", sound_text(*score.sound), with_commas(score.samples))};
  } else if (model.data().task == Task::language) {
    if (score.bytes > 0) lines = text_lines(score);
  } else {
    lines = series_lines(score);
  }
  std::string text;
  for (const std::string& line : lines) text += (text.empty() ? first : std::string(first.size(), ' ')) + line + "\n";
  return text;
}

std::string score_headline(const Model& model, const Score& score) {
  if (score.labels) {
    if (score.labels->scored == 0) return "";
    const auto lines = label_lines(model.data(), *score.labels);
    return fmt::format("{}, {}", lines[0], lines[1]);
  }
  if (!score.compressors.empty()) {
    const auto best = std::ranges::min_element(score.compressors, {}, &Compressed::bits_per_byte);
    return comparison(score.bits_per_byte, best->bits_per_byte, best->name + " of these bytes alone");
  }
  if (score.sound) return sound_text(*score.sound);
  if (score.columns.empty()) return "";
  const ColumnScore& first = score.columns.front();
  const Rival& rival = first.best_rival();
  const std::size_t others = score.columns.size() - 1;
  return fmt::format("{}: {}, {}{}", printable(first.column), errors_text(first.model),
                     comparison(first.model.rmse, rival.errors.rmse, rival.name),
                     others > 0 ? fmt::format("; {} more", counted(static_cast<Index>(others), "column")) : "");
}

Json score_json(const Model& model, const Score& score) {
  Json json = Json::object();
  if (score.labels) {
    const LabelScore& labels = *score.labels;
    json = {{"scored", labels.scored},
            {"accuracy", labels.accuracy},
            {"macro_f1", labels.macro_f1},
            {"classes", model.data().labels.classes},
            {"confusion", labels.confusion},
            {"majority", model.data().labels.classes[static_cast<std::size_t>(labels.majority)]},
            {"majority_accuracy", labels.majority_accuracy}};
  } else if (score.sound) {
    json = {{"samples", score.samples},
            {"esr", score.sound->error_to_signal},
            {"esr_pre_emphasised", score.sound->pre_emphasised},
            {"dc", score.sound->dc}};
  } else if (model.data().task == Task::language) {
    json = {{"bytes", score.bytes}, {"bits_per_byte", score.bits_per_byte}};
    for (const Compressed& each : score.compressors) json["compressors"][each.name] = each.bits_per_byte;
  } else {
    json = columns_json(score.columns);
    if (!score.groups.empty()) json["groups"] = groups_json(score.groups);
  }
  return json;
}

}  // namespace penstock::cli
