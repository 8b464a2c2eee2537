#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <algorithm>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "bindings.h"
#include "dicts.h"
#include "interrupts.h"
#include "models.h"
#include "penstock/train/fields.h"
#include "penstock/train/fine_tune.h"
#include "penstock/train/fit.h"
#include "penstock/train/search.h"

namespace penstock::python {

TrainOptions settled_options(const nb::dict& fields, const Model& model, bool training) {
  using std::string;
  TrainOptions options;
  Fields given(fields);
  given.read_all(options);
  options.loss = chosen<Loss>(
      "loss", given.get<string>("loss", "auto"),
      {{"auto", Loss::automatic}, {"cross_entropy", Loss::cross_entropy}, {"mse", Loss::mse}, {"mae", Loss::mae}});
  options.optimizer = chosen<Optimizer>("optimizer", given.get<string>("optimizer", "adamw"),
                                        {{"adamw", Optimizer::adamw}, {"sgd", Optimizer::sgd}});
  const CallExecution execution(given.get<string>("mode", "auto"), given.get<string>("device", "cpu"),
                                given.get<int>("threads"), given.get<bool>("exact"),
                                given.get<string>("precision", "full"));
  given.finish("training");
  options.execution = settled(model, execution,
                              {.rows = options.batch,
                               .steps = options.length,
                               .calls = std::max<Index>(1, options.max_steps),
                               .training = training,
                               .start = options.max_steps > 0});
  return options;
}

namespace {

/// Calls Python callbacks from the training, which runs without the GIL. An exception of a callback ends the training
/// after the step and is raised again when everything is saved. Ctrl-C ends it in the same way without an error; the
/// result is then marked as interrupted.
class Reports {
 public:
  explicit Reports(nb::handle progress = nb::none(), nb::handle validation = nb::none())
      : progress_(progress), validation_(validation) {}

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
  nb::handle progress_, validation_;
  std::optional<nb::python_error> failure_;
};

/// Runs fit(). Ctrl-C is no error: the model stays as the completed steps left it.
nb::dict run_fit(SharedModel& shared, SharedDataset& data, const nb::dict& fields, nb::handle progress,
                 nb::handle validation, Index seeds, bool resume, bool layers, bool filters, const std::string& weights,
                 double chrono) {
  Reports reports(progress, validation);
  FitResult result;
  {
    const SharedModel::Writing model(shared);
    const SharedDataset::Writing dataset(data);
    const TrainOptions options = settled_options(fields, *model, true);
    const FitOptions how{.seeds = seeds,
                         .resume = resume,
                         .layers = layers,
                         .initial = {.weights = parse_initial_weights(weights), .chrono = chrono},
                         .finish = {.shrink = options.keep_best, .filters = filters, .seed = options.seed}};
    FitCallbacks callbacks;
    callbacks.begin = [&](const auto&...) { return reports.callbacks(); };
    callbacks.stop = [&] { return reports.asked_to_stop(); };
    const nb::gil_scoped_release unlocked;
    result = fit(*model, **dataset, options, how, callbacks);
  }
  reports.raise();
  const Finished& finished = result.finished;
  nb::dict described = fields_of(layers ? result.members.back().result.last : result.last);
  described["interrupted"] = result.interrupted;
  described["stopped_early"] = result.stopped_early;
  described["model_step"] = result.model_step;
  described["gave_up"] = result.gave_up;
  described["checkpoint_error"] = result.checkpoint_error;
  described["validation"] = result.validation ? nb::object(fields_of(*result.validation)) : nb::none();
  described["weight"] = result.weight();
  described["share"] = finished.filters ? finished.filter_shares.layers : finished.share;
  described["filter_share"] = finished.filters ? finished.filter_shares.filters : 0.0;
  return described;
}

/// Replaces a model by another one, which is consumed.
void replace(SharedModel& shared, SharedModel& other) {
  *SharedModel::Writing(shared) = std::move(*SharedModel::Writing(other));
}

nb::dict run_evaluation(SharedModel& shared, SharedDataset& data, const nb::dict& fields) {
  Evaluation evaluation;
  {
    const SharedModel::Reading model(shared);
    const SharedDataset::Reading dataset(data);
    const TrainOptions options = settled_options(fields, *model, false);
    evaluation = unless_interrupted([&] { return penstock::evaluate(*model, **dataset, options); });
  }
  return fields_of(evaluation);
}

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

/// Returns the device for which defaults are chosen. "auto" is decided only with the model, so its defaults are those
/// for the CPU.
Device device_of_defaults(const std::string& device) { return device == "auto" ? Device::cpu() : parse_device(device); }

nb::dict suggest(SharedDataset& data, const std::string& device, const std::string& resumed) {
  TrainOptions options;
  {
    const nb::gil_scoped_release unlocked;
    const SharedDataset::Writing dataset(data);
    const Device place = device_of_defaults(device);
    options = resumed.empty() ? suggest_options(**dataset, place) : suggest_resumed(resumed, **dataset, place);
  }
  nb::dict result = fields_of(options);
  result["precision"] = std::string(to_string(options.execution.precision));
  return result;
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

/// Returns the search space. The names in `fixed` keep their only value.
SearchSpace space_around(const ModelSpec& spec, const TrainOptions& options, const std::vector<std::string>& fixed) {
  SearchSpace space = suggest_space(spec, options);
  for (const std::string& name : fixed) {
    if (name == "cell") space.cells = {spec.cell};
    if (name == "width") space.widths = {spec.width};
    if (name == "dropout") space.dropouts = {spec.dropout};
    if (name == "learning_rate") space.learning_rates = {options.learning_rate};
  }
  return space;
}

/// Runs a search and returns the trials and the best choice. An exception of the callback ends the search and is raised
/// again. Ctrl-C ends it, too.
nb::dict run_search(SharedDataset& data, const nb::dict& spec_fields, const nb::dict& option_fields, double seconds,
                    const std::string& record, bool resume, const std::vector<std::string>& fixed, nb::handle report) {
  Reports reports;
  SearchResult result;
  ModelSpec spec = spec_from(spec_fields);
  {
    const SharedDataset::Reading dataset(data);
    unless_interrupted([&] { take_autoregression(spec, **dataset); });
    const TrainOptions options = settled_options(option_fields, Model(spec, (*dataset)->description(), 0), true);
    SearchCallbacks callbacks;
    callbacks.stop = [&] { return reports.asked_to_stop(); };
    callbacks.trial = [&](const SearchTrial& trial, Index number, bool best) {
      reports.call(report, [&] { return nb::make_tuple(describe(trial), number, best); });
    };
    const SearchOptions search_options{.space = space_around(spec, options, fixed),
                                       .seconds = seconds,
                                       .path = record,
                                       .resume = resume,
                                       .seed = options.seed};
    const nb::gil_scoped_release unlocked;
    result = search(spec, **dataset, options, search_options, callbacks);
  }
  reports.raise(!result.trials.empty());
  nb::list trials;
  for (const SearchTrial& trial : result.trials) trials.append(describe(trial));
  return dict_of({{"best", describe(result.best)},
                  {"loss", result.loss()},
                  {"trials", trials},
                  {"seconds", result.seconds},
                  {"interrupted", result.interrupted}});
}

}  // namespace

void bind_training(nb::module_& module) {
  module.attr("fine_tuning_rate") = fine_tuning_rate;
  module.def("suggest", &suggest, nb::arg("data"), nb::arg("device"), nb::arg("resumed") = "");
  module.def("fit", &run_fit, nb::arg("model"), nb::arg("data"), nb::arg("options"), nb::arg("progress").none(),
             nb::arg("validation").none(), nb::arg("seeds"), nb::arg("resume"), nb::arg("layers"), nb::arg("filters"),
             nb::arg("initial_weights") = "standard", nb::arg("chrono") = 0.0);
  module.def("check_members",
             [](SharedModel& model, Index count) { SharedModel::Reading(model)->check_members(count); });
  module.def("replace", &replace);
  module.def("filters_stand_alone", [](SharedDataset& data) {
    const SharedDataset::Reading dataset(data);
    return (*dataset)->description().labels_sequences() && filters_stand_alone(**dataset);
  });
  module.def("linear_stands_alone",
             [](SharedDataset& data) { return linear_stands_alone(**SharedDataset::Reading(data)); });
  module.def("suggest_spec", [](SharedDataset& data, const std::string& cell, const std::string& device) {
    const ModelSpec spec = suggest_spec(**SharedDataset::Reading(data), cell, device_of_defaults(device));
    return dict_of({{"cell", spec.cell},
                    {"width", spec.width},
                    {"dropout", spec.dropout},
                    {"blocks", spec.blocks},
                    {"convolution", spec.convolution},
                    {"feed_forward", spec.feed_forward},
                    {"end_norms", spec.end_norms}});
  });
  module.def("add_filters", &run_filters);
  module.def("evaluate", &run_evaluation);
  module.def("search", &run_search, nb::arg("data"), nb::arg("spec"), nb::arg("options"), nb::arg("seconds"),
             nb::arg("record"), nb::arg("resume"), nb::arg("fixed"), nb::arg("report").none());
}

}  // namespace penstock::python
