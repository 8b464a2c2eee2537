#pragma once

#include <optional>
#include <vector>

#include "io/safetensors.h"
#include "nn/model/model_impl.h"
#include "penstock/data_description.h"
#include "penstock/model_file.h"

/// Model files: safetensors files with one tensor for each parameter, by name. The metadata field "penstock" holds
/// format version, architecture and data description as JSON. A checkpoint is such a file with more tensors and
/// metadata, so a model can be loaded from it.
namespace penstock::io {

/// Prefix of the names of the tensors that a checkpoint adds.
inline constexpr std::string_view training_prefix = "training.";

/// Returns the parameters in the order of the layout, as views into the model.
std::vector<TensorData> model_tensors(const Model::Impl& model);
/// Returns the metadata of a model file.
Metadata model_metadata(const ModelSpec& spec, const DataDescription& data);

/// Writes a model file as write_safetensors() does. Before, it reads what it will write as Model::load() would, so that
/// nothing replaces `path` that cannot be read back: throws Error(bad_input) that says why.
void write_model(const std::string& path, std::span<const TensorData> tensors, const Metadata& metadata);

/// Architecture and data description of a model.
struct ModelDescription {
  ModelSpec spec;
  DataDescription data;
};

/// Reads and checks the metadata. Throws Error: incompatible if the file is not a model or of a later format version;
/// bad_input that names an invalid field.
ModelDescription read_description(const SafetensorsFile& file);

/// Reads the training history; empty if the file has none.
std::optional<History> read_history(const SafetensorsFile& file);

/// Copies all parameters from the file. Throws Error: incompatible that names a tensor that is missing, unknown or of
/// another shape; bad_input for values that are not finite. After an error the parameters are undefined.
void read_parameters(const SafetensorsFile& file, nn::Parameters<float>& parameters);

}  // namespace penstock::io
