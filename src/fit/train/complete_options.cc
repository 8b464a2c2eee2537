#include <algorithm>
#include <filesystem>
#include <string>
#include <system_error>
#include <utility>

#include "base/check.h"
#include "nn/model/model_spec.h"
#include "penstock/data/dataset.h"
#include "penstock/data_description.h"
#include "penstock/plan.h"
#include "penstock/train/fields.h"
#include "penstock/train/fine_tune.h"
#include "penstock/train/fit.h"
#include "train/check_options.h"
#include "train/optimizer_state.h"
#include "train/suggest.h"

namespace penstock {

namespace {

bool is_there(const std::string& path) {
  std::error_code unknown;  // opening the file reports it
  return !path.empty() && std::filesystem::exists(path, unknown);
}

bool gives_limits(const FitRequest& request) { return request.max_steps || request.max_seconds || request.max_epochs; }

/// Returns whether the caller says how to train layers, and so wants them trained.
bool asks_for_layers(const FitRequest& request) {
  bool asks = request.layers || request.resume || request.continues || request.seeds != 1;
  visit_open_options([&](const char*, const auto& given) { asks = asks || given; }, request);
  return asks;
}

void check_request(const FitRequest& request) {
  require_argument(request.seeds >= 1, "seeds", request.seeds, "at least 1");
  const bool limitless = request.max_steps.value_or(0) == 0 && request.max_seconds.value_or(0.0) == 0.0 &&
                         request.max_epochs.value_or(0.0) == 0.0;
  if (gives_limits(request) && limitless) {
    throw Error(ErrorCode::invalid_argument, {the_argument("max_steps"), ", ", the_argument("max_seconds"), " or ",
                                              the_argument("max_epochs"), " must be above 0"});
  }
  if (request.continues && request.initial != Initialisation{}) {
    fail_with(ErrorCode::invalid_argument,
              {"leave out ", the_argument("initial_weights"), " and ", the_argument("chrono")},
              "a model to continue from chooses the weights that a run starts from");
  }
}

void complete_options(FitPlan& plan, Dataset& data) {
  const FitRequest& request = plan.request;
  TrainOptions& options = plan.options = request.train;
  const Device device = options.execution.device;
  TrainOptions suggested =
      plan.resume ? suggest_resumed(options.checkpoint_path, data, device) : suggest_options(data, device);
  const bool limited = gives_limits(request);
  plan.sized = !limited && suggested.max_steps > 0 && data.training_steps() > 0;
  if (limited) suggested.max_steps = 0, suggested.max_seconds = suggested.max_epochs = 0.0;
  if (request.continues) suggested.learning_rate = fine_tuning_rate;
  if (request.validate_steps.value_or(suggested.validate_steps) <= 0) suggested.patience = 0;
  const auto choose = [](const char*, const auto& given, const auto& otherwise, auto& option) {
    option = given.value_or(otherwise);
  };
  visit_open_options(choose, request, suggested, options);
  options.execution.precision = request.precision.value_or(suggested.execution.precision);
}

}  // namespace

bool resumes(const FitRequest& request) {
  const std::string& checkpoint = request.train.checkpoint_path;
  if (!request.resume) return false;
  if (checkpoint.empty()) {
    throw Error(ErrorCode::invalid_argument,
                {the_argument("resume"), " needs ", the_argument("checkpoint_path"), ": the file to continue from"});
  }
  if (!is_there(checkpoint)) {
    throw Error(ErrorCode::io_failure, {the_argument("resume"), ": there is no checkpoint " + checkpoint});
  }
  return true;
}

FitPlan complete(Dataset& data, const FitRequest& request) {
  check_request(request);
  FitPlan plan{.request = request, .options = {}, .resume = resumes(request)};
  plan.filters_alone = request.filters && !request.resume && filters_stand_alone(data);
  plan.linear_alone = !asks_for_layers(request) && linear_stands_alone(data);
  complete_options(plan, data);
  if (plan.trains_layers()) training::check_options(plan.options, data);
  return plan;
}

std::string resolve_device(FitPlan& plan, const ModelSpec& spec, Dataset& data) {
  if (!plan.request.automatic || !plan.trains_layers()) return {};
  nn::check_spec(spec, data.description());
  const TrainOptions& options = plan.options;
  if (is_sound_loss(training::kind_of(training::resolve_loss(options.loss, data.description().task)))) {
    plan.request.automatic = false;
    return fmt::format("the loss {} is computed there", choice_of(options.loss).name);
  }
  // Where only the time is limited, the number of steps is unknown, and the start of a GPU decides nothing.
  const DeviceChoice choice = choose_device(spec, data.description(),
                                            {.rows = options.batch,
                                             .steps = training::next_batch(data, options).steps,
                                             .calls = std::max<Index>(1, options.max_steps),
                                             .training = true,
                                             .start = options.max_steps > 0,
                                             .execution = options.execution});
  plan.request.automatic = false;
  plan.request.train.execution.device = choice.device;
  if (choice.device.is_cuda()) complete_options(plan, data);
  return choice.why;
}

}  // namespace penstock
