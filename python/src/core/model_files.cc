// Files of models: whole, in parts, and as ONNX.

#include <nanobind/stl/map.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/string_view.h>
#include <nanobind/stl/unique_ptr.h>
#include <nanobind/stl/vector.h>

#include <algorithm>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "dicts.h"
#include "interrupts.h"
#include "models.h"
#include "penstock/model_file.h"
#include "penstock/onnx.h"
#include "penstock/output_files.h"

namespace penstock::python {
namespace {

/// Reads a model and its history from a file. The history is an empty dictionary if the file has none.
std::pair<std::unique_ptr<SharedModel>, nb::dict> load(const std::string& path) {
  std::optional<History> history;
  std::unique_ptr<SharedModel> model;
  unless_interrupted([&] { model = std::make_unique<SharedModel>(Model::load(path, history), "the model"); });
  return {std::move(model), history ? fields_of(*history) : nb::dict()};
}

void save(SharedModel& shared, const std::string& path, const nb::dict& fields) {
  History history;
  Fields(fields).read_all(history);
  const bool known = nb::len(fields) > 0;
  check_outputs({}, {{"path", path, FileKind::model}}, advice_to_remove);
  const nb::gil_scoped_release unlocked;
  const SharedModel::Reading model(shared);
  if (known) {
    save_model(*model, path, history);
  } else {
    model->save(path);
  }
}

/// Returns {name: (type, shape, bytes)} of a safetensors file, and its metadata.
std::pair<nb::dict, std::map<std::string, std::string>> read_tensors(const std::string& path) {
  const TensorFile file = [&] {
    const nb::gil_scoped_release unlocked;
    return read_tensor_file(path);
  }();
  nb::dict tensors;
  for (const TensorFile::Tensor& tensor : file.tensors) {
    const nb::bytes values(tensor.values.data(), tensor.values.size());
    tensors[nb::cast(tensor.name)] = nb::make_tuple(tensor.dtype, tensor.shape, values);
  }
  return {std::move(tensors), file.metadata};
}

/// Returns the JSON description of a model in a file, and copies of its parameters by name.
std::pair<std::string, nb::dict> read_parts(const std::string& path) {
  const Model model = [&] {
    const nb::gil_scoped_release unlocked;
    return Model::load(path);
  }();
  nb::dict parameters;
  for (const ModelTensor& tensor : model_tensors(model)) {
    const Array copy = Array::empty(tensor.shape, Scalar::f32);
    std::ranges::copy(tensor.values, copy.as<float>());
    parameters[tensor.name.c_str()] = copy.object();
  }
  return {model_description(model), std::move(parameters)};
}

/// Writes a model file from a JSON description and parameters, as read_parts() returns them.
void write_parts(const std::string& path, const std::string& description, const nb::dict& parameters) {
  std::vector<Array> arrays;
  std::vector<ModelTensor> tensors;
  for (const auto& [name, value] : parameters) {
    const Array& array = arrays.emplace_back(Array(value, "parameters", Scalar::f32).contiguous());
    tensors.push_back(
        {nb::cast<std::string>(name), {array.shape().begin(), array.shape().end()}, array.values<float>()});
  }
  check_outputs({}, {{"path", path, FileKind::model}}, advice_to_remove);
  const nb::gil_scoped_release unlocked;
  make_model(description, tensors, path).save(path);
}

void save_as_onnx(SharedModel& shared, const std::string& path, bool normalised, const std::string& group) {
  check_outputs({}, {{"path", path, FileKind::onnx}}, advice_to_remove);
  const nb::gil_scoped_release unlocked;
  save_onnx(*SharedModel::Reading(shared), path, {.normalised = normalised, .group = group});
}

}  // namespace

void bind_model_files(nb::module_& module, nb::class_<SharedModel>& model) {
  module.def("read_tensors", &read_tensors);
  module.def("utc_time", &utc_time);
  module.def("read_model_parts", &read_parts);
  module.def("write_model_parts", &write_parts);
  model.def_static("load", &load).def("save", &save).def("save_onnx", &save_as_onnx);
}

}  // namespace penstock::python
