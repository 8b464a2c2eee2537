#pragma once

#include <optional>
#include <span>
#include <string>
#include <vector>

#include "penstock/model.h"

namespace penstock {

/// Where a model comes from, as whoever trained it noted. Every field may be empty.
struct History {
  std::string trained;  ///< When training ended, UTC: "2026-03-04T12:30:00Z"
  std::string data;     ///< What it was trained on.
  std::string score;    ///< How well it did: "2.041 bits/byte on 215,268 held-out bytes".
  std::string version;  ///< Of Penstock.
  Index steps = 0;      ///< Of the optimiser.
  std::string origin;   ///< The model whose weights training went on from; empty: it began with fresh ones.
  std::string search;   ///< What was tried before the model was chosen; empty: nothing.
  std::string
      weight;  ///< What counts how much in it, where its layers do not count in full: "the linear forecast alone".
};

/// Writes a model as Model::save does, with its history.
void save_model(const Model& model, const std::string& path, const History& history);

/// One parameter of a model: its name in files, its shape and its values, which lie in the model.
struct ModelTensor {
  std::string name;
  std::vector<Index> shape;
  std::span<const float> values;
};

/// Lists the parameters of a model in the order of its files.
std::vector<ModelTensor> model_tensors(const Model& model);
/// Returns the architecture and the data of a model as the JSON object that its files carry.
std::string model_description(const Model& model);
/// Makes a model of such an object and of values by name. Throws what Model::load throws; `source` names the model in
/// messages.
Model make_model(const std::string& description, std::span<const ModelTensor> tensors, const std::string& source);

/// What a file is.
struct ModelFile {
  enum class Kind {
    model,        ///< Model::load reads it.
    checkpoint,   ///< Model::load reads it, and training goes on from it.
    safetensors,  ///< Sound, but of another program.
    other,        ///< None of these; `problem` says why.
  };
  Kind kind = Kind::other;
  std::string problem;
  std::string checksum;   ///< Of all its bytes, 16 hexadecimal digits; empty unless it is a safetensors file.
  bool verified = false;  ///< Whether it carries that checksum, so that a damaged file would have been noticed.
  std::optional<History> history;
  Index step = 0;  ///< Checkpoints: optimiser steps and seconds of the run so far.
  double seconds = 0.0;
  std::size_t tensors = 0;
};

/// Throws Error(io_failure) if the file cannot be read; what is wrong with it otherwise stands in `problem`.
ModelFile inspect_model_file(const std::string& path);

}  // namespace penstock
