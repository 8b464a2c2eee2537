#pragma once

#include <optional>

#include "answers/score_report.h"
#include "options/data_options.h"
#include "report/outcome.h"
#include "verbs/train/arguments.h"

namespace penstock::cli {

/// What a model was trained on, and how it computes.
struct TrainedOn {
  const TrainArguments& arguments;
  const OpenedData& data;
  const Execution& execution;
};

/// The errors of a trained model on what was held out, in the data's own units, beside those of baselines; nothing for
/// sound and built-in tasks, whose loss says it. Of a series, `trace` takes the forecasts.
std::optional<Score> score_held_out(const TrainedOn& on, const Model& model, const Evaluation& validation,
                                    std::optional<reporting::ForecastTraces>& trace);

}  // namespace penstock::cli
