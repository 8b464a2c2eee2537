#pragma once

#include <optional>
#include <string>

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
