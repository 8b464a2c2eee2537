#include <algorithm>
#include <cmath>

#include "penstock/train.h"

namespace penstock {

namespace {

// A model of the default size learns nothing to speak of in fewer steps, however little data there are ...
constexpr Index fewest_steps = 1200;
// ... but long sequences take longer each, and nobody waits for minutes when the data are a few hundred rows.
constexpr double positions_for_fewest = 2.5e6;
constexpr Index validations = 40;      // of a planned run
constexpr Index patience = 10;         // a quarter of the plan
constexpr Index fewest_to_judge = 30;  // held-out sequences by which a run is ended

double positions_of_a_batch(Dataset& data, const TrainOptions& options) {
  const std::string position = data.position();
  Example example;
  data.next(options.batch, options.length, example);
  data.restore(position);
  return static_cast<double>(example.rows) * static_cast<double>(example.steps);
}

/// Limits the steps of data that have an end: `passes` over them, or more where they are few.
void plan_steps(TrainOptions& options, Dataset& data, double passes, double scored_in_a_batch) {
  const double wanted = passes * static_cast<double>(data.training_steps()) / scored_in_a_batch;
  const double affordable = positions_for_fewest / positions_of_a_batch(data, options);
  const auto fewest = std::clamp<Index>(std::llround(affordable), validations, fewest_steps);
  options.max_steps = std::max<Index>(fewest, std::llround(wanted));
  options.validate_steps = std::max<Index>(1, options.max_steps / validations);
  options.patience = patience;
  options.keep_best = true;
}

}  // namespace

TrainOptions suggest_options(Dataset& data) {
  constexpr double passes_over_series = 70.0, passes_over_labelled = 30.0;
  TrainOptions options;
  options.validate_every = 30.0;
  if (data.training_steps() == 0) {  // generated without end
    options.batch = 64;
    options.max_steps = 2000;
    return options;
  }
  switch (data.description().task) {
    case Task::language: {
      options.batch = 16;
      // A long text is not learnt by heart in a minute; a short one is, and validations by time would come too late.
      const auto pass =
          static_cast<double>(data.training_steps()) / static_cast<double>(options.batch * options.length);
      constexpr double short_pass = 200.0;  // steps
      options.max_seconds = 60.0;
      options.keep_best = true;
      if (pass < short_pass) {
        constexpr Index least = 20;
        options.validate_steps = std::max<Index>(least, std::llround(pass));
        options.patience = patience;
      }
      break;
    }
    case Task::forecast:
      if (data.description().sample_rate > 0) {
        options.length = 1024;
        options.max_seconds = 60.0;
        options.keep_best = true;
        break;
      }
      options.batch = 16;
      options.length = 64;
      plan_steps(options, data, passes_over_series, static_cast<double>(options.batch * options.length));
      break;
    case Task::classify:
      plan_steps(options, data, passes_over_labelled, static_cast<double>(options.batch));
      // The loss on a handful of sequences is mostly chance, and ended runs long before they had learnt anything.
      if (data.held_out_steps() < fewest_to_judge) {
        options.patience = 0;
        options.keep_best = false;
      }
      break;
  }
  return options;
}

}  // namespace penstock
