// Recurrent stacks as safetensors files: their values by name, and in the metadata what the stack is.

#include <functional>
#include <numeric>
#include <string>
#include <vector>

#include "base/check.h"
#include "io/model_json.h"
#include "io/safetensors.h"
#include "penstock/recurrent_program.h"

namespace penstock {
namespace {

constexpr const char* kSpecKey = "penstock.recurrent";

/// Describes the fields of a spec but the cell, for a FieldReader or a FieldWriter.
void spec_fields(auto& of, auto& spec) {
  of.field("input_size", spec.input_size);
  of.field("hidden_size", spec.hidden_size);
  of.field("heads", spec.heads);
  of.field("layers", spec.layers);
  of.named("direction", spec.direction, parse_direction);
  of.named("bias", spec.bias, parse_bias);
  of.field("dropout", spec.dropout);
  of.optional("gradient_clip", spec.gradient_clip, spec.gradient_clip != 0.0);
}

std::string text_of(const RecurrentSpec& spec) {
  FieldWriter fields;
  spec_fields(fields, spec);
  nlohmann::json json = fields.written();
  io::add_cell(spec.cell, json);
  return io::to_text(json);
}

/// Reads the spec from a file without judging it; the constructor of the stack checks it.
RecurrentSpec spec_from(const io::SafetensorsFile& file) {
  const auto found = file.metadata().find(kSpecKey);
  if (found == file.metadata().end()) {
    fail(ErrorCode::incompatible, "{} holds no recurrent stack: its metadata has no {}", file.source(), kSpecKey);
  }
  const nlohmann::json json = io::parse_object(found->second, file.source(), kSpecKey);
  FieldReader reader(json, file.source(), kSpecKey);
  RecurrentSpec spec;
  try {
    spec.cell = io::read_cell(reader, json, file.source());
    spec_fields(reader, spec);
    reader.finish();
    parameter_shapes(spec);
  } catch (const Error& error) {
    if (error.code() != ErrorCode::invalid_argument) throw;
    fail(ErrorCode::bad_input, "{}: {}: {}", file.source(), kSpecKey, error.what());
  }
  return spec;
}

}  // namespace

template <class Real>
void Recurrent<Real>::save(const std::string& path) const {
  std::vector<io::TensorData> tensors;
  std::vector<std::vector<Real>> copied;  // of what lies on a GPU
  for (const Parameter& parameter : parameters()) {
    std::span<const Real> value = parameter.value;
    if (value.empty()) {
      const auto size = std::accumulate(parameter.shape.begin(), parameter.shape.end(), Index{1}, std::multiplies<>());
      read(parameter.name, copied.emplace_back(static_cast<std::size_t>(size)));
      value = copied.back();
    }
    tensors.push_back(io::tensor_data<Real>(parameter.name, parameter.shape, value));
  }
  io::write_safetensors(path, tensors, {{kSpecKey, text_of(spec())}, {io::checked_key, io::checked_text}});
}

template <class Real>
Recurrent<Real> Recurrent<Real>::load(const std::string& path) {
  const io::SafetensorsFile file = io::SafetensorsFile::open(path);
  const RecurrentSpec spec = spec_from(file);
  // Checked against the file before anything of the parameters' size is allocated.
  const std::vector<ParameterShape> shapes = parameter_shapes(spec);
  if (file.tensors().size() != shapes.size()) {
    fail(ErrorCode::incompatible, "{} holds {} tensors, where its stack has {} parameters", path, file.tensors().size(),
         shapes.size());
  }
  for (const ParameterShape& shape : shapes) {
    const io::TensorInfo* const found = file.find(shape.name);
    if (found == nullptr || found->shape != shape.shape) {
      fail(ErrorCode::incompatible, "{} holds no {} [{}]", path, shape.name, fmt::join(shape.shape, ", "));
    }
  }
  Recurrent network(spec);
  for (Parameter& parameter : network.parameters()) file.read<Real>(parameter.name, parameter.shape, parameter.value);
  network.weights_changed();
  return network;
}

template <class Real>
Recurrent<Real> Recurrent<Real>::load(const std::string& path, Stream& stream) {
  Recurrent network = load(path);
  network.move_to(stream);
  return network;
}

template void Recurrent<float>::save(const std::string&) const;
template void Recurrent<double>::save(const std::string&) const;
template Recurrent<float> Recurrent<float>::load(const std::string&);
template Recurrent<double> Recurrent<double>::load(const std::string&);
template Recurrent<float> Recurrent<float>::load(const std::string&, Stream&);
template Recurrent<double> Recurrent<double>::load(const std::string&, Stream&);

}  // namespace penstock
