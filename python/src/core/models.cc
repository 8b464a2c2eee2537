#include "models.h"

#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/string_view.h>
#include <nanobind/stl/unique_ptr.h>
#include <nanobind/stl/vector.h>

#include <algorithm>
#include <cmath>

#include "bindings.h"
#include "dicts.h"
#include "interrupts.h"
#include "penstock/data/row_steps.h"
#include "penstock/initial_weights.h"
#include "penstock/interval_tracker.h"
#include "penstock/quantize.h"
#include "penstock/train/fine_tune.h"
#include "penstock/train/fit.h"

namespace penstock::python {

ModelSpec spec_from(const nb::dict& fields) {
  ModelSpec spec;
  Fields given(fields);
  given.read("cell", spec.cell);
  given.read_all(spec);
  spec.members = 1;
  return spec;
}

namespace {

nb::list describe(const std::vector<Column>& columns) {
  nb::list all;
  for (const Column& column : columns) {
    nb::dict one = dict_of({{"name", column.name},
                            {"mean", column.mean},
                            {"scale", column.scale},
                            {"logarithm", column.logarithm},
                            {"feature", to_string(column.feature)}});
    if (column.feature == Feature::category) one["category"] = column.category;
    all.append(one);
  }
  return all;
}

/// Returns a model with new weights, and with the linear forecast of the dataset if it has one.
std::unique_ptr<SharedModel> make_model(const nb::dict& fields, SharedDataset& shared, std::uint64_t seed,
                                        const std::string& weights, double chrono) {
  const SharedDataset::Reading dataset(shared);
  ModelSpec spec = spec_from(fields);
  unless_interrupted([&] { use_linear_forecast(spec, **dataset); });
  const Initialisation initial{.weights = parse_initial_weights(weights), .chrono = chrono};
  return std::make_unique<SharedModel>(new_model(spec, **dataset, seed, initial), "the model");
}

/// Returns a model with the weights of another one, for data that were opened with it as origin.
std::unique_ptr<SharedModel> make_continuation(SharedModel& origin, SharedDataset& shared, double dropout) {
  const SharedModel::Reading model(origin);
  const SharedDataset::Reading dataset(shared);
  return std::make_unique<SharedModel>(unless_interrupted([&] { return continue_from(*model, **dataset, dropout); }),
                                       "the model");
}

/// Returns the names of the columns behind the inputs of a model, each once.
std::vector<std::string> raw_columns(const std::vector<Column>& inputs) {
  std::vector<std::string> names;
  for (const Column& input : inputs) {
    if (std::ranges::find(names, input.name) == names.end()) names.push_back(input.name);
  }
  return names;
}

/// Returns the description of the data with the scaling of one series. `group` is empty for a model without groups.
DataDescription description_of(const DataDescription& data, const std::string& group) {
  if (data.series.group_column.empty() && group.empty()) return data;
  const auto found = std::ranges::find(data.series.groups, group, &Group::name);
  if (found == data.series.groups.end()) {
    refuse(data.series.groups.empty()
               ? "group must be empty for a model of one series, not " + group
               : "group must be one of " + std::to_string(data.series.groups.size()) + " series, such as " +
                     data.series.groups.front().name + ", not " + (group.empty() ? "empty" : group));
  }
  return data.of_group(*found);
}

/// Converts raw values [..., C] (float64, one column per name of raw_columns()) to the model's inputs [..., I]. Dates
/// are seconds since 1970; the time between rows follows from them. Values known in advance are read from later rows.
nb::object normalised(SharedModel& shared, nb::handle rows, const std::string& group) {
  const SharedModel::Reading model(shared);
  const DataDescription data = description_of(model->data(), group);
  const std::vector<Column>& inputs = data.inputs;
  const auto category = std::ranges::find(inputs, Feature::category, &Column::feature);
  if (category != inputs.end()) {
    refuse("the model reads texts of the column " + category->name + ": give it a table, not an array");
  }
  const std::vector<std::string> names = raw_columns(inputs);
  const Array raw = Array(rows, "inputs", Scalar::f64).contiguous();
  if (inputs.empty() || raw.rank() == 0 || raw.shape().back() != static_cast<Index>(names.size())) {
    std::string all;
    for (const std::string& name : names) all += (all.empty() ? "" : ", ") + name;
    refuse("inputs must have the columns " + all + ", not the shape " + text_of(raw.shape()));
  }
  std::vector<std::size_t> places;
  for (const Column& input : inputs) {
    places.push_back(static_cast<std::size_t>(std::ranges::find(names, input.name) - names.begin()));
  }
  std::vector<Index> shape(raw.shape().begin(), raw.shape().end());
  shape.back() = static_cast<Index>(inputs.size());
  const Array values = Array::empty(shape, Scalar::f32);
  const auto from = raw.values<double>();
  const std::size_t steps = raw.rank() > 1 ? static_cast<std::size_t>(raw.shape()[raw.rank() - 2]) : 1;
  const auto field = [&](std::size_t row, std::size_t input) { return from[row * names.size() + places[input]]; };
  // The time since the previous row, in steps of the calendar. The first row of a sequence counts as one step.
  const auto elapsed = [&](std::size_t row, std::size_t input) {
    return row % steps == 0 ? 1.0
                            : data.series.row_dates.seconds_between(field(row - 1, input), field(row, input)) /
                                  data.series.row_dates.step;
  };
  const auto dated = static_cast<std::size_t>(std::ranges::find_if(inputs, &Column::reads_dates) - inputs.begin());
  RowSteps apart(data.series.row_dates);
  for (std::size_t row = 1; dated < inputs.size() && row < from.size() / names.size(); ++row) {
    const std::string mistake = row % steps == 0 ? "" : apart.see(field(row - 1, dated), field(row, dated));
    if (!mistake.empty()) refuse("inputs: by the dates of column " + inputs[dated].name + " " + mistake);
  }
  for (std::size_t i = 0; i < from.size() / names.size() * inputs.size(); ++i) {
    const std::size_t input = i % inputs.size(), row = i / inputs.size();
    const double given = inputs[input].feature == Feature::elapsed ? elapsed(row, input) : field(row, input);
    const bool may_be_missing = std::isnan(given) && data.reads_ahead() && !data.is_known_ahead(inputs[input].name);
    if (!may_be_missing && !inputs[input].can_read(given)) {
      refuse("inputs must be finite and not too far from the values that the model is trained on; column " +
             inputs[input].name + " is " + std::to_string(given));
    }
    values.as<float>()[i] = static_cast<float>(inputs[input].normal(given));
  }
  const std::size_t sequence = steps * inputs.size(), all = from.size() / names.size() * inputs.size();
  for (std::size_t first = 0; first < all && sequence > 0; first += sequence) {
    fill_ahead(data, std::span(values.as<float>() + first, sequence));
  }
  return values.object();
}

/// Converts forecasts [..., horizon * targets] to the units of the data: [..., horizon, targets], float64.
nb::object in_units(SharedModel& shared, nb::handle outputs, const std::string& group) {
  const SharedModel::Reading model(shared);
  const DataDescription data = description_of(model->data(), group);
  const Array given = Array(outputs, "outputs", Scalar::f32).contiguous();
  Shape shape(given.shape().begin(), given.shape().end());
  if (shape.empty() || data.targets.empty() || shape.back() != data.output_size()) {
    refuse("outputs must have " + std::to_string(data.output_size()) + " columns, not the shape " +
           text_of(given.shape()));
  }
  shape.back() = data.series.horizon;
  shape.push_back(static_cast<Index>(data.targets.size()));
  const Array values = Array::empty(shape, Scalar::f64);
  const auto from = given.values<float>();
  for (std::size_t i = 0; i < from.size(); ++i) {
    values.as<double>()[i] = data.targets[i % data.targets.size()].raw(static_cast<double>(from[i]));
  }
  return values.object();
}

/// Returns quantiles of forecasts in the units of the data, float64 [..., T, horizon, targets, levels]. `features`
/// [..., T, I] are the inputs of the model, `outputs` [..., T, O] its answers, `rows` [..., T, C] the raw values. The
/// spread is updated along T by the errors of past forecasts.
nb::object quantiles(SharedModel& shared, nb::handle features, nb::handle outputs, nb::handle rows,
                     const std::vector<double>& levels, const std::string& group) {
  const SharedModel::Reading model(shared);
  const DataDescription data = description_of(model->data(), group);
  data.series.errors.check(levels);
  const Array read = Array(features, "inputs", Scalar::f32).contiguous();
  const Array given = Array(outputs, "outputs", Scalar::f32).contiguous();
  const Array raw = Array(rows, "inputs", Scalar::f64).contiguous();
  const std::vector<std::string> names = raw_columns(data.inputs);
  std::vector<double> row_values(data.targets.size());
  const auto inputs = static_cast<std::size_t>(data.input_size()), size = static_cast<std::size_t>(data.output_size());
  const std::size_t steps = static_cast<std::size_t>(given.shape()[given.rank() - 2]);
  Shape shape(given.shape().begin(), given.shape().end());
  shape.back() = data.series.horizon;
  shape.push_back(static_cast<Index>(data.targets.size()));
  shape.push_back(static_cast<Index>(levels.size()));
  const Array values = Array::empty(shape, Scalar::f64);
  double* next = values.as<double>();
  IntervalTracker tracker(data);
  for (std::size_t row = 0; row < given.values<float>().size() / size; ++row) {
    if (row % steps == 0) tracker.reset();
    const auto forecasts = given.values<float>().subspan(row * size, size);
    for (std::size_t c = 0; c < row_values.size(); ++c) {
      const auto name = std::ranges::find(names, data.targets[c].name);
      const auto column = static_cast<std::size_t>(name - names.begin());
      row_values[c] = name == names.end() ? std::nan("") : raw.values<double>()[row * names.size() + column];
    }
    tracker.add(read.values<float>().subspan(row * inputs, inputs), forecasts, row_values);
    for (std::size_t i = 0; i < size; ++i) {
      for (const double level : levels) *next++ = raw_forecast(data, tracker.distribution(), forecasts, i, level);
    }
  }
  return values.object();
}

/// Returns the state of B rows: a copy of an array [values], or the initial state for None.
ModelState state_from(const Model& model, Index rows, nb::handle given) {
  ModelState state = model.state(rows);
  if (given.is_none()) return state;
  const Array array = Array(given, "state", Scalar::f32).contiguous();
  array.require_shape(Shape{static_cast<Index>(state.values.size())}, "(values,)");
  std::ranges::copy(array.values<float>(), state.values.begin());
  return state;
}

/// Returns the outputs [..., O] for tokens [...] or features [..., I] of one row or of rows of equal length, and the
/// state.
nb::tuple forward(SharedModel& shared, nb::handle inputs, nb::handle state_in, const std::string& group,
                  const CallExecution& execution) {
  const SharedModel::Reading whole(shared);
  const std::optional<Model> own = model_of_group(*whole, group);
  const Model* const model = own ? &*own : &*whole;
  const DataDescription& data = model->data();
  const bool tokens = data.vocabulary > 0;
  const Array x = Array(inputs, "inputs", tokens ? Scalar::i32 : Scalar::f32).contiguous();
  const int sequence_rank = x.rank() - (tokens ? 0 : 1);
  if (sequence_rank < 1 || sequence_rank > 2) {
    refuse(std::string("inputs must have the shape ") + (tokens ? "(T,) or (B, T)" : "(T, I) or (B, T, I)") + ", not " +
           text_of(x.shape()));
  }
  if (!tokens && x.shape().back() != data.input_size()) {
    refuse("inputs must have I = " + std::to_string(data.input_size()) + " columns, not " +
           std::to_string(x.shape().back()));
  }
  Shape shape(x.shape().begin(), x.shape().begin() + sequence_rank);
  const Index rows = sequence_rank == 2 ? shape[0] : 1, steps = shape.back();
  shape.push_back(data.output_size());
  if (rows == 0) refuse("inputs must have at least one row, not the shape " + text_of(x.shape()));
  ModelState state = state_from(*model, rows, state_in);
  const Array outputs = Array::empty(shape, Scalar::f32);
  const std::span<float> y(outputs.as<float>(), static_cast<std::size_t>(outputs.size()));
  if (steps > 0) {
    const nb::gil_scoped_release unlocked;
    const Execution on = settled(*model, execution, {.rows = rows, .steps = steps});
    if (tokens) {
      model->forward(rows, steps, x.values<std::int32_t>(), y, state, on);
    } else {
      model->forward(rows, steps, x.values<float>(), y, state, on);
    }
  }
  return nb::make_tuple(outputs.object(), array_of(Shape{static_cast<Index>(state.values.size())}, state.values));
}

/// Generates `count` bytes after a prompt.
nb::bytes generate(SharedModel& shared, const nb::bytes& prompt, Index count, double temperature, Index top_k,
                   double top_p, std::uint64_t seed, const CallExecution& execution) {
  if (count < 0) refuse("count must not be negative, not " + std::to_string(count));
  const std::string beginning(prompt.c_str(), prompt.size());
  std::string text;
  unless_interrupted([&] {
    const SharedModel::Reading model(shared);
    constexpr Index fetched = 64;  // bytes per copy from the device
    const DeviceQuestion question{.calls = std::max<Index>(1, count), .copied_every = fetched};
    Generator generator(*model, {.temperature = temperature, .top_k = top_k, .top_p = top_p}, seed,
                        settled(*model, execution, question));
    generator.read(beginning);
    for (Index i = 0; i < count; ++i) text += generator.next();
  });
  return nb::bytes(text.data(), text.size());
}

}  // namespace

std::optional<Model> model_of_group(const Model& model, const std::string& group) {
  return group.empty() ? std::nullopt : model.of_series(description_of(model.data(), group));
}

Execution settled(const Model& model, const CallExecution& execution, DeviceQuestion question) {
  question.execution = execution.on;
  if (execution.automatic) question.execution.device = choose_device(model, question).device;
  return question.execution;
}

nb::dict describe(const ModelSpec& spec) {
  nb::dict result = fields_of(spec);
  result["cell"] = spec.cell;
  if (!spec.int8.empty()) result["int8"] = spec.int8;
  return result;
}

nb::dict describe(const DataDescription& data) {
  std::vector<std::string> groups;
  for (const Group& group : data.series.groups) groups.push_back(group.name);
  return dict_of({{"task", to_string(data.task)},
                  {"vocabulary", data.vocabulary},
                  {"inputs", describe(data.inputs)},
                  {"targets", describe(data.targets)},
                  {"horizon", data.series.horizon},
                  {"season", data.series.season},
                  {"sample_rate", data.sample_rate},
                  {"latency", data.latency},
                  {"classes", data.labels.classes},
                  {"group_column", data.series.group_column},
                  {"groups", groups},
                  {"own_forecasts", data.series.own_forecasts()},
                  {"text_column", data.labels.text_column},
                  {"longest_text", data.labels.longest_text},
                  {"delimiter", std::string(1, data.table.delimiter)},
                  {"input_size", data.input_size()},
                  {"output_size", data.output_size()}});
}

/// Returns the names of the layers that are int8 in the end, what is lost, and (name, loss, int8) of each layer.
/// `before` is the error of the model; `error_of` returns it with the given names of layers.
nb::tuple quantized(SharedModel& shared, double before, const nb::callable& error_of, std::optional<double> max_loss,
                    bool each_layer) {
  const SharedModel::Reading model(shared);
  const LossOf loss = [&](const Model& made) {
    return loss_between(*model, before, nb::cast<double>(error_of(made.spec().int8)));
  };
  const Quantized made = quantize(*model, loss, {.max_loss = max_loss, .each_layer = each_layer});
  nb::list layers;
  for (const QuantizedLayer& layer : made.layers) layers.append(nb::make_tuple(layer.name, layer.loss, layer.int8));
  return nb::make_tuple(made.model.spec().int8, made.loss, layers);
}

void bind_models(nb::module_& module) {
  module.def("quantize", &quantized, nb::arg("model"), nb::arg("before"), nb::arg("error_of"),
             nb::arg("max_loss").none(), nb::arg("each_layer"));
  nb::class_<SharedModel> bound(module, "Model");
  bind_model_files(module, bound);
  bound
      .def_static("make", &make_model, nb::arg("spec"), nb::arg("data"), nb::arg("seed"),
                  nb::arg("initial_weights") = "standard", nb::arg("chrono") = 0.0)
      .def_static("continue_from", &make_continuation)
      .def("normalised", &normalised)
      .def("in_units", &in_units)
      .def("quantiles", &quantiles)
      .def("spec", [](SharedModel& self) { return describe(SharedModel::Reading(self)->spec()); })
      .def("data", [](SharedModel& self) { return describe(SharedModel::Reading(self)->data()); })
      .def("allow_negative", [](SharedModel& self) { SharedModel::Writing(self)->allow_negative(); })
      .def("parameter_count", [](SharedModel& self) { return SharedModel::Reading(self)->parameter_count(); })
      .def("memory",
           [](SharedModel& self, Index rows, Index steps, const CallExecution& execution) {
             const SharedModel::Reading model(self);
             const ModelMemory memory =
                 model->memory(rows, steps, settled(*model, execution, {.rows = rows, .steps = steps}));
             return dict_of({{"weights", memory.weights},
                             {"state", memory.state},
                             {"forward", memory.forward},
                             {"training", memory.training},
                             {"optimizer", memory.optimizer}});
           })
      .def("with_int8",
           [](SharedModel& self, const std::vector<std::string>& layers) {
             return std::make_unique<SharedModel>(SharedModel::Reading(self)->with_int8(layers), "the model");
           })
      .def("choose_device",
           [](SharedModel& self, Index rows, Index steps, bool training, const CallExecution& execution) {
             const SharedModel::Reading model(self);
             const DeviceChoice choice =
                 choose_device(*model, {.rows = rows, .steps = steps, .training = training, .execution = execution.on});
             return nb::make_tuple(to_string(choice.device), choice.why);
           })
      .def("forward", &forward, nb::arg("inputs"), nb::arg("state").none(), nb::arg("group"), nb::arg("execution"))
      .def("generate", &generate);
}

}  // namespace penstock::python
