#pragma once

#include <cstddef>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "penstock/model.h"

/// Model files: training history, parameters by name, and what a file holds.
namespace penstock {

/// Notes on how a model was trained, as the program that trained it wrote them. Every field may be empty.
struct History {
  std::string trained;  ///< When training ended, in UTC: "2026-03-04T12:30:00Z".
  std::string data;     ///< The training data.
  std::string score;    ///< The validation score: "2.041 bits/byte on 215,268 held-out bytes".
  std::string version;  ///< Version of Penstock.
  Index steps = 0;      ///< Optimiser steps.
  std::string origin;   ///< The model that training started from; empty: initial weights.
  std::string weight;   ///< Weight of the layers against the fitted parts: "the linear forecast alone"; empty: full.
  std::string options;  ///< Options of training, a JSON object such as {"batch":16,"seed":0}.
  std::string scores;   ///< Scores on the hold-out set and of baselines, as `penstock evaluate --json` writes them.
};

/// Returns the time for History::trained, "2026-03-04T12:30:00Z": now, or SOURCE_DATE_EPOCH for reproducible files.
/// Throws Error(invalid_argument) if that variable is not such a time.
std::string utc_time();

/// Writes a model with its history as Model::save() does. Throws Error(io_failure).
void save_model(const Model& model, const std::string& path, const History& history);

/// Name, shape and values of one parameter of a model.
struct ModelTensor {
  std::string name;  ///< As in model files.
  std::vector<Index> shape;
  std::span<const float> values;  ///< A view into the model.
};

/// Returns the parameters of a model in the order of its files.
std::vector<ModelTensor> model_tensors(const Model& model);
/// Returns the architecture and the data description of a model as the JSON object that its files carry.
std::string model_description(const Model& model);
/// Makes a model from the JSON of model_description() and parameters by name. `source` names the model in messages.
/// Throws Error: bad_input for a wrong description or values that are not finite; incompatible for a missing or unknown
/// parameter or a later format version.
Model make_model(const std::string& description, std::span<const ModelTensor> tensors, const std::string& source);

/// All tensors of a safetensors file, also of another program.
struct TensorFile {
  struct Tensor {
    std::string name, dtype;  ///< As in the file; types are "F32", "BF16", "BOOL", ...
    std::vector<Index> shape;
    std::span<const std::byte> values;  ///< Little-endian, in `content`.
  };
  std::vector<Tensor> tensors;
  std::map<std::string, std::string> metadata;  ///< Without the checksum.
  std::shared_ptr<const void> content;
};

/// Reads a safetensors file that need not be a model. Throws Error: io_failure if it cannot be read; bad_input that
/// names file and tensor if it is damaged.
TensorFile read_tensor_file(const std::string& path);

/// Says what a file is.
struct ModelFile {
  enum class Kind {
    model,        ///< A model: Model::load() reads it.
    checkpoint,   ///< A checkpoint: Model::load() reads it, and training can resume from it.
    network,      ///< An imported network: Network::load() reads it.
    safetensors,  ///< A sound safetensors file of another program.
    other,        ///< Anything else; `problem` says why.
  };
  Kind kind = Kind::other;
  std::string problem;    ///< Kind::other: what is wrong with the file.
  std::string checksum;   ///< Checksum of the whole file, 16 hexadecimal digits; empty unless it is a safetensors file.
  bool verified = false;  ///< True if the file carries this checksum, so damage would have been noticed.
  std::optional<History> history;  ///< Empty if the file has none.
  Index step = 0;                  ///< Checkpoints: optimiser steps of the run so far.
  double seconds = 0.0;            ///< Checkpoints: seconds of the run so far.
  std::size_t tensors = 0;         ///< Number of tensors in the file.
};

/// Returns what a file is. Throws Error(io_failure) if it cannot be read; other faults are reported in
/// ModelFile::problem.
ModelFile inspect_model_file(const std::string& path);

}  // namespace penstock
