#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "bindings.h"
#include "dicts.h"
#include "interrupts.h"
#include "models.h"
#include "penstock/train/fields.h"
#include "penstock/train/fit.h"
#include "penstock/train/search.h"

namespace penstock::python {

namespace {

/// Returns a request from the fields of a dictionary. Throws Error(invalid_argument) for an unknown name.
FitRequest request_from(const nb::dict& fields) {
  using std::string;
  FitRequest request;
  TrainOptions& options = request.train;
  Fields given(fields);
  given.read_all(options);
  given.read_all(request);
  options.loss = chosen<Loss>(
      "loss", given.get<string>("loss", "auto"),
      {{"auto", Loss::automatic}, {"cross_entropy", Loss::cross_entropy}, {"mse", Loss::mse}, {"mae", Loss::mae}});
  options.optimizer = chosen<Optimizer>("optimizer", given.get<string>("optimizer", "adamw"),
                                        {{"adamw", Optimizer::adamw}, {"sgd", Optimizer::sgd}});
  const auto precision = given.get<std::optional<string>>("precision");
  const CallExecution execution("auto", given.get<string>("device", "cpu"), given.get<int>("threads"),
                                given.get<bool>("exact"), precision.value_or("full"));
  options.execution = execution.on;
  request.automatic = execution.automatic;
  if (precision) request.precision = execution.on.precision;
  request.initial = {.weights = parse_initial_weights(given.get<string>("initial_weights", "standard")),
                     .chrono = given.get<double>("chrono")};
  given.finish("training");
  return request;
}

nb::dict describe(const SearchChoice& choice) {
  return dict_of({{"cell", choice.cell},
                  {"width", choice.width},
                  {"dropout", choice.dropout},
                  {"learning_rate", choice.learning_rate}});
}

nb::dict describe(const SearchTrial& trial) {
  nb::dict result = describe(trial.choice);
  result["losses"] = trial.losses;
  result["seconds"] = trial.seconds;
  return result;
}

nb::dict describe(const SearchResult& result) {
  nb::list trials;
  for (const SearchTrial& trial : result.trials) trials.append(describe(trial));
  return dict_of({{"best", describe(result.best)},
                  {"loss", result.loss()},
                  {"trials", trials},
                  {"seconds", result.seconds},
                  {"interrupted", result.interrupted}});
}

/// Calls Python callbacks from the training, which runs without the GIL. An exception of a callback ends the training
/// after the step and is raised again when everything is saved. Ctrl-C ends it in the same way without an error; the
/// result is then marked as interrupted.
class Reports {
 public:
  Reports(nb::handle progress, nb::handle validation, nb::handle trial)
      : progress_(progress), validation_(validation), trial_(trial) {}

  TrainCallbacks callbacks() {
    TrainCallbacks callbacks;
    callbacks.progress = [this](const Progress& progress) {
      call(progress_, [&] { return nb::make_tuple(fields_of(progress)); });
    };
    callbacks.validation = [this](const Progress& progress, const Evaluation& evaluation) {
      call(validation_, [&] { return nb::make_tuple(fields_of(progress), fields_of(evaluation)); });
    };
    return callbacks;
  }

  SearchCallbacks search_callbacks() {
    SearchCallbacks callbacks;
    callbacks.trial = [this](const SearchTrial& trial, Index number, bool best) {
      call(trial_, [&] { return nb::make_tuple(describe(trial), number, best); });
    };
    callbacks.stop = [this] { return asked_to_stop(); };
    return callbacks;
  }

  /// Returns whether a callback has failed or a signal has come.
  bool asked_to_stop() {
    const nb::gil_scoped_acquire locked;
    if (!failure_ && PyErr_CheckSignals() != 0) failure_.emplace();
    return failure_.has_value();
  }

  /// Raises the exception of a callback again, if there was one. After Ctrl-C, what was done so far is a result, if
  /// there is any.
  void raise(bool has_result = true) {
    if (failure_ && !(has_result && failure_->matches(PyExc_KeyboardInterrupt))) throw std::move(*failure_);
  }

  /// Calls a function of Python, unless it is None, with the tuple that arguments() returns.
  template <class Arguments>
  void call(nb::handle function, const Arguments& arguments) {
    const nb::gil_scoped_acquire locked;
    if (function.is_none() || failure_) return;
    try {
      const nb::object result = nb::steal(PyObject_CallObject(function.ptr(), arguments().ptr()));
      if (!result.is_valid()) failure_.emplace();
    } catch (nb::python_error& error) {
      failure_.emplace(std::move(error));
    }
  }

