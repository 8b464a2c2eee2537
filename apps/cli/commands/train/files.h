#pragma once

#include <CLI/CLI.hpp>
#include <optional>
#include <string>

#include "commands/train/options.h"
#include "options/output_lock.h"
#include "penstock/penstock.h"

namespace penstock::cli {

/// The files of a run: model, checkpoints, metrics. Nothing that was trained before is lost by accident, and no other
/// process writes them meanwhile.
class TrainFiles {
 public:
  /// Finds out now what would otherwise stop us after an hour's training. Throws Error(invalid_argument | io_failure).
  explicit TrainFiles(const TrainArguments& arguments);

 private:
  void check_nothing_is_lost() const;
  void check_no_clash() const;

  const TrainArguments& arguments_;
  std::string checkpoint_;
  std::optional<OutputLock> output_lock_, checkpoint_lock_;
};

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
