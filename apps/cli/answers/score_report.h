#pragma once

#include <optional>
#include <string>
#include <vector>

#include "answers/rows.h"
#include "penstock/train/score_rows.h"
#include "terminal/describe.h"

/// How well a model does on a file, next to baselines: computed, in words, and as JSON.
namespace penstock::cli {

/// Compressors that a model of text has to beat, in bits per byte; those that this program was built with.
struct Compressed {
  std::string name;
  double bits_per_byte = 0.0;
};
std::vector<Compressed> compress(std::string_view text);

/// Scores of one file: only the part of the model's task is filled.
struct Score {
  std::vector<ColumnScore> columns;  // forecast ...
  std::vector<GroupScore> groups;    // ... and of each series by itself, if there are several
  Index longest = 0;                 // ... rows of the longest
  std::optional<LabelScore> labels;  // classify
  double bits_per_byte = 0.0;        // language ...
  Index bytes = 0;                   // ... over so many bytes that were scored
  std::vector<Compressed> compressors;
};

/// Forecasts compared with the rows that follow.
Score score_series(const Model& model, const std::string& path, const RowFormat& format, const SeriesScoring& options,
                   const Execution& execution);
/// Every sequence or text of the file by its label column; if that is empty, by the one of a usual name.
Score score_labelled(const Model& model, const std::string& path, const RowOptions& rows,
                     const std::string& label_column, const Execution& execution);
/// The held-out sequences of a dataset.
Score score_held_out_labels(const Model& model, const Dataset& data, const Execution& execution);
Score score_text(const Model& model, const std::string& path, const Execution& execution);

/// Lines for a person, each ending in a line end: `first` begins the first one, and as many blanks the others.
std::string score_lines(const Model& model, const Score& score, const std::string& first);
/// Returns the scores of the first column in a few words: "air: RMSE 5.008, ..., better than a season ago by 85 %";
/// empty if nothing was scored.
std::string score_headline(const Model& model, const Score& score);
Json score_json(const Model& model, const Score& score);

}  // namespace penstock::cli