 private:
  nb::handle progress_, validation_, trial_;
  std::optional<nb::python_error> failure_;
};

/// Runs fit(). Ctrl-C is no error: the model stays as the completed steps left it.
nb::dict run_fit(SharedModel& shared, SharedDataset& data, const nb::dict& fields, nb::handle progress,
                 nb::handle validation, nb::handle trial) {
  Reports reports(progress, validation, trial);
  const FitRequest request = request_from(fields);
  check_outputs({}, training_outputs(request, {"checkpoint", "metrics", "tensorboard"}), advice_to_remove);
  FitPlan plan;
  FitResult result;
  {
    const SharedModel::Writing model(shared);
    const SharedDataset::Writing dataset(data);
    FitCallbacks callbacks;
    callbacks.search = reports.search_callbacks();
    callbacks.begin = [&](const auto&...) { return reports.callbacks(); };
    callbacks.stop = [&] { return reports.asked_to_stop(); };
    const nb::gil_scoped_release unlocked;
    plan = complete(**dataset, request);
    settle_device(plan, (*model).spec(), **dataset);
    result = fit(*model, **dataset, plan, callbacks);
  }
  reports.raise(!result.search || !result.search->trials.empty());
  const Finished& finished = result.finished;
  const bool scored = result.validation && result.validation->scored > 0;
  return dict_of({{"last", fields_of(result.last)},
                  {"search", result.search ? nb::object(describe(*result.search)) : nb::none()},
                  {"filters_alone", plan.filters_alone},
                  {"interrupted", result.interrupted},
                  {"stopped_early", result.stopped_early},
                  {"model_step", result.model_step},
                  {"gave_up", result.gave_up},
                  {"checkpoint_error", result.checkpoint_error},
                  {"validation", scored ? nb::object(fields_of(*result.validation)) : nb::none()},
                  {"weight", result.weight()},
                  {"share", finished.filters ? finished.filter_shares.layers : finished.share},
                  {"filter_share", finished.filters ? finished.filter_shares.filters : 0.0}});
}

nb::dict run_evaluation(SharedModel& shared, SharedDataset& data, const nb::dict& fields) {
  Evaluation evaluation;
  {
    const SharedModel::Reading model(shared);
    const SharedDataset::Reading dataset(data);
    const FitRequest request = request_from(fields);
    TrainOptions options = request.train;
    CallExecution execution;
    execution.on = options.execution;
    execution.automatic = request.automatic;
    options.execution = settled(*model, execution, {.rows = options.batch, .steps = options.length});
    evaluation = unless_interrupted([&] { return penstock::evaluate(*model, **dataset, options); });
  }
  return fields_of(evaluation);
}

/// Returns the device for which defaults are chosen. "auto" is decided only with the model, so its defaults are those
/// for the CPU.
Device device_of_defaults(const std::string& device) { return device == "auto" ? Device::cpu() : parse_device(device); }

/// Adds filters to a model in place. Returns the weights of its layers and of its filters.
std::pair<double, double> run_filters(SharedModel& shared, SharedDataset& data, std::uint64_t seed, int threads) {
  const SharedModel::Writing model(shared);
  const SharedDataset::Reading dataset(data);
  const Execution execution{.threads = threads};
  FilterShares shares;
  unless_interrupted([&] {
    Model wider = add_filters(*model, **dataset, shares, seed, execution);
    refit_filters(wider, **dataset, shares, execution);
    *model = std::move(wider);
  });
  return {shares.layers, shares.filters};
}

/// Runs a search and returns the trials and the best choice. An exception of the callback ends the search and is raised
/// again. Ctrl-C ends it, too.
nb::dict run_search(SharedDataset& data, const nb::dict& spec_fields, const nb::dict& fields, const std::string& record,
                    bool resume, nb::handle trial) {
  Reports reports(nb::none(), nb::none(), trial);
  const FitRequest request = request_from(fields);
  check_outputs({}, {{"record", record, FileKind::trials}}, advice_to_remove);
  ModelSpec spec = spec_from(spec_fields);
  FitPlan plan;
  {
    const SharedDataset::Writing dataset(data);
    unless_interrupted([&] {
      take_autoregression(spec, **dataset);
      plan = complete(**dataset, request);
      settle_device(plan, spec, **dataset);
    });
  }
  SearchResult result;
  {
    const SharedDataset::Reading dataset(data);
    const SearchOptions options{.space = suggest_space(spec, plan.options, plan.request.fixed),
                                .seconds = request.search.value_or(0.0),
                                .path = record,
                                .resume = resume,
                                .seed = plan.options.seed};
    const nb::gil_scoped_release unlocked;
    result = search(spec, **dataset, plan.options, options, reports.search_callbacks());
  }
  reports.raise(!result.trials.empty());
  return describe(result);
}

}  // namespace

void bind_training(nb::module_& module) {
  module.def("fit", &run_fit, nb::arg("model"), nb::arg("data"), nb::arg("request"), nb::arg("progress").none(),
             nb::arg("validation").none(), nb::arg("trial").none());
  module.def("suggest_spec", [](SharedDataset& data, const std::string& cell, const std::string& device) {
    return describe(suggest_spec(**SharedDataset::Reading(data), cell, device_of_defaults(device)));
  });
  module.def("add_filters", &run_filters);
  module.def("evaluate", &run_evaluation);
  module.def("search", &run_search, nb::arg("data"), nb::arg("spec"), nb::arg("request"), nb::arg("record"),
             nb::arg("resume"), nb::arg("trial").none());
}

}  // namespace penstock::python
