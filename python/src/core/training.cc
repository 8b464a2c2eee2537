#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>

#include <algorithm>
#include <optional>
#include <string>
#include <utility>

#include "bindings.h"
#include "interrupts.h"
#include "models.h"
#include "penstock/train/fine_tune.h"
#include "penstock/train/fit.h"

namespace penstock::python {
namespace {

/// Returns TrainOptions from the fields of a dictionary. Throws Error(invalid_argument) for an unknown name.
TrainOptions options_from(const nb::dict& fields) {
  TrainOptions options;
  std::size_t known = 0;
  const auto read = [&]<class T>(const char* name, T& value) {
    if (!fields.contains(name)) return;
    ++known;
    if (!nb::try_cast<T>(fields[name], value)) {
      const std::string type = nb::cast<std::string>(nb::handle(nb::object(fields[name]).type()).attr("__name__"));
      throw nb::type_error((std::string(name) + " must not be of type " + type).c_str());
    }
  };
  read("max_steps", options.max_steps);
  read("max_seconds", options.max_seconds);
  read("max_epochs", options.max_epochs);
  read("batch", options.batch);
  read("length", options.length);
  read("carry_state", options.carry_state);
  read("learning_rate", options.learning_rate);
  read("weight_decay", options.weight_decay);
  read("beta1", options.beta1);
  read("beta2", options.beta2);
  read("epsilon", options.epsilon);
  read("momentum", options.momentum);
  read("warmup", options.warmup);
  read("final_rate", options.final_rate);
  read("clip", options.clip);
  read("give_up_after", options.give_up_after);
  read("rollbacks", options.rollbacks);
  read("validate_every", options.validate_every);
  read("validate_steps", options.validate_steps);
  read("patience", options.patience);
  read("keep_best", options.keep_best);
  read("validation_batches", options.validation_batches);
  read("log_every", options.log_every);
  read("metrics_path", options.metrics_path);
  read("tensorboard_path", options.tensorboard_path);
  read("checkpoint_path", options.checkpoint_path);
  read("checkpoint_every", options.checkpoint_every);
  read("seed", options.seed);
  std::string loss = "automatic", optimizer = "adamw", mode = "auto", precision = "full", device = "cpu";
  int threads = 0;
  bool exact = false;
  read("loss", loss);
  read("optimizer", optimizer);
  read("mode", mode);
  read("precision", precision);
  read("device", device);
  read("threads", threads);
  read("exact", exact);
  if (known != nb::len(fields)) refuse("there is an unknown option of training");
  options.loss = chosen<Loss>(
      "loss", loss,
      {{"automatic", Loss::automatic}, {"cross_entropy", Loss::cross_entropy}, {"mse", Loss::mse}, {"mae", Loss::mae}});
  options.optimizer = chosen<Optimizer>("optimizer", optimizer, {{"adamw", Optimizer::adamw}, {"sgd", Optimizer::sgd}});
  options.execution = execution_from(threads, mode, exact, precision, device);
  return options;
}

}  // namespace

TrainOptions settled_options(const nb::dict& fields, const Model& model, bool training) {
  TrainOptions options = options_from(fields);
  const std::string device = fields.contains("device") ? nb::cast<std::string>(fields["device"]) : "cpu";
  options.execution = settled(model, device,
                              {.rows = options.batch,
                               .steps = options.length,
                               .calls = std::max<Index>(1, options.max_steps),
                               .training = training,
                               .start = options.max_steps > 0,
                               .execution = options.execution});
  return options;
}

namespace {

nb::dict describe(const Progress& progress) {
  nb::dict result;
  result["step"] = progress.step;
  result["seconds"] = progress.seconds;
  result["fraction"] = progress.fraction;
  result["seconds_left"] = progress.seconds_left;
  result["epoch"] = progress.epoch;
  result["loss"] = progress.loss;
  result["accuracy"] = progress.accuracy;
  result["learning_rate"] = progress.learning_rate;
  result["gradient_norm"] = progress.gradient_norm;
  result["clipped_norm"] = progress.clipped_norm;
  result["steps_per_second"] = progress.steps_per_second;
  result["positions_per_second"] = progress.positions_per_second;
  result["saturated"] = progress.saturated;
  result["first_gradient_ratio"] = progress.first_gradient_ratio;
  result["skipped"] = progress.skipped;
  result["rollbacks"] = progress.rollbacks;
  result["warning"] = progress.warning;
  return result;
}

nb::dict describe(const Evaluation& evaluation) {
  nb::dict result;
  result["loss"] = evaluation.loss;
  result["bits_per_step"] = evaluation.bits_per_step;
  result["accuracy"] = evaluation.accuracy;
  result["scored"] = evaluation.scored;
  return result;
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
      call(progress_, [&] { return nb::make_tuple(describe(progress)); });
    };
    callbacks.validation = [this](const Progress& progress, const Evaluation& evaluation) {
      call(validation_, [&] { return nb::make_tuple(describe(progress), describe(evaluation)); });
    };
    return callbacks;
  }

