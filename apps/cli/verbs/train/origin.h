#pragma once

#include <CLI/CLI.hpp>
#include <string>

#include "penstock/model.h"

namespace penstock::cli {

/// The model of `train --init`, from whose weights training goes on.
class TrainOrigin {
 public:
  /// Throws Error(invalid_argument) if options that were given to `app` ask for another model than that of the file.
  TrainOrigin(const CLI::App& app, const std::string& path);

  const Model& model() const { return model_; }
  /// "book.safetensors, checksum 0123456789abcdef"
  std::string describe() const;

 private:
  std::string path_;
  Model model_;
  std::string checksum_;
};

}  // namespace penstock::cli
