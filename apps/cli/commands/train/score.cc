#include "commands/train/score.h"

#include <filesystem>
#include <string>
#include <string_view>

#include "penstock/penstock.h"
#include "penstock/sources.h"

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

/// One file, which standard input is not.
bool can_read_again(const DataOptions& data) {
  return data.sources.size() == 1 && data.source != "-" && !std::filesystem::is_directory(data.source);
}

Score score_held_out_text(const DataOptions& data, const Evaluation& validation) {
  Score score;
  score.bits_per_byte = validation.bits_per_step;
  score.bytes = validation.scored;
  constexpr Index most = 64 << 20;  // beyond that nobody waits for a compressor
  if (validation.scored > most || !can_read_again(data)) return score;
  const std::string text = read_source(data.source);
  score.compressors =
      compress(std::string_view(text).substr(text.size() - static_cast<std::size_t>(validation.scored)));
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
      return score_held_out_text(run.arguments.data, validation);
    case DataKind::sound:
    case DataKind::task:
      break;
  }
  return std::nullopt;
}

}  // namespace penstock::cli
