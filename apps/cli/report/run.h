#pragma once

#include <string>
#include <vector>

#include "terminal/describe.h"

/// `penstock report`: what training runs measured, as one page that needs nothing but a browser.
namespace penstock::cli::reporting {

/// Measurements of a step; NaN if the record has none.
struct Measurement {
  double step, seconds, loss, accuracy, learning_rate, gradient_norm, clipped_norm, rate, saturated,
      first_gradient_ratio, skipped;
};

/// Measurements on held-out data.
struct Validation {
  double step, seconds, loss, accuracy;
};

/// A training run as its metrics tell it, or a model by itself.
struct Run {
  std::string path;
  std::string name;             ///< Name on the page.
  Json about = Json::object();  ///< The record "run": how and on what the model was trained.
  std::vector<Measurement> measurements;
  std::vector<Validation> validations;
  Json end;                     ///< The record "final"; null while the run goes on.
  Json score;                   ///< Result of score_json(); null if nothing was scored.
  std::string scored_on;        ///< The file it was scored on; empty: what training held out.
  std::string weight;           ///< Weights of the model's parts, if they are to be shown.
  bool layers_count = true;     ///< True if its layers have a part in what it says.
  std::vector<Json> forecasts;  ///< As ForecastTrace::records() makes them.
  std::vector<std::string> samples;
  std::vector<std::string> warnings;

  bool ended() const { return !end.is_null(); }
};

/// Takes in one record of a run. `place` ("FILE:12") begins messages about what is wrong with it.
void add_record(Run& run, const Json& record, const std::string& place);

/// Reads the file that `penstock train --metrics` writes; of a run that still goes on, what is there by now. Throws
/// Error(io_failure | bad_input) naming file and line.
Run read_run(const std::string& path);

/// A member of an object that may lack it, or hold something else.
std::string text_of(const Json& object, const char* field);
double number_of(const Json& object, const char* field);

/// Names that tell the runs apart: those of their files, or their paths where these are the same.
void name_runs(std::vector<Run>& runs);

}  // namespace penstock::cli::reporting
