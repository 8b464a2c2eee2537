#pragma once

#include <optional>
#include <string>

#include "answers/score_report.h"
#include "options/data_options.h"
#include "penstock/train/search.h"
#include "terminal/progress.h"
#include "verbs/train/arguments.h"

namespace penstock::cli {

/// What a run ends with.
struct RunEnd {
  const TrainArguments& arguments;
  const TrainOptions& options;
  const OpenedData& data;
  const Model& model;
  const FitResult& result;
  Measures measures;
  double rate = 0.0, step_rate = 0.0;  ///< Time steps of all sequences, and optimiser steps, a second.
  const std::optional<Score>& score;
  const std::optional<SearchResult>& search;
};

/// "mse 0.0312 on 20 held-out rows"
std::string validation_text(const TrainResult& result, const Measures& measures, DataKind kind);

/// Lines for a person.
std::string run_summary(const RunEnd& end);
Json run_json(const RunEnd& end);

}  // namespace penstock::cli
