#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <optional>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "bindings.h"
#include "dicts.h"
#include "interrupts.h"
#include "models.h"
#include "penstock/train/fields.h"
#include "penstock/train/fit.h"

namespace penstock::python {

namespace {

/// Returns a request from the fields of a dictionary. Throws Error(invalid_argument) for an unknown name.
FitRequest request_from(const nb::dict& fields) {
  using std::string;
  FitRequest request;
  TrainOptions& options = request.train;
  Fields given(fields);
  given.read_all(request, argument_of);
  const TrainOptions usual;
  for_each_setting([&]<class T>(const Setting<T>& setting) {
    T& value = options.*setting.member;
    if constexpr (std::is_enum_v<T>) {
      const char* const name = setting.argument;
      value = named<T>(name, given.get<string>(name, choice_of(value).name), names_of(value));
    } else {
      given.read(setting.argument, value);
    }
    request.layers |= setting.of_layers() && options.*setting.member != usual.*setting.member;
  });
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

/// Calls Python callbacks from the training, which runs without the GIL. An exception of a callback ends the training
/// after the step and is raised again when everything is saved. Ctrl-C ends it in the same way without an error; the
/// result is then marked as interrupted.
class Reports {
 public:
  Reports(nb::handle progress, nb::handle validation) : progress_(progress), validation_(validation) {}

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

  /// Returns whether a callback has failed or a signal has come.
  bool asked_to_stop() {
    const nb::gil_scoped_acquire locked;
    if (!failure_ && PyErr_CheckSignals() != 0) failure_.emplace();
    return failure_.has_value();
  }

  /// Raises the exception of a callback again, if there was one. After Ctrl-C, what was done so far is a result.
  void raise() {
    if (failure_ && !failure_->matches(PyExc_KeyboardInterrupt)) throw std::move(*failure_);
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
  nb::handle progress_, validation_;
  std::optional<nb::python_error> failure_;
};

/// Returns what is known of the model that a run ends with.
nb::dict finished_of(const FitResult& result) {
  const Finished& finished = result.finished;
  const bool scored = result.validation && result.validation->scored > 0;
  return dict_of({{"validation", scored ? nb::object(fields_of(*result.validation)) : nb::none()},
                  {"weight", result.weight()},
                  {"share", finished.filters ? finished.filter_shares.layers : finished.share},
                  {"filter_share", finished.filters ? finished.filter_shares.filters : 0.0}});
}

/// Runs fit(). Ctrl-C is no error: the model stays as the completed steps left it.
nb::dict run_fit(SharedModel& shared, SharedDataset& data, const nb::dict& fields, nb::handle progress,
                 nb::handle validation) {
  Reports reports(progress, validation);
  const FitRequest request = request_from(fields);
  check_outputs({}, training_outputs(request.train, request.seeds), advice_to_remove);
  FitPlan plan;
  FitResult result;
  std::vector<ColumnScore> scores;
  std::string options;
  {
    const SharedModel::Writing model(shared);
    const SharedDataset::Writing dataset(data);
    FitCallbacks callbacks;
    callbacks.begin = [&](const auto&...) { return reports.callbacks(); };
    callbacks.stop = [&] { return reports.asked_to_stop(); };
    callbacks.scored = [&](const Model& scored, const FitResult&) {
      scores = score_held_out(scored, **dataset, plan.options.execution);
    };
    const nb::gil_scoped_release unlocked;
    plan = complete(**dataset, request);
    resolve_device(plan, (*model).spec(), **dataset);
    options = describe_options(plan, (*model).data().task);
    result = fit(*model, **dataset, plan, callbacks);
  }
  reports.raise();
  nb::dict all = finished_of(result);
  all.update(dict_of({{"last", fields_of(result.last)},
                      {"filters_alone", plan.filters_alone},
                      {"interrupted", result.interrupted},
                      {"stopped_early", result.stopped_early},
                      {"model_step", result.model_step},
                      {"gave_up", result.gave_up.text(argument_words)},
                      {"checkpoint_error", result.checkpoint_error},
                      {"metrics_error", result.metrics_error},
                      {"options", options},
                      {"columns", describe_scores(scores)}}));
  return all;
}

/// Returns the plan of a run that trains layers, as a dictionary of its options under their names in train().
nb::dict complete_fit(SharedDataset& data, const nb::dict& fields) {
  FitPlan plan;
  {
    FitRequest request = request_from(fields);
    request.layers = true;
    const SharedDataset::Writing dataset(data);
    plan = unless_interrupted([&] { return complete(**dataset, request); });
  }
  nb::dict options;
  if (plan.options.loss == Loss::automatic) {
    const bool forecast = (*SharedDataset::Reading(data))->description().task == Task::forecast;
    plan.options.loss = forecast ? Loss::mse : Loss::cross_entropy;
  }
  for_each_setting([&](const auto& setting) { options[setting.argument] = nb::cast(value_of(setting, plan.options)); });
  options["filters_alone"] = plan.filters_alone;
  return options;
}

/// Does what fit() does behind the training of layers. Returns what run_fit() returns about that.
nb::dict run_finish(SharedModel& shared, SharedDataset& data, const nb::dict& fields,
                    const std::optional<nb::dict>& validation) {
  TrainResult trained;
  if (validation) Fields(*validation).read_all(trained.validation.emplace());
  FitRequest request = request_from(fields);
  request.layers = true;
  FitResult result;
  {
    const SharedModel::Writing model(shared);
    const SharedDataset::Writing dataset(data);
    result = unless_interrupted([&] { return finish_fit(*model, **dataset, complete(**dataset, request), trained); });
  }
  return finished_of(result);
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

/// Returns the learning rate when a fraction of a run is over.
double learning_rate_of(const nb::dict& fields, double fraction) {
  return learning_rate_at(request_from(fields).train, fraction);
}

// The decisions about validations of penstock.torch.fit. `state` is that of a checkpoint, or empty.
void bind_stopping(nb::module_& module) {
  nb::class_<Plateau>(module, "Plateau")
      .def("__init__", [](Plateau* self, const nb::dict& state) { Fields(state).read_all(*new (self) Plateau()); })
      .def("state", [](const Plateau& self) { return fields_of(self); })
      .def("note", &Plateau::note)
      .def_ro("factor", &Plateau::factor);
  nb::class_<Stopping>(module, "Stopping")
      .def("__init__",
           [](Stopping* self, const nb::dict& options, const nb::dict& state) {
             ValidationHistory history;
             Fields(state).read_all(history);
             new (self) Stopping(request_from(options).train, history);
           })
      .def("state", [](const Stopping& self) { return fields_of(self.history()); })
      .def("note", &Stopping::note)
      .def("begin_cooldown", &Stopping::begin_cooldown)
      .def("fraction", &Stopping::fraction)
      .def_prop_ro("cooling", &Stopping::cooling)
      .def_prop_ro("exhausted", &Stopping::exhausted);
}

/// Returns for each option of training that the program has its argument in train(), its default, its help and, if it
/// has a list of values, their names.
nb::list describe_settings() {
  nb::list all;
  for_each_setting([&]<class T>(const Setting<T>& setting) {
    if (setting.group == SettingGroup::hidden) return;
    std::vector<std::string> names;
    if constexpr (std::is_enum_v<T>) names.assign(names_of(T()).begin(), names_of(T()).end());
    all.append(nb::make_tuple(setting.argument, value_of(setting, TrainOptions()), setting.help, names));
  });
  return all;
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

}  // namespace

void bind_training(nb::module_& module) {
  bind_stopping(module);
  module.def("train_settings", &describe_settings);
  module.def("fit", &run_fit, nb::arg("model"), nb::arg("data"), nb::arg("request"), nb::arg("progress").none(),
             nb::arg("validation").none());
  module.def("suggest_spec", [](SharedDataset& data, const std::string& cell, const std::string& device) {
    return describe(suggest_spec(**SharedDataset::Reading(data), cell, device_of_defaults(device)));
  });
  module.def("add_filters", &run_filters);
  module.def("evaluate", &run_evaluation);
  module.def("complete_fit", &complete_fit);
  module.def("learning_rate_at", &learning_rate_of);
  module.def("finish_fit", &run_finish, nb::arg("model"), nb::arg("data"), nb::arg("request"),
             nb::arg("validation").none());
}

}  // namespace penstock::python
