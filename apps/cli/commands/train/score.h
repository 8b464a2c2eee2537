#pragma once

#include <optional>

#include "answers/score_report.h"
#include "commands/train/summary.h"
#include "report/outcome.h"

namespace penstock::cli {

/// The errors of a trained model on what was held out, in the data's own units, beside those of baselines; nothing for
/// built-in tasks, whose loss says it. Of a series, `trace` takes the forecasts.
std::optional<Score> score_held_out(const RunStart& run, const Model& model, const Evaluation& validation,
                                    std::optional<reporting::ForecastTraces>& trace);

}  // namespace penstock::cli
