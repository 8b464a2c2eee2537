#include "commands/train/score.h"

#include <string>

#include "penstock/penstock.h"

namespace penstock::cli {
namespace {

Score score_held_out_series(const RunStart& run, const Model& model, reporting::ForecastTraces& trace) {
  Score score;
  score.groups = score_groups_held_out(model, *run.data.dataset, run.options.execution,
                                       [&](const auto&... row) { trace.add(row...); });
  score.columns = score_all(score.groups);
  if (model.data().series.groups.empty()) score.groups.clear();
  return score;
}

std::string held_out_text(const Dataset& data) {
  constexpr Index piece = 1 << 16;
  std::string text;
  Example part;
  for (Index i = 0; data.validation(i, 1, piece, part); ++i) text.append(part.labels.begin(), part.labels.end());
  return text;
}

std::optional<Score> score_held_out_text(const Dataset& data, const Evaluation& validation) {
  if (data.description().vocabulary != 256) return std::nullopt;  // compressors know no tokens
  Score score;
  score.bits_per_byte = validation.bits_per_step;
  score.bytes = validation.scored;
  constexpr Index most = 64 << 20;  // beyond that nobody waits for a compressor
  if (validation.scored <= most) score.compressors = compress(held_out_text(data));
  return score;
}

}  // namespace

std::optional<Score> score_held_out(const RunStart& run, const Model& model, const Evaluation& validation,
                                    std::optional<reporting::ForecastTraces>& trace) {
  switch (run.data.kind) {
    case DataKind::series:
      return score_held_out_series(run, model, trace.emplace());
    case DataKind::labelled:
    case DataKind::labelled_texts:
      return score_held_out_labels(model, *run.data.dataset, run.options.execution);
    case DataKind::text:
      return score_held_out_text(*run.data.dataset, validation);
    case DataKind::sound:
      return score_held_out_sound(model, *run.data.dataset, run.options.execution);
    case DataKind::task:
      break;
  }
  return std::nullopt;
}

}  // namespace penstock::cli