  /// Returns whether a callback has failed or a signal has come.
  bool asked_to_stop() {
    const nb::gil_scoped_acquire locked;
    if (!failure_ && PyErr_CheckSignals() != 0) failure_.emplace();
    return failure_.has_value();
  }

  /// Raises the exception of a callback again, if there was one.
  void raise() {
    if (failure_ && !failure_->matches(PyExc_KeyboardInterrupt)) throw std::move(*failure_);
  }

 private:
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
  nb::dict described = describe(layers ? result.members.back().result.last : result.last);
  described["interrupted"] = result.interrupted;
  described["stopped_early"] = result.stopped_early;
  described["model_step"] = result.model_step;
  described["gave_up"] = result.gave_up;
  described["checkpoint_error"] = result.checkpoint_error;
  described["validation"] = result.validation ? nb::object(describe(*result.validation)) : nb::none();
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
  return describe(evaluation);
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
  nb::dict result;
  result["max_steps"] = options.max_steps;
  result["max_seconds"] = options.max_seconds;
  result["max_epochs"] = options.max_epochs;
  result["batch"] = options.batch;
  result["length"] = options.length;
  result["validate_every"] = options.validate_every;
  result["validate_steps"] = options.validate_steps;
  result["patience"] = options.patience;
  result["keep_best"] = options.keep_best;
  result["precision"] = std::string(to_string(options.execution.precision));
  return result;
}

}  // namespace

void bind_training(nb::module_& module) {
  module.attr("fine_tuning_rate") = fine_tuning_rate;
  module.def("suggest", &suggest, nb::arg("data"), nb::arg("device"), nb::arg("resumed") = "");
  module.def("fit", &run_fit, nb::arg("model"), nb::arg("data"), nb::arg("options"), nb::arg("progress").none(),
             nb::arg("validation").none(), nb::arg("seeds"), nb::arg("resume"), nb::arg("layers"), nb::arg("filters"),
             nb::arg("initial_weights") = "standard", nb::arg("chrono") = 0.0);
  module.def(
      "check_members", [](SharedModel& model, Index count) { SharedModel::Reading(model)->check_members(count); },
      nb::arg("model"), nb::arg("count"));
  module.def("replace", &replace, nb::arg("model"), nb::arg("other"));
  module.def("filters_stand_alone", [](SharedDataset& data) {
    const SharedDataset::Reading dataset(data);
    return (*dataset)->description().labels_sequences() && filters_stand_alone(**dataset);
  });
  module.def("linear_stands_alone",
             [](SharedDataset& data) { return linear_stands_alone(**SharedDataset::Reading(data)); });
  module.def("suggest_spec", [](SharedDataset& data, const std::string& cell, const std::string& device) {
    const ModelSpec spec = suggest_spec(**SharedDataset::Reading(data), cell, device_of_defaults(device));
    nb::dict result;
    result["cell"] = spec.cell;
    result["width"] = spec.width;
    result["dropout"] = spec.dropout;
    result["blocks"] = spec.blocks;
    result["convolution"] = spec.convolution;
    result["feed_forward"] = spec.feed_forward;
    result["end_norms"] = spec.end_norms;
    return result;
  });
  module.def("add_filters", &run_filters, nb::arg("model"), nb::arg("data"), nb::arg("seed"), nb::arg("threads"));
  module.def("evaluate", &run_evaluation, nb::arg("model"), nb::arg("data"), nb::arg("options"));
}

}  // namespace penstock::python
