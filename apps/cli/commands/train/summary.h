#pragma once

#include <optional>
#include <string>
#include <vector>

#include "answers/score_report.h"
#include "commands/train/options.h"
#include "options/data_options.h"
#include "terminal/progress.h"

/// First and last lines that a run prints.
namespace penstock::cli {

/// Facts for the first lines of a run.
struct RunStart {
  const TrainArguments& arguments;
  const TrainOptions& options;
  const OpenedData& data;
};

/// The first lines of a run: the data and how they were read, the model, how long, when it stops, on what machine.
/// `origin` is the model that it goes on from, empty for fresh weights; `planned` whether its length was chosen by the
/// size of the data.
std::string introduction(const RunStart& start, const Model& model, const std::string& origin, bool planned);

/// Those of one that trains nothing, since the linear forecast of a series answers alone.
std::string introduction_of_linear(const RunStart& start, const Model& model);

/// Those of one that trains nothing, since filters answer alone, in spite of the options `given` for layers.
std::string introduction_of_filters(const RunStart& start, const std::vector<std::string>& given);

/// Facts for the last lines of a run.
struct RunEnd : RunStart {
  const Model& model;
  const FitResult& result;
  Measures measures;
  double rate = 0.0, step_rate = 0.0;  ///< Time steps of all sequences, and optimiser steps, a second.
  const std::optional<Score>& score;
};

/// "mse 0.0312 on 20 held-out rows"
std::string validation_text(const TrainResult& result, const Measures& measures, DataKind kind);

/// Its last lines, for a person.
std::string run_summary(const RunEnd& end);
Json run_json(const RunEnd& end);

}  // namespace penstock::cli
