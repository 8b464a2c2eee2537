#pragma once

#include <optional>
#include <string>
#include <vector>

#include "io/safetensors.h"
#include "nn/model/model_impl.h"
#include "penstock/data_description.h"
#include "penstock/model_file.h"

/// A model as a safetensors file: one tensor a parameter, by its name, and under "penstock" in the metadata the JSON of
/// format version, architecture and data. A checkpoint is such a file with more tensors and metadata, so a model can be
/// loaded from it.
namespace penstock::io {

/// Begins the names of the tensors that a checkpoint adds.
inline constexpr std::string_view training_prefix = "training.";

/// The parameters, in the order of the layout. They point into the model.
std::vector<TensorData> model_tensors(const Model::Impl& model);
Metadata model_metadata(const ModelSpec& spec, const DataDescription& data);

struct ModelDescription {
  ModelSpec spec;
  DataDescription data;
};

/// What the metadata say, checked. Throws Error(incompatible) if the file is no model or of a newer format,
/// Error(bad_input) naming the field that makes no sense.
ModelDescription read_description(const SafetensorsFile& file);

/// Where the model comes from, if the metadata say so.
std::optional<History> read_history(const SafetensorsFile& file);

/// Copies all parameters from the file. Throws Error(incompatible) naming a tensor that is missing, unknown or of
/// another shape, Error(bad_input) for values that are not finite; the parameters are then undefined.
void read_parameters(const SafetensorsFile& file, nn::Parameters<float>& parameters);

}  // namespace penstock::io
