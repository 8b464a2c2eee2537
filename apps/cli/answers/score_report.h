#pragma once

#include <optional>
#include <string>
#include <vector>

#include "answers/input_findings.h"
#include "penstock/data/sound.h"
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
  std::optional<SoundError> sound;  // forecast of a sound ...
  Index samples = 0;                // ... over so many samples
};

/// How a file is scored, as far as the model's task reads it.
struct Scoring {
  RowOptions rows = {};
  std::string label_column = {};  ///< Of sequences or texts; if it is empty, the one of a usual name.
  SeriesScoring series = {};
  Execution execution = {};
};
/// Scores a file: forecasts compared with the rows that follow, every label, or how surprising a text is.
Score score_file(const Model& model, const std::string& path, const Scoring& scoring);
/// Returns whether a model reads the sequences of a built-in task, and no file.
bool reads_task_only(const Model& model);
/// The held-out sequences of a dataset.
Score score_held_out_labels(const Model& model, const Dataset& data, const Execution& execution);
/// The held-out part of a sound; empty without one, or if it is silent.
std::optional<Score> score_held_out_sound(const Model& model, const Dataset& data, const Execution& execution);

/// Returns a sentence that says whether an error or a size `ours` is below `theirs`, and by how much.
std::string comparison(double ours, double theirs, const std::string& rival);
/// Returns the errors of a sound in words: "error-to-signal ratio 0.01, of which DC 0; 0.02 with pre-emphasis".
std::string sound_text(const SoundError& error);
/// Lines for a person, each ending in a line end: `first` begins the first one, and as many blanks the others.
std::string score_lines(const Model& model, const Score& score, const std::string& first);
/// Returns the scores of the first column in a few words: "air: RMSE 5.008, ..., better than a season ago by 85 %";
/// empty if nothing was scored.
std::string score_headline(const Model& model, const Score& score);
Json score_json(const Model& model, const Score& score);

}  // namespace penstock::cli
