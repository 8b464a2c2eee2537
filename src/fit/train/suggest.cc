#include <algorithm>
#include <cmath>
#include <cstdlib>

#include "data/labelled/labelled_passes.h"
#include "data/series/series_rows.h"
#include "penstock/data/dataset.h"
#include "penstock/data_description.h"
#include "penstock/system.h"
#include "penstock/train/train.h"
#include "train/suggest.h"

namespace penstock {

namespace {

// A model of the default size learns nothing to speak of in fewer steps, however little data there are ...
constexpr Index fewest_steps = 1200;
// ... but long sequences take longer each, and nobody waits for minutes when the data are a few hundred rows.
constexpr double positions_for_fewest = 2.5e6;
constexpr Index validations = 40;      // of a planned run
constexpr Index patience = 10;         // a quarter of the plan
constexpr Index fewest_to_judge = 30;  // held-out sequences by which a run is ended

// A batch of whole sequences takes about a gigabyte.
constexpr Index most_positions = Index{1} << 17;

/// Model and settings that learn a text in a minute.
struct TextPlan {
  Index width, blocks;
  double dropout;
  Index batch, length;
};

/// A CPU passes over a few million bytes once. A GPU makes dozens of passes, by which a small model has learnt what it
/// can and a large one learns a small text by heart: how many bytes there are says how large it may be.
TextPlan text_plan(Index bytes, Device device) {
  constexpr Index little = 1'000'000, much = 16'000'000;
  if (bytes < little) return {.width = 128, .blocks = 3, .dropout = 0.2, .batch = 16, .length = 256};
  if (!device.is_cuda()) return {.width = 128, .blocks = 3, .dropout = 0.0, .batch = 16, .length = 256};
  if (bytes < much) return {.width = 256, .blocks = 4, .dropout = 0.2, .batch = 64, .length = 256};
  return {.width = 512, .blocks = 6, .dropout = 0.1, .batch = 64, .length = 512};
}

/// Returns whether a GPU multiplies bfloat16: from compute capability 8.0 on. A missing GPU is reported when it is
/// used.
bool multiplies_bf16(Device device) {
  if (!device.is_cuda()) return false;
  const CudaInfo cuda = cuda_info();
  const auto index = static_cast<std::size_t>(device.index);
  return index < cuda.gpus.size() && std::atoi(cuda.gpus[index].compute_capability.c_str()) >= 8;
}

/// Limits the steps of data that have an end: `passes` over them, or more where they are few.
void plan_steps(TrainOptions& options, Dataset& data, double passes, double scored_in_a_batch) {
  const double wanted = passes * static_cast<double>(data.training_steps()) / scored_in_a_batch;
  const Example batch = training::next_batch(data, options);
  const double affordable = positions_for_fewest / (static_cast<double>(batch.rows) * static_cast<double>(batch.steps));
  const auto fewest = std::clamp<Index>(std::llround(affordable), validations, fewest_steps);
  options.max_steps = std::max<Index>(fewest, std::llround(wanted));
  options.validate_steps = std::max<Index>(1, options.max_steps / validations);
  options.patience = patience;
  options.keep_best = true;
}

}  // namespace

Example training::next_batch(Dataset& data, const TrainOptions& options) {
  const std::string position = data.position();
  Example example;
  data.next(options.batch, options.length, example);
  data.restore(position);
  return example;
}

ModelSpec suggest_spec(const Dataset& data, std::string_view cell, Device device) {
  const DataDescription& description = data.description();
  const bool text = description.task == Task::language, sound = description.sample_rate > 0;
  const bool series = description.task == Task::forecast && !sound, labelled = description.labels_sequences();
  ModelSpec spec;
  spec.width = sound ? 16 : 64;
  // A few thousand rows are learnt by heart soon.
  spec.dropout = series || labelled ? 0.2 : 0.0;
  if (text) {
    const TextPlan plan = text_plan(data.training_steps(), device);
    spec.width = plan.width;
    spec.dropout = plan.dropout;
    // Depth, and what reads neighbouring bytes together, gains more in a minute than width does.
    spec.blocks = plan.blocks;
    spec.convolution = 4;
    spec.feed_forward = 2.0;
  }
  if (description.labels_texts()) {
    spec.width = 64;
    spec.blocks = 2;
    spec.dropout = 0.2;
    spec.convolution = 4;  // which reads neighbouring bytes together
  }
  // How far a series will move depends on how far it has just moved, which a norm hides. A linear forecast sees it.
  spec.end_norms = !series || training::has_linear_forecast(data);
  // On small sets it is right more often, in twice the time.
  if (labelled) spec.cell = "gru";
  if (!cell.empty()) spec.cell = cell;
  // Gates that do not see the state learn from depth what others learn from the state.
  if (series && find_cell(spec.cell).scan) {
    spec.blocks = 4;
    spec.width = 48;
  }
  return spec;
}

TrainOptions suggest_options(Dataset& data, Device device) {
  constexpr double passes_over_series = 70.0, passes_over_labelled = 30.0;
  TrainOptions options;
  options.execution.device = device;
  options.validate_every = 30.0;
  if (data.training_steps() == 0) {  // generated without end
    options.batch = 64;
    options.max_steps = 2000;
    return options;
  }
  switch (data.description().task) {
    case Task::language: {
      const TextPlan plan = text_plan(data.training_steps(), device);
      options.batch = plan.batch;
      options.length = plan.length;
      options.max_seconds = 60.0;
      options.keep_best = true;
      if (multiplies_bf16(device)) options.execution.precision = Precision::bf16;
      // Who is quick learns a text by heart within that time: half a pass is never long.
      constexpr Index fewest = 20;  // steps
      const auto pass = static_cast<double>(data.training_steps()) / static_cast<double>(plan.batch * plan.length);
      options.validate_steps = std::max<Index>(fewest, std::llround(pass / 2.0));
      options.patience = patience;
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
      if (const auto* const whole = data.labelled_passes()) {
        options.batch = std::clamp<Index>(most_positions / std::max<Index>(whole->longest(), 1), 1, options.batch);
      }
      plan_steps(options, data, passes_over_labelled, static_cast<double>(options.batch));
      // The loss on a handful of sequences is mostly chance, and ended runs long before they had learnt anything.
      if (data.held_out_steps() < fewest_to_judge) {
        options.patience = 0;
        options.keep_best = false;
      }
      break;
  }
  if (data.held_out_steps() == 0) {  // nothing says when to stop, or which weights are best
    options.validate_steps = options.patience = 0;
    options.keep_best = false;
  }
  return options;
}

}  // namespace penstock
