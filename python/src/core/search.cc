#include "penstock/train/search.h"

#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <optional>
#include <utility>

#include "bindings.h"
#include "dicts.h"
#include "models.h"

namespace penstock::python {
namespace {

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
  SearchResult result;
  std::optional<nb::python_error> failure;
  ModelSpec spec = spec_from(spec_fields);
  {
    const SharedDataset::Reading dataset(data);
    take_autoregression(spec, **dataset);
    const TrainOptions options = settled_options(option_fields, Model(spec, (*dataset)->description(), 0), true);
    SearchCallbacks callbacks;
    callbacks.stop = [&] {
      const nb::gil_scoped_acquire locked;
      if (!failure && PyErr_CheckSignals() != 0) failure.emplace();
      return failure.has_value();
    };
    callbacks.trial = [&](const SearchTrial& trial, Index number, bool best) {
      const nb::gil_scoped_acquire locked;
      if (report.is_none() || failure) return;
      const nb::object answer =
          nb::steal(PyObject_CallObject(report.ptr(), nb::make_tuple(describe(trial), number, best).ptr()));
      if (!answer.is_valid()) failure.emplace();
    };
    const SearchOptions search_options{.space = space_around(spec, options, fixed),
                                       .seconds = seconds,
                                       .path = record,
                                       .resume = resume,
                                       .seed = options.seed};
    const nb::gil_scoped_release unlocked;
    result = search(spec, **dataset, options, search_options, callbacks);
  }
  if (failure && (!failure->matches(PyExc_KeyboardInterrupt) || result.trials.empty())) throw std::move(*failure);
  nb::list trials;
  for (const SearchTrial& trial : result.trials) trials.append(describe(trial));
  return dict_of({{"best", describe(result.best)},
                  {"loss", result.loss()},
                  {"trials", trials},
                  {"seconds", result.seconds},
                  {"interrupted", result.interrupted}});
}

}  // namespace

void bind_search(nb::module_& module) {
  module.def("search", &run_search, nb::arg("data"), nb::arg("spec"), nb::arg("options"), nb::arg("seconds"),
             nb::arg("record"), nb::arg("resume"), nb::arg("fixed"), nb::arg("report").none());
}

}  // namespace penstock::python
