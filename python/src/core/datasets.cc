#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/unique_ptr.h>
#include <nanobind/stl/vector.h>

#include <array>
#include <memory>
#include <optional>
#include <string>

#include "bindings.h"
#include "dicts.h"
#include "interrupts.h"
#include "models.h"
#include "penstock/data/arrow.h"
#include "penstock/data/labelled_texts.h"
#include "penstock/data/sound.h"
#include "penstock/train/fine_tune.h"
#include "penstock/train/train.h"

namespace penstock::python {
namespace {

/// Opens data without the GIL; Ctrl-C ends that.
template <class Open>
std::unique_ptr<SharedDataset> opened(const Open& open) {
  return std::make_unique<SharedDataset>(unless_interrupted(open), "the dataset");
}

/// Copies the table of a capsule of the Arrow PyCapsule interface. Keeps the GIL, since a producer may need it.
Table table_of(const nb::capsule& capsule, const std::string& name) {
  auto* const stream = static_cast<ArrowArrayStream*>(PyCapsule_GetPointer(capsule.ptr(), "arrow_array_stream"));
  if (stream == nullptr) throw nb::python_error();
  return table_of_arrow(*stream, name);
}

/// Returns the description of the data of a model to train further; empty without one.
std::optional<DataDescription> data_of(SharedModel* origin) {
  return origin == nullptr ? std::nullopt : std::optional(SharedModel::Reading(*origin)->data());
}

/// Returns the format of a table. Each part may be empty, which means detected.
TableFormat format_from(Fields& given) {
  const auto delimiter = given.get<std::string>("delimiter"), decimal = given.get<std::string>("decimal");
  if (delimiter.size() > 1) refuse("delimiter must be one character, not '" + delimiter + "'");
  if (!decimal.empty() && decimal != "." && decimal != ",") refuse("decimal must be '.' or ',', not '" + decimal + "'");
  return {delimiter.empty() ? '\0' : delimiter.front(), decimal.empty() ? '\0' : decimal.front(),
          given.get<std::optional<bool>>("header")};
}

/// Reads the name of a value of an enumeration. Leaves `value` as it is if there is none.
template <class Enum>
void read_name(Fields& given, const char* name, Enum& value, Enum (*parse)(std::string_view)) {
  const auto said = given.get<std::optional<std::string>>(name);
  if (said) value = parse(*said);
}

/// Reads the options of tables of each kind. Options that are left out are as in `origin`.
template <class Options>
void read_table_options(Fields& given, const std::optional<DataDescription>& origin, Options& options) {
  given.read("validation_fraction", options.validation_fraction);
  options.format = format_from(given);
  if (origin) options.missing = origin->table.missing;
  read_name(given, "missing", options.missing, parse_missing);
}

Transform parse_transform(std::string_view name) {
  return named<Transform>("transform", name, std::array{"auto", "none", "log"});
}

SeriesOptions series_options(Fields& given, const std::optional<DataDescription>& origin) {
  SeriesChoices said;
  given.read("from_last", said.from_last);
  given.read("autoregression", said.autoregression);
  given.read("calendar", said.calendar);
  given.read("date_column", said.date_column);
  if (const auto name = given.get<std::optional<std::string>>("irregular")) said.irregular = parse_irregular(*name);
  if (const auto name = given.get<std::optional<std::string>>("transform")) said.transform = parse_transform(*name);
  SeriesOptions options = suggest_series(said);
  read_table_options(given, origin, options);
  given.read("inputs", options.inputs);
  given.read("targets", options.targets);
  given.read("horizon", options.horizon);
  if (origin) options.undated = origin->series.undated;
  read_name(given, "undated", options.undated, parse_undated);
  given.read("season", options.season);
  given.read("allow_negative", options.allow_negative);
  given.read("group", options.group);
  given.read("group_by_file", options.group_by_file);
  given.read("known", options.known);
  given.read("categories", options.categories);
  return options;
}

LabelledOptions labelled_options(Fields& given, const std::optional<DataDescription>& origin) {
  LabelledOptions options;
  read_table_options(given, origin, options);
  given.read("sequence_column", options.sequence_column);
  given.read("label_column", options.label_column);
  given.read("inputs", options.inputs);
  given.read("categories", options.categories);
  given.read("seed", options.seed);
  return options;
}

LabelledTextOptions labelled_text_options(Fields& given, const std::optional<DataDescription>& origin) {
  LabelledTextOptions options;
  read_table_options(given, origin, options);
  given.read("text_column", options.text_column);
  given.read("label_column", options.label_column);
  given.read("longest", options.longest);
  given.read("seed", options.seed);
  return options;
}

/// Binds a function that opens files, or tables if there are any. `read` takes its options from a dictionary; `origin`
/// is a model to train further, or None.
template <class Options>
void bind_opener(nb::module_& module, const char* name,
                 Options (*read)(Fields& given, const std::optional<DataDescription>& origin),
                 std::unique_ptr<Dataset> (*open)(const TableSources&, const Options&, const DataDescription*)) {
  module.def(
      name,
      [=](const Sources& paths, const std::vector<Table>& tables, SharedModel* origin, const nb::dict& fields) {
        const std::optional<DataDescription> description = data_of(origin);
        Fields given(fields);
        const Options options = read(given, description);
        given.finish(name);
        const DataDescription* const as = description ? &*description : nullptr;
        return opened([&] { return open(tables.empty() ? TableSources(paths) : TableSources(tables), options, as); });
      },
      nb::arg("paths"), nb::arg("tables"), nb::arg("origin").none(), nb::arg("options"));
}

/// Returns a batch as a dictionary of arrays; None for those that the task does not need.
nb::dict batch_of(const Example& example) {
  const auto array = [&](const auto& numbers, std::size_t axes = 2) -> nb::object {
    if (numbers.empty()) return nb::none();
    std::vector<Index> shape = {example.rows, example.steps, 1};
    shape.back() = static_cast<Index>(numbers.size()) / (example.rows * example.steps);
    shape.resize(axes);
    return array_of(shape, numbers);
  };
  return dict_of({{"tokens", array(example.tokens)},
                  {"features", array(example.features, 3)},
                  {"labels", array(example.labels)},
                  {"targets", array(example.targets, 3)},
                  {"weights", array(example.weights, 3)},
                  {"lengths", array(example.lengths, 1)},
                  {"reset", array(example.reset)},
                  {"continues", example.continues}});
}

}  // namespace

void bind_datasets(nb::module_& module) {
  nb::class_<SharedDataset>(module, "Dataset")
      .def("description", [](SharedDataset& self) { return describe((*SharedDataset::Reading(self))->description()); })
      .def("forecasts_an_input",
           [](SharedDataset& self) { return (*SharedDataset::Reading(self))->description().forecasts_an_input(); })
      .def("held_out_steps", [](SharedDataset& self) { return (*SharedDataset::Reading(self))->held_out_steps(); })
      .def("training_steps", [](SharedDataset& self) { return (*SharedDataset::Reading(self))->training_steps(); })
      .def("reading",
           [](SharedDataset& self) {
             std::vector<std::string> texts;
             for (const Message& finding : (*SharedDataset::Reading(self))->reading()) {
               texts.push_back(finding.text(argument_words));
             }
             return texts;
           })
      .def("position", [](SharedDataset& self) { return (*SharedDataset::Reading(self))->position(); })
      .def("restore",
           [](SharedDataset& self, const std::string& position) { (*SharedDataset::Writing(self))->restore(position); })
      .def("next", [](SharedDataset& self, Index rows, Index steps) {
        Example example;
        const SharedDataset::Writing data(self);
        unless_interrupted([&] { (*data)->next(rows, steps, example); });
        return batch_of(example);
      });
  module.def("held_out_batch", [](SharedModel& model, SharedDataset& data, Index i, Index rows, Index steps) {
    Example example;
    const SharedModel::Reading made(model);
    const SharedDataset::Reading from(data);
    const bool found = unless_interrupted([&] { return held_out_batch(*made, **from, i, rows, steps, example); });
    return found ? std::optional(batch_of(example)) : std::nullopt;
  });
  module.def(
      "open_text",
      [](const Sources& paths, std::optional<double> validation_fraction, bool bytes,
         const std::optional<std::string>& tokens, Index vocabulary) {
        const TextOptions options{.validation_fraction = validation_fraction,
                                  .bytes = bytes,
                                  .tokens = tokens ? std::optional(parse_token_type(*tokens)) : std::nullopt,
                                  .vocabulary = vocabulary};
        return opened([&] { return open_text(paths, options); });
      },
      nb::arg("paths"), nb::arg("validation_fraction").none(), nb::arg("bytes"), nb::arg("tokens").none() = nb::none(),
      nb::arg("vocabulary") = 0);
  module.def(
      "open_sound",
      [](const std::string& input, const std::string& target, double validation_fraction, std::optional<Index> latency,
         SharedModel* origin) {
        const SoundOptions options{.validation_fraction = validation_fraction, .latency = latency};
        const std::optional<DataDescription> description = data_of(origin);
        return opened([&] { return open_sound(input, target, options, description ? &*description : nullptr); });
      },
      nb::arg("input"), nb::arg("target"), nb::arg("validation_fraction"), nb::arg("latency").none(),
      nb::arg("origin").none());
  nb::class_<Table>(module, "Table")
      .def("__init__", [](Table* self, const nb::capsule& capsule,
                          const std::string& name) { new (self) Table(table_of(capsule, name)); })
      .def_ro("name", &Table::name);
  module.def("guess_kind", [](const Sources& paths) {
    constexpr std::array names = {"text", "series", "labelled", "labelled texts"};
    return names[static_cast<std::size_t>(guess_kind(paths))];
  });
  bind_opener(module, "open_series", series_options, open_series);
  bind_opener(module, "open_labelled", labelled_options, open_labelled);
  bind_opener(module, "open_labelled_texts", labelled_text_options, open_labelled_texts);
  module.def("open_task", [](const std::string& name, Index length, Index validation_length,
                             std::optional<Index> modulus, std::optional<Index> copy_tokens, std::uint64_t seed) {
    const TaskOptions options{.length = length,
                              .validation_length = validation_length,
                              .modulus = modulus,
                              .copy_tokens = copy_tokens,
                              .seed = seed};
    return opened([&] { return open_task(name, options); });
  });
}

}  // namespace penstock::python
