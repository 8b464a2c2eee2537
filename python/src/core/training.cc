#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/unique_ptr.h>
#include <nanobind/stl/vector.h>

#include <atomic>
#include <chrono>
#include <functional>
#include <future>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "bindings.h"
#include "interrupts.h"
#include "models.h"
#include "penstock/data/labelled_texts.h"
#include "penstock/data/sound.h"
#include "penstock/stop.h"
#include "penstock/train/fine_tune.h"
#include "penstock/train/fit.h"
#include "tables.h"

namespace penstock::python {
namespace {

template <class Enum>
Enum chosen(const char* argument, const std::string& text, std::initializer_list<std::pair<const char*, Enum>> values) {
  std::string names;
  for (const auto& [name, value] : values) {
    if (text == name) return value;
    names += (names.empty() ? "'" : ", '") + std::string(name) + "'";
  }
  refuse(std::string(argument) + " must be one of " + names + ", not '" + text + "'");
}

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
                 nb::handle validation, Index seeds, bool resume, bool layers, bool filters) {
  Reports reports(progress, validation);
  FitResult result;
  {
    const SharedModel::Writing model(shared);
    const SharedDataset::Writing dataset(data);
    const TrainOptions options = settled_options(fields, *model, true);
    const FitOptions how{.seeds = seeds,
                         .resume = resume,
                         .layers = layers,
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

std::unique_ptr<SharedDataset> shared(std::unique_ptr<Dataset> dataset) {
  return std::make_unique<SharedDataset>(std::move(dataset), "the dataset");
}

/// Runs `open` on another thread and returns the dataset. This thread releases the GIL and checks for signals every 50
/// ms: Ctrl-C ends the opening.
std::unique_ptr<SharedDataset> opened_unless_interrupted(const std::function<std::unique_ptr<Dataset>()>& open) {
  std::atomic<bool> asked = false;
  std::optional<nb::python_error> failure;
  std::unique_ptr<Dataset> dataset;
  {
    const nb::gil_scoped_release unlocked;
    auto opening = std::async(std::launch::async, [&] {
      const Stoppable while_asked(&asked);
      return open();
    });
    constexpr auto between_signals = std::chrono::milliseconds(50);
    while (!asked && opening.wait_for(between_signals) != std::future_status::ready) {
      const nb::gil_scoped_acquire locked;
      if (PyErr_CheckSignals() == 0) continue;
      failure.emplace();
      asked = true;
    }
    try {
      dataset = opening.get();
    } catch (const Error&) {
      if (!failure) throw;
    }
  }
  if (failure) throw std::move(*failure);
  return shared(std::move(dataset));
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

/// The functions that open one kind of data: from files, from files for a model to train further, and from tables.
template <class Options>
struct Openers {
  std::unique_ptr<Dataset> (*files)(const Sources&, const Options&);
  std::unique_ptr<Dataset> (*files_as)(const Sources&, const Options&, const DataDescription&);
  std::unique_ptr<Dataset> (*tables)(const std::vector<Table>&, const Options&, const DataDescription*);
};

/// Opens tables if there are any, otherwise files. `origin` is a model to train further, or null.
template <class Options>
std::unique_ptr<SharedDataset> opened(const Sources& paths, const TableTexts& texts, const Options& options,
                                      SharedModel* origin, const std::type_identity_t<Openers<Options>>& open) {
  std::optional<DataDescription> description;
  if (origin != nullptr) description = SharedModel::Reading(*origin)->data();
  const std::vector<Table> tables = tables_from(texts);
  return opened_unless_interrupted([&] {
    if (!tables.empty()) return open.tables(tables, options, description ? &*description : nullptr);
    return description ? open.files_as(paths, options, *description) : open.files(paths, options);
  });
}

/// Returns the format of a table. Each argument may be empty, which means detected.
TableFormat format_from(const std::string& delimiter, const std::string& decimal, std::optional<bool> header) {
  if (delimiter.size() > 1) refuse("delimiter must be one character, not '" + delimiter + "'");
  if (!decimal.empty() && decimal != "." && decimal != ",") refuse("decimal must be '.' or ',', not '" + decimal + "'");
  return {delimiter.empty() ? '\0' : delimiter.front(), decimal.empty() ? '\0' : decimal.front(), header};
}

/// Returns how to treat rows with unreadable dates: as given, or as `origin` did.
Undated undated_from(const std::optional<std::string>& said, SharedModel* origin) {
  if (said) return parse_undated(*said);
  return origin != nullptr ? SharedModel::Reading(*origin)->data().undated : Undated::refuse;
}

/// Returns how to treat missing values: as given, or as `origin` did.
Missing missing_from(const std::optional<std::string>& said, SharedModel* origin) {
  if (said) return parse_missing(*said);
  return origin != nullptr ? SharedModel::Reading(*origin)->data().missing : Missing::refuse;
}

}  // namespace

void bind_training(nb::module_& module) {
  nb::class_<SharedDataset>(module, "Dataset")
      .def("description", [](SharedDataset& self) { return describe((*SharedDataset::Reading(self))->description()); })
      .def("forecasts_an_input",
           [](SharedDataset& self) { return (*SharedDataset::Reading(self))->description().forecasts_an_input(); })
      .def("held_out_steps", [](SharedDataset& self) { return (*SharedDataset::Reading(self))->held_out_steps(); })
      .def("training_steps", [](SharedDataset& self) { return (*SharedDataset::Reading(self))->training_steps(); })
      .def("reading", [](SharedDataset& self) { return (*SharedDataset::Reading(self))->reading(); })
      .def("position", [](SharedDataset& self) { return (*SharedDataset::Reading(self))->position(); })
      .def("restore", [](SharedDataset& self, const std::string& position) {
        (*SharedDataset::Writing(self))->restore(position);
      });
  module.def(
      "open_text",
      [](const Sources& paths, double validation_fraction, bool bytes) {
        return opened_unless_interrupted(
            [&] { return open_text(paths, {.validation_fraction = validation_fraction, .bytes = bytes}); });
      },
      nb::arg("paths"), nb::arg("validation_fraction"), nb::arg("bytes"));
  module.def(
      "open_sound",
      [](const std::string& input, const std::string& target, double validation_fraction, SharedModel* origin) {
        const SoundOptions options{.validation_fraction = validation_fraction};
        std::optional<DataDescription> description;
        if (origin != nullptr) description = SharedModel::Reading(*origin)->data();
        return opened_unless_interrupted([&] {
          return description ? open_sound(input, target, options, *description) : open_sound(input, target, options);
        });
      },
      nb::arg("input"), nb::arg("target"), nb::arg("validation_fraction"), nb::arg("origin").none());
  module.def(
      "guess_kind",
      [](const Sources& paths) {
        constexpr std::array names = {"text", "series", "labelled", "labelled texts"};
        return names[static_cast<std::size_t>(guess_kind(paths))];
      },
      nb::arg("paths"));
  module.def(
      "open_series",
      [](const Sources& paths, const TableTexts& tables, const std::vector<std::string>& inputs,
         const std::vector<std::string>& targets, Index horizon, double validation_fraction,
         const std::string& delimiter, const std::string& decimal, std::optional<bool> header,
         const std::optional<std::string>& missing, std::optional<bool> from_last, std::optional<bool> autoregression,
         const std::optional<std::string>& transform, Index season, const std::vector<std::string>& calendar,
         const std::string& date_column, const std::optional<std::string>& irregular,
         const std::optional<std::string>& undated, const std::string& group, bool group_by_file,
         const std::vector<std::string>& known, const std::vector<std::string>& categories, SharedModel* origin) {
        SeriesChoices said{.from_last = from_last, .autoregression = autoregression, .calendar = calendar};
        said.date_column = date_column;
        if (irregular) said.irregular = parse_irregular(*irregular);
        if (transform) {
          said.transform = chosen<Transform>(
              "transform", *transform,
              {{"none", Transform::none}, {"automatic", Transform::automatic}, {"logarithm", Transform::logarithm}});
        }
        SeriesOptions options = suggest_series(said);
        options.inputs = inputs;
        options.targets = targets;
        options.horizon = horizon;
        options.validation_fraction = validation_fraction;
        options.format = format_from(delimiter, decimal, header);
        options.missing = missing_from(missing, origin);
        options.undated = undated_from(undated, origin);
        options.season = season;
        options.group = group;
        options.group_by_file = group_by_file;
        options.known = known;
        options.categories = categories;
        return opened(paths, tables, options, origin, {open_series, open_series, open_series_tables});
      },
      nb::arg("paths"), nb::arg("tables"), nb::arg("inputs"), nb::arg("targets"), nb::arg("horizon"),
      nb::arg("validation_fraction"), nb::arg("delimiter"), nb::arg("decimal"), nb::arg("header").none(),
      nb::arg("missing").none(), nb::arg("from_last").none(), nb::arg("autoregression").none(),
      nb::arg("transform").none(), nb::arg("season"), nb::arg("calendar"), nb::arg("date_column"),
      nb::arg("irregular").none(), nb::arg("undated").none(), nb::arg("group"), nb::arg("group_by_file"),
      nb::arg("known"), nb::arg("categories"), nb::arg("origin").none());
  module.def(
      "open_labelled",
      [](const Sources& paths, const TableTexts& tables, const std::string& sequence_column,
         const std::string& label_column, const std::vector<std::string>& inputs,
         const std::vector<std::string>& categories, double validation_fraction, const std::string& delimiter,
         const std::string& decimal, std::optional<bool> header, const std::optional<std::string>& missing,
         std::uint64_t seed, SharedModel* origin) {
        LabelledOptions options;
        options.sequence_column = sequence_column;
        options.label_column = label_column;
        options.inputs = inputs;
        options.categories = categories;
        options.validation_fraction = validation_fraction;
        options.format = format_from(delimiter, decimal, header);
        options.missing = missing_from(missing, origin);
        options.seed = seed;
        return opened(paths, tables, options, origin, {open_labelled, open_labelled, open_labelled_tables});
      },
      nb::arg("paths"), nb::arg("tables"), nb::arg("sequence_column"), nb::arg("label_column"), nb::arg("inputs"),
      nb::arg("categories"), nb::arg("validation_fraction"), nb::arg("delimiter"), nb::arg("decimal"),
      nb::arg("header").none(), nb::arg("missing").none(), nb::arg("seed"), nb::arg("origin").none());
  module.def(
      "open_labelled_texts",
      [](const Sources& paths, const TableTexts& tables, const std::string& text_column,
         const std::string& label_column, Index longest, double validation_fraction, const std::string& delimiter,
         const std::string& decimal, std::optional<bool> header, const std::optional<std::string>& missing,
         std::uint64_t seed, SharedModel* origin) {
        LabelledTextOptions options;
        options.text_column = text_column;
        options.label_column = label_column;
        options.longest = longest;
        options.validation_fraction = validation_fraction;
        options.format = format_from(delimiter, decimal, header);
        options.missing = missing_from(missing, origin);
        options.seed = seed;
        std::optional<DataDescription> description;
        if (origin != nullptr) description = SharedModel::Reading(*origin)->data();
        const DataDescription* const as = description ? &*description : nullptr;
        const std::vector<Table> given = tables_from(tables);
        return opened_unless_interrupted([&] {
          return given.empty() ? open_labelled_texts(paths, options, as)
                               : open_labelled_text_tables(given, options, as);
        });
      },
      nb::arg("paths"), nb::arg("tables"), nb::arg("text_column"), nb::arg("label_column"), nb::arg("longest"),
      nb::arg("validation_fraction"), nb::arg("delimiter"), nb::arg("decimal"), nb::arg("header").none(),
      nb::arg("missing").none(), nb::arg("seed"), nb::arg("origin").none());
  module.def(
      "open_task",
      [](const std::string& name, Index length, Index validation_length, Index modulus, Index copy_tokens,
         std::uint64_t seed) {
        TaskOptions options;
        options.length = length;
        options.validation_length = validation_length;
        options.modulus = modulus;
        options.copy_tokens = copy_tokens;
        options.seed = seed;
        return opened_unless_interrupted([&] { return open_task(name, options); });
      },
      nb::arg("name"), nb::arg("length"), nb::arg("validation_length"), nb::arg("modulus"), nb::arg("copy_tokens"),
      nb::arg("seed"));
  module.attr("fine_tuning_rate") = fine_tuning_rate;
  module.def("suggest", &suggest, nb::arg("data"), nb::arg("device"), nb::arg("resumed") = "");
  module.def("fit", &run_fit, nb::arg("model"), nb::arg("data"), nb::arg("options"), nb::arg("progress").none(),
             nb::arg("validation").none(), nb::arg("seeds"), nb::arg("resume"), nb::arg("layers"), nb::arg("filters"));
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
