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
#include "models.h"
#include "penstock/data/labelled_texts.h"
#include "penstock/data/sound.h"
#include "penstock/stop.h"
#include "penstock/train/fine_tune.h"
#include "tables.h"

namespace penstock::python {
namespace {

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

/// The functions that open one kind of data: from files, from files for a model to train further, and from tables.
template <class Options>
struct Openers {
  std::unique_ptr<Dataset> (*files)(const Sources&, const Options&);
  std::unique_ptr<Dataset> (*files_as)(const Sources&, const Options&, const DataDescription&);
  std::unique_ptr<Dataset> (*tables)(const std::vector<Table>&, const Options&, const DataDescription*);
};

/// Returns the description of the data of a model to train further; empty without one.
std::optional<DataDescription> data_of(SharedModel* origin) {
  return origin == nullptr ? std::nullopt : std::optional(SharedModel::Reading(*origin)->data());
}

/// Opens tables if there are any, otherwise files. `origin` is a model to train further, or null.
template <class Options>
std::unique_ptr<SharedDataset> opened(const Sources& paths, const TableTexts& texts, const Options& options,
                                      SharedModel* origin, const std::type_identity_t<Openers<Options>>& open) {
  const std::optional<DataDescription> description = data_of(origin);
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

void bind_datasets(nb::module_& module) {
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
        const std::optional<DataDescription> description = data_of(origin);
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
        const std::optional<DataDescription> description = data_of(origin);
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
}

}  // namespace penstock::python
