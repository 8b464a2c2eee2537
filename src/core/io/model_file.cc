#include "io/model_file.h"

#include <algorithm>
#include <set>
#include <utility>

#include "base/check.h"
#include "base/quote.h"
#include "io/model_json.h"
#include "io/network_file.h"
#include "nn/model/model_spec.h"
#include "nn/model/quantize.h"
#include "ops/pointwise/elementwise.h"

namespace penstock {

namespace io {

namespace {

constexpr const char* metadata_key = "penstock";
// Since version 2 files carry a checksum, so that one without is damaged.
constexpr Index format_version = 2;
constexpr Index first_with_checksum = 2;

bool is_training(const auto& tensor) { return tensor.name.starts_with(training_prefix); }

void check_finite(std::string_view tensor, std::span<const float> values, const std::string& source) {
  if (ops::all_finite(0, static_cast<Index>(values.size()), values.data())) return;
  fail(ErrorCode::bad_input, "{}: tensor {} holds values that are not finite", source, tensor);
}

/// Kernels sum products of weights between -127 and 127.
void check_int8(std::string_view tensor, std::span<const std::int8_t> values, const std::string& source) {
  if (std::ranges::find(values, std::int8_t{-128}) == values.end()) return;
  fail(ErrorCode::bad_input, "{}: tensor {} holds -128; weights of int8 are -127 to 127", source, tensor);
}

/// Products are a sum of integers times the scale of the weights, which quantize() makes the largest weight / 127.
void check_scales(std::string_view tensor, std::span<const float> scales, const std::string& source) {
  const auto negative = std::ranges::find_if(scales, [](float scale) { return scale < 0.0f; });
  if (negative == scales.end()) return;
  fail(ErrorCode::bad_input, "{}: tensor {} holds {}; scales of weights must be 0 or more", source, tensor, *negative);
}

/// Building a network takes memory of the order of its parameters, so an architecture far beyond the tensors of its
/// file is refused first. A factor, so that one missing tensor is reported by its name; that of a model of int8, whose
/// scales and biases are more than nothing.
void check_size(const SafetensorsFile& file, const ModelDescription& model) {
  constexpr Index always_fine = 1 << 20;
  Index bytes = 0;
  for (const TensorInfo& tensor : file.tensors()) bytes += is_training(tensor) ? 0 : tensor.bytes;
  const Index present = bytes / static_cast<Index>(sizeof(float));
  const Index needed = nn::parameter_count(model.spec, model.data);
  if (needed > always_fine && needed / 4 > present) {
    fail(ErrorCode::incompatible, "{}: the architecture has {} parameters, the tensors hold {}", file.source(), needed,
         present);
  }
}

}  // namespace

std::vector<TensorData> model_tensors(const Model::Impl& model) {
  const nn::Parameters<float>& parameters = *model.parameters;
  std::vector<TensorData> tensors;
  for (const nn::ParameterEntry& entry : parameters.layout().entries()) {
    if (entry.dtype != penstock::DType::i8) {
      tensors.push_back(tensor_data(entry.name, entry.shape, parameters.value(entry)));
      continue;
    }
    const auto rows = std::make_shared<const std::vector<std::int8_t>>(nn::int8_rows(parameters, entry));
    tensors.push_back(tensor_data(entry.name, entry.shape, std::span(*rows)));
    tensors.back().owner = rows;
  }
  return tensors;
}

Metadata model_metadata(const ModelSpec& spec, const DataDescription& data) {
  const nlohmann::json description = {
      {"format_version", format_version}, {"model", to_json(spec)}, {"data", to_json(data)}};
  return {{metadata_key, to_text(description)}};
}

namespace {

/// Calls check(), whose errors are those of the file.
void checked(const std::string& source, const auto& check) {
  try {
    check();
  } catch (const Error& error) {
    fail(ErrorCode::bad_input, "{}: {}", source, error.what());
  }
}

/// The model that a parsed description asks for, checked.
ModelDescription described(FieldReader& reader, const std::string& source) {
  ModelDescription result{model_spec_from_json(reader.object("model"), source),
                          data_description_from_json(reader.object("data"), source)};
  reader.finish();
  checked(source, [&] { nn::check_spec(result.spec, result.data); });
  return result;
}

Index checked_version(FieldReader& reader, const std::string& source) {
  const Index version = reader.integer("format_version");
  if (version < 1 || version > format_version) {
    fail(ErrorCode::incompatible, "{}: format_version is {}, this version of Penstock reads 1 to {}", source, version,
         format_version);
  }
  return version;
}

}  // namespace

void write_model(const std::string& path, std::span<const TensorData> tensors, const Metadata& metadata) {
  const std::string source = fmt::format("cannot write '{}', which nobody could read back", path);
  const nlohmann::json json = parse_object(metadata.at(metadata_key), source, metadata_key);
  FieldReader reader(json, source, metadata_key);
  checked_version(reader, source);
  described(reader, source);
  for (const TensorData& tensor : tensors) {
    if (is_training(tensor) || tensor.dtype == DType::i8) continue;
    check_finite(tensor.name,
                 {reinterpret_cast<const float*>(tensor.values.data()), tensor.values.size() / sizeof(float)}, source);
  }
  write_safetensors(path, tensors, metadata);
}

ModelDescription read_description(const SafetensorsFile& file) {
  const auto text = file.metadata().find(metadata_key);
  if (text == file.metadata().end()) {
    if (file.metadata().contains(network_key)) {
      fail(ErrorCode::incompatible,
           "{} is a network that was imported, not a model of 'penstock train': 'penstock info' describes it, and "
           "penstock.Network in Python and C++ runs it",
           file.source());
    }
    fail(ErrorCode::incompatible, "{}: not a Penstock model: its metadata have no \"{}\"", file.source(), metadata_key);
  }
  const nlohmann::json json = parse_object(text->second, file.source(), fmt::format("metadata \"{}\"", metadata_key));
  FieldReader reader(json, file.source(), metadata_key);
  const Index version = checked_version(reader, file.source());
  if (version >= first_with_checksum && !file.has_checksum()) {
    fail(ErrorCode::bad_input, "{}: damaged: files of format_version {} carry a checksum", file.source(), version);
  }
  ModelDescription result = described(reader, file.source());
  check_size(file, result);
  checked(file.source(), [&] { nn::check_int8(result.spec, result.data); });
  return result;
}

void read_parameters(const SafetensorsFile& file, nn::Parameters<float>& parameters) {
  std::set<std::string_view> known;
  const nn::ParameterEntry* matrix = nullptr;  // of int8, which is before its scales
  std::vector<std::int8_t> rows;
  for (const nn::ParameterEntry& entry : parameters.layout().entries()) {
    known.insert(entry.name);
    if (entry.dtype == penstock::DType::i8) {
      matrix = &entry;
      rows.resize(static_cast<std::size_t>(entry.size));
      file.read(entry.name, entry.shape, std::span(rows));
      check_int8(entry.name, rows, file.source());
      continue;
    }
    const std::span<float> value = parameters.value(entry);
    file.read(entry.name, entry.shape, value);
    check_finite(entry.name, value, file.source());
    if (matrix == nullptr) continue;
    check_scales(entry.name, value, file.source());
    nn::set_int8_rows(parameters, *std::exchange(matrix, nullptr), rows, value);
  }
  for (const TensorInfo& tensor : file.tensors()) {
    if (!is_training(tensor) && !known.contains(tensor.name)) {
      fail(ErrorCode::incompatible, "{}: tensor {} belongs to no part of this architecture", file.source(),
           in_quotes(tensor.name));
    }
  }
}

}  // namespace io

Model Model::load(const std::string& path) {
  std::optional<History> history;
  return load(path, history);
}

Model Model::load(const std::string& path, std::optional<History>& history) {
  const io::SafetensorsFile file = io::SafetensorsFile::open(path);
  const io::ModelDescription description = io::read_description(file);
  auto impl = std::make_unique<Impl>(description.spec, description.data);
  io::read_parameters(file, *impl->parameters);
  impl->parameters->changed();
  history = io::read_history(file);
  return Model(std::move(impl));
}

std::vector<ModelTensor> model_tensors(const Model& model) {
  require(model.spec().int8.empty(),
          "model must have no weights of int8, which are no floats: the one that was quantised has them");
  const nn::Parameters<float>& parameters = *model.impl().parameters;
  std::vector<ModelTensor> tensors;
  for (const nn::ParameterEntry& entry : parameters.layout().entries()) {
    tensors.push_back({entry.name, entry.shape, parameters.value(entry)});
  }
  return tensors;
}

std::string model_description(const Model& model) {
  return io::model_metadata(model.spec(), model.data()).at(io::metadata_key);
}

Model make_model(const std::string& description, std::span<const ModelTensor> tensors, const std::string& source) {
  const nlohmann::json json = io::parse_object(description, source, "its description");
  FieldReader reader(json, source, "description");
  io::checked_version(reader, source);
  const io::ModelDescription described = io::described(reader, source);
  Model model(described.spec, described.data);
  nn::Parameters<float>& parameters = *model.impl().parameters;
  std::set<std::string_view> given;
  for (const ModelTensor& tensor : tensors) {
    const nn::ParameterEntry* const entry = parameters.layout().find(tensor.name);
    if (entry == nullptr || entry->shape != tensor.shape || !given.insert(tensor.name).second) {
      fail(ErrorCode::incompatible, "{}: tensor {} [{}] belongs to no part of this architecture", source,
           in_quotes(tensor.name), fmt::join(tensor.shape, ", "));
    }
    io::check_finite(tensor.name, tensor.values, source);
    std::ranges::copy(tensor.values, parameters.value(*entry).begin());
  }
  for (const nn::ParameterEntry& entry : parameters.layout().entries()) {
    if (!given.contains(entry.name)) fail(ErrorCode::incompatible, "{}: there is no tensor {}", source, entry.name);
  }
  parameters.changed();
  return model;
}

void Model::save(const std::string& path) const {
  io::write_model(path, io::model_tensors(impl()), io::model_metadata(impl().spec, impl().data));
}

}  // namespace penstock
